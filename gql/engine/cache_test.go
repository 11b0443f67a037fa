package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestTheDocumentCacheIsBoundedAndKeepsWhatIsUsed(t *testing.T) {
	w := newWorld(t, Config{Limits: Limits{CacheBytes: 100_000}})
	m := w.runtime.metrics
	often := `{ ping }`
	for i := range 500 {
		w.do(often, ``)
		w.do(fmt.Sprintf(`{ a%d: ping }`, i), ``)
	}
	if got := testutil.ToFloat64(m.cacheHits); got != 499 {
		t.Errorf("%v hits", got)
	}
	if got := testutil.ToFloat64(m.cacheMisses); got != 501 {
		t.Errorf("%v misses", got)
	}
	if got := testutil.ToFloat64(m.cacheBytes); got > 100_000 || got < 50_000 {
		t.Errorf("%v bytes", got)
	}
	c := w.runtime.cache
	if len(c.byKey) != c.used.Len() || float64(501-len(c.byKey)) != testutil.ToFloat64(m.cacheEvictions) {
		t.Errorf("%d by key, %d in order", len(c.byKey), c.used.Len())
	}
	var sum int64
	for el := c.used.Front(); el != nil; el = el.Next() {
		sum += el.Value.(*cacheEntry).bytes
	}
	if sum != c.bytes {
		t.Errorf("%d bytes, accounted %d", sum, c.bytes)
	}
}

func TestRefusedAndOversizedDocumentsAreNotKept(t *testing.T) {
	w := newWorld(t, Config{Limits: Limits{CacheBytes: 100_000}})
	for _, query := range []string{`{ nothing }`, `{`, `{ ping }` + strings.Repeat(" ", 50_000)} {
		w.do(query, ``)
	}
	if n := w.runtime.cache.used.Len(); n != 0 {
		t.Errorf("%d documents are kept", n)
	}
}

func TestAreasShareTheCacheButNotTheDocuments(t *testing.T) {
	r, engines := New(Config{}), map[string]*Engine{}
	for _, name := range []string{"a", "b"} {
		a := r.Schema(name, `type Query { name: String }`)
		a.Query("name", nil, Do(func(_ context.Context, _ struct{}) (any, error) { return name, nil }))
		var err error
		if engines[name], err = a.Build(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for _, name := range []string{"a", "b"} {
			b, _ := engines[name].Execute(t.Context(), Request{Query: `{ name }`}).MarshalJSON()
			if string(b) != `{"data":{"name":"`+name+`"}}` {
				t.Errorf("%s: %s", name, b)
			}
		}
	}
}

func TestOneDocumentMayRunManyTimesAtOnce(t *testing.T) {
	w := newWorld(t, Config{})
	want := w.do(`query($n: String!) { entities { id ... on Device { kind { token } note(prefix: $n) } } }`, `{"n":"x"}`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if got := w.do(`query($n: String!) { entities { id ... on Device { kind { token } note(prefix: $n) } } }`, `{"n":"x"}`); got != want {
					t.Errorf("%s", got)
					return
				}
			}
		})
	}
	wg.Wait()
}

const benchQuery = `query($t: String!) { device(token: $t) { id token name state score count tags } }`

func BenchmarkSmallQueryCached(b *testing.B) { benchmarkQuery(b, 0, benchQuery, `{"t":"d1"}`) }

func BenchmarkSmallQueryUncached(b *testing.B) { benchmarkQuery(b, 1, benchQuery, `{"t":"d1"}`) }

func BenchmarkPageOf100(b *testing.B) {
	benchmarkQuery(b, 0, `{ devices(criteria: {pageNumber: 1, pageSize: 100}) { total results { id token name state score count kind { token } } } }`, ``)
}

func benchmarkQuery(b *testing.B, cacheBytes int64, query, variables string) {
	w := newWorld(b, Config{Limits: Limits{CacheBytes: cacheBytes}})
	w.do(query, variables)
	b.ReportAllocs()
	for b.Loop() {
		w.loads = nil
		w.do(query, variables)
	}
}
