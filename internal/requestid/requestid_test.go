package requestid

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCallersIDIsEchoedOnlyWhenItIsHarmless(t *testing.T) {
	for _, c := range []struct {
		sent string
		echo bool
	}{
		{"abc-1.2_Z", true}, {strings.Repeat("a", 64), true}, {strings.Repeat("a", 65), false}, {"", false},
		{"a b", false}, {"a\tb", false}, {"ä", false}, {"a;b", false},
	} {
		var seen string
		h := Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = From(r.Context()) }))
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(Header, c.sent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := w.Header().Get(Header)
		if got != seen || !Valid(got) || (got == c.sent) != c.echo {
			t.Errorf("sent %q: header %q, context %q", c.sent, got, seen)
		}
	}
}

func TestAnOuterIDIsKept(t *testing.T) {
	var seen string
	inner := Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = From(r.Context()) }))
	w := httptest.NewRecorder()
	Handler(inner).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if seen == "" || len(w.Header().Values(Header)) != 1 || w.Header().Get(Header) != seen {
		t.Errorf("context %q, headers %q", seen, w.Header().Values(Header))
	}
}
