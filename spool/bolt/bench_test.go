package bolt

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/internal/setting"
	"weir/model"
	"weir/spool"
)

// BenchmarkAppend has writers that each wait for their answer before they append again, and one reader that keeps up.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) { benchmarkAppend(b, writers) })
	}
}

func benchmarkAppend(b *testing.B, writers int) {
	l := benchLog(b)
	data := bytes.Repeat([]byte("x"), 120)
	b.ReportAllocs()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			answered := make(chan error, 1)
			e := spool.Entry{Data: data, Done: func(_ model.Offset, err error) { answered <- err }}
			for i := w; i < b.N; i += writers {
				if err := l.Append(b.Context(), e); err != nil {
					b.Error(err)
					return
				}
				if err := <-answered; err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	report(b, l)
}

// BenchmarkAppendPipelined never waits for answers: the unsynced bound alone holds it back.
func BenchmarkAppendPipelined(b *testing.B) {
	l := benchLog(b)
	data := bytes.Repeat([]byte("x"), 120)
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Append(b.Context(), spool.Entry{Data: data}); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	report(b, l)
}

func benchLog(b *testing.B) *Log {
	l, err := Open(b.TempDir(), Options{CommitSettings: spool.CommitSettings{CommitInterval: setting.Auto}, Capacity: spool.Capacity{MaxBytes: 64 << 30}})
	if err != nil {
		b.Fatal(err)
	}
	r, err := l.Reader(1)
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, err := r.Next(b.Context()); err != nil {
				return
			}
		}
	})
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
		wg.Wait()
		r.Close()
	})
	b.ResetTimer()
	return l
}

func report(b *testing.B, l *Log) {
	b.StopTimer()
	s := l.Stats()
	b.ReportMetric(float64(s.Records)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(s.Records)/float64(max(s.Batches, 1)), "records/batch")
	b.ReportMetric(float64(s.DiskBytes)/float64(s.Records), "disk-B/record")
	b.ReportMetric(float64(b.Elapsed())/float64(time.Microsecond)/float64(max(s.Batches, 1)), "us/batch")
}

// BenchmarkAppendPaced has senders that wait for no answer: 15 entries every half a millisecond. What a commit costs is
// shared by those that it holds.
func BenchmarkAppendPaced(b *testing.B) {
	l := benchLog(b)
	data := bytes.Repeat([]byte("x"), 120)
	next := time.Now()
	for i := range b.N {
		if err := l.Append(b.Context(), spool.Entry{Data: data}); err != nil {
			b.Fatal(err)
		}
		if i%15 == 14 {
			next = next.Add(500 * time.Microsecond)
			time.Sleep(time.Until(next))
		}
	}
	report(b, l)
}
