package soak_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// slack is how many goroutines or descriptors may be left that were not there before: a request that is just being answered,
// a reader of the database that stays open.
const slack = 12

// sample is what the instance holds at a moment.
type sample struct {
	At                                           time.Duration
	Goroutines, Descriptors, Connections, Panics int64
	Anonymous, Heap, Spool                       int64 // bytes; Anonymous is what the kernel cannot drop
}

func (p *plant) sample(ctx context.Context) (sample, error) {
	m, err := p.Scrape(ctx)
	if err != nil {
		return sample{}, err
	}
	s := sample{Goroutines: int64(m["go_goroutines"]), Descriptors: int64(m["process_open_fds"]), Connections: int64(m["weir_broker_connections"]),
		Panics: int64(m["weir_broker_panics_total"] + m["weir_http_panics_total"]), Heap: int64(m["go_memstats_heap_inuse_bytes"]), Spool: int64(m["weir_spool_bytes"])}
	if s.Goroutines == 0 || s.Descriptors == 0 {
		return s, fmt.Errorf("the metrics do not say what is held: %d, %d", s.Goroutines, s.Descriptors)
	}
	_, s.Anonymous, err = p.Memory()
	return s, err
}

// samples are what was seen, and every metric as it stood in the end.
type samples struct {
	list    []sample
	metrics map[string]float64
}

// watch takes a sample every so often until the returned function is called.
func (all *samples) watch(t *testing.T, p *plant) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		err := every(ctx, 500*time.Millisecond, func(int) error {
			s, err := p.sample(ctx)
			if err != nil {
				return err
			}
			s.At = time.Since(began)
			all.list = append(all.list, s)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			t.Errorf("sampling: %v", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// quarter is a fourth of the samples, counted from 0.
func (all *samples) quarter(q int) []sample {
	n := len(all.list)
	return all.list[n*q/4 : n*(q+1)/4]
}

func median(list []sample, of func(sample) int64) int64 {
	v := make([]int64, len(list))
	for i, s := range list {
		v[i] = of(s)
	}
	slices.Sort(v)
	if len(v) == 0 {
		return 0
	}
	return v[len(v)/2]
}

// middle is the median of each figure.
func middle(list []sample) sample {
	m := func(of func(sample) int64) int64 { return median(list, of) }
	return sample{Goroutines: m(func(s sample) int64 { return s.Goroutines }), Descriptors: m(func(s sample) int64 { return s.Descriptors }),
		Connections: m(func(s sample) int64 { return s.Connections }), Anonymous: m(func(s sample) int64 { return s.Anonymous }),
		Heap: m(func(s sample) int64 { return s.Heap }), Spool: m(func(s sample) int64 { return s.Spool })}
}
