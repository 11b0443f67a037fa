package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weir/store"
)

var errOwn = errors.New("own")

func testReads(t *testing.T, f *fixture) {
	f.write(t, func(tx store.Tx) error { return insertPlain(tx, "one") })

	t.Run("the snapshot is that of the call, whatever is written meanwhile", func(t *testing.T) {
		f.read(t, func(tx store.Tx) error {
			f.write(t, func(tx store.Tx) error { return insertPlain(tx, "two") })
			for range 2 {
				if as, err := plain(tx); err != nil || !slices.Equal(as, []string{"one"}) {
					t.Errorf("inside: %v, %v", as, err)
				}
			}
			return nil
		})
		if as := f.plain(t); !slices.Equal(as, []string{"one", "two"}) {
			t.Errorf("afterwards: %v", as)
		}
	})
	t.Run("a read cannot write", func(t *testing.T) {
		if err := f.Read(f.ctx, func(tx store.Tx) error { return insertPlain(tx, "three") }); err == nil {
			t.Error("no error")
		}
	})
	t.Run("the function's error is returned and leaves the connection usable", func(t *testing.T) {
		for range 20 {
			if err := f.Read(f.ctx, func(store.Tx) error { return errOwn }); !errors.Is(err, errOwn) {
				t.Fatal(err)
			}
		}
		f.plain(t)
	})
	t.Run("a panic passes and leaves the connection usable", func(t *testing.T) {
		for range 20 {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was swallowed")
					}
				}()
				_ = f.Read(f.ctx, func(store.Tx) error { panic("read") })
			}()
		}
		f.plain(t)
	})
	t.Run("a query inside the loop over the rows of another is refused", func(t *testing.T) {
		f.read(t, func(tx store.Tx) error {
			const outer = `SELECT a FROM st_plain ORDER BY id`
			var text string
			for name, inner := range map[string]func() error{
				"Query":          func() error { _, err := plain(tx); return err },
				"QueryRow":       func() error { return tx.QueryRow(`SELECT 'x'`).Scan(&text) },
				"the same query": func() error { return tx.QueryRow(outer).Scan(&text) },
			} {
				seen, err := within(tx, outer, func() {
					if err := inner(); !errors.Is(err, store.ErrOpenRows) || !strings.Contains(err.Error(), outer) {
						t.Errorf("%s: %v", name, err)
					}
				})
				if seen != 2 || err != nil {
					t.Errorf("%s: the outer loop saw %d rows, %v", name, seen, err)
				}
				if err := inner(); err != nil {
					t.Errorf("%s after the loop: %v", name, err)
				}
			}
			return nil
		})
	})
	t.Run("rows left open are an error, not a leak", func(t *testing.T) {
		for range 20 {
			err := f.Read(f.ctx, func(tx store.Tx) error {
				rows, err := tx.Query(`SELECT a FROM st_plain`)
				if err == nil {
					rows.Next()
				}
				return err
			})
			if err == nil || !strings.Contains(err.Error(), "open") {
				t.Fatal(err)
			}
		}
		f.plain(t)
	})
	t.Run("a transaction is of no use after its function", func(t *testing.T) {
		var kept store.Tx
		f.read(t, func(tx store.Tx) error { kept = tx; return nil })
		if _, err := plain(kept); err == nil {
			t.Error("Query: no error")
		}
		var n int
		if err := kept.QueryRow(`SELECT 1`).Scan(&n); err == nil {
			t.Error("QueryRow: no error")
		}
	})
	t.Run("ending the context interrupts the statement", func(t *testing.T) {
		ctx, cancel := context.WithCancel(f.ctx)
		began := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- f.Read(ctx, func(tx store.Tx) error {
				close(began)
				var n int64
				return tx.QueryRow(`WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c`).Scan(&n)
			})
		}()
		<-began
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		f.plain(t)
	})
	t.Run("a context that has ended reads nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		if err := f.Read(ctx, func(store.Tx) error { t.Error("read"); return nil }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("a Read that finds all readers busy waits, or ends with its context", func(t *testing.T) {
		var holding sync.WaitGroup
		release := make(chan struct{})
		limited, cancel := context.WithCancel(f.ctx)
		var inside atomic.Int64
		for range 64 { // more than any pool
			holding.Go(func() {
				_ = f.Read(limited, func(store.Tx) error {
					inside.Add(1)
					<-release
					return nil
				})
			})
		}
		for inside.Load() == 0 || int64(f.Stats().ReadersInUse) != inside.Load() {
			runtime.Gosched()
		}
		if n := inside.Load(); n >= 64 {
			t.Errorf("%d readers at once", n)
		}
		cancel()
		close(release)
		holding.Wait()
		f.plain(t)
	})
}

// within calls f for each row of a query while its rows are open.
func within(tx store.Tx, query string, f func()) (seen int, err error) {
	rows, err := tx.Query(query)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); seen++ {
		f()
	}
	return seen, rows.Err()
}

func testWrites(t *testing.T, f *fixture) {
	t.Run("a failing function leaves nothing", func(t *testing.T) {
		err := f.Write(f.ctx, store.Results, func(tx store.Tx) error {
			tx.OnCommit(func() { t.Error("OnCommit of a failed Write ran") })
			if err := insertPlain(tx, "lost"); err != nil {
				return err
			}
			return errOwn
		})
		if !errors.Is(err, errOwn) || len(f.plain(t)) != 0 {
			t.Error(err, f.plain(t))
		}
	})
	t.Run("a panic becomes an error", func(t *testing.T) {
		err := f.Write(f.ctx, store.Results, func(tx store.Tx) error {
			if err := insertPlain(tx, "lost"); err != nil {
				return err
			}
			panic("boom")
		})
		if err == nil || !strings.Contains(err.Error(), "boom") || len(f.plain(t)) != 0 {
			t.Error(err, f.plain(t))
		}
	})
	t.Run("a function that ends its goroutine fails alone", func(t *testing.T) {
		err := f.Write(f.ctx, store.Results, func(tx store.Tx) error {
			if err := insertPlain(tx, "lost"); err != nil {
				return err
			}
			runtime.Goexit()
			return nil
		})
		if err == nil || len(f.plain(t)) != 0 {
			t.Error(err, f.plain(t))
		}
	})
	t.Run("rows left open are an error, also of a function that ends its goroutine", func(t *testing.T) {
		open := func(tx store.Tx) error {
			if err := insertPlain(tx, "lost"); err != nil {
				return err
			}
			rows, err := tx.Query(`SELECT a FROM st_plain`)
			if err == nil {
				rows.Next()
			}
			return err
		}
		if err := f.Write(f.ctx, store.Results, open); err == nil || !strings.Contains(err.Error(), "open") {
			t.Error(err)
		}
		if err := f.Write(f.ctx, store.Results, func(tx store.Tx) error {
			_ = open(tx) // what Write returns is looked at
			runtime.Goexit()
			return nil
		}); err == nil {
			t.Error("no error")
		}
		if as := f.plain(t); len(as) != 0 {
			t.Error(as)
		}
	})
	t.Run("a write inside the loop over a query's rows is refused", func(t *testing.T) {
		f.write(t, func(tx store.Tx) error {
			id, err := tx.Insert(`INSERT INTO st_plain (a, b) VALUES (?, ?)`, "outer", nil)
			if err != nil {
				return err
			}
			seen, err := within(tx, `SELECT a FROM st_plain`, func() {
				if err := insertPlain(tx, "inner"); !errors.Is(err, store.ErrOpenRows) {
					t.Errorf("Insert: %v", err)
				}
				if _, err := tx.Exec(`UPDATE st_plain SET b = 'x'`); !errors.Is(err, store.ErrOpenRows) {
					t.Errorf("Exec: %v", err)
				}
			})
			if seen != 1 {
				t.Errorf("%d rows", seen)
			}
			_, e := tx.Exec(`DELETE FROM st_plain WHERE id = ?`, id)
			return errors.Join(err, e)
		})
	})
	t.Run("OnCommit runs in order, after the commit, before Write returns", func(t *testing.T) {
		var ran []int
		f.write(t, func(tx store.Tx) error {
			for i := range 3 {
				tx.OnCommit(func() {
					if len(f.plain(t)) != 1 {
						t.Error("the hook does not see the commit")
					}
					ran = append(ran, i)
				})
			}
			return insertPlain(tx, "kept")
		})
		if !slices.Equal(ran, []int{0, 1, 2}) {
			t.Error(ran)
		}
	})
	t.Run("a Write inside a Write is refused", func(t *testing.T) {
		f.write(t, func(tx store.Tx) error {
			if err := f.Write(tx.Context(), store.Results, func(store.Tx) error { return nil }); err == nil {
				t.Error("no error")
			}
			return nil
		})
	})
	t.Run("a context that ends inside does not undo the write", func(t *testing.T) {
		ctx, cancel := context.WithCancel(f.ctx)
		if err := f.Write(ctx, store.Results, func(tx store.Tx) error {
			cancel()
			return insertPlain(tx, "kept too")
		}); err != nil {
			t.Error(err)
		}
		if as := f.plain(t); !slices.Contains(as, "kept too") {
			t.Error(as)
		}
	})
	t.Run("rows changed are counted and ids returned", func(t *testing.T) {
		f.write(t, func(tx store.Tx) error {
			a, err := tx.Insert(`INSERT INTO st_plain (a, b) VALUES (?, ?)`, "x", nil)
			if err != nil {
				return err
			}
			b, err := tx.Insert(`INSERT INTO st_plain (a, b) VALUES (?, ?)`, "y", nil)
			if err != nil {
				return err
			}
			n, err := tx.Exec(`UPDATE st_plain SET b = 'z' WHERE id IN (?, ?)`, a, b)
			if a == b || n != 2 {
				t.Error(a, b, n)
			}
			return err
		})
	})
}

// hold occupies the writer until the result is called, so that what is written meanwhile is ready together.
func (f *fixture) hold(t *testing.T) (release func()) {
	t.Helper()
	began, over, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- f.Write(context.Background(), store.Results, func(store.Tx) error {
			close(began)
			<-over
			return nil
		})
	}()
	<-began
	return func() {
		close(over)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// queue starts a Write that waits for the writer and returns when it does.
func (f *fixture) queue(ctx context.Context, d store.Durability, fn func(store.Tx) error) <-chan error {
	before := f.Stats().WriterQueue
	done := make(chan error, 1)
	go func() { done <- f.Write(ctx, d, fn) }()
	for f.Stats().WriterQueue == before {
		runtime.Gosched()
	}
	return done
}

func testBatches(t *testing.T, f *fixture) {
	nothing := func(store.Tx) error { return nil }
	t.Run("what is ready is committed together, the failing one without its neighbours", func(t *testing.T) {
		release := f.hold(t)
		var order []string
		insert := func(a string, err error) func(store.Tx) error {
			return func(tx store.Tx) error {
				tx.OnCommit(func() { order = append(order, a) })
				return errors.Join(insertPlain(tx, a), err)
			}
		}
		one := f.queue(f.ctx, store.Results, insert("one", nil))
		two := f.queue(f.ctx, store.Results, insert("two", errOwn))
		three := f.queue(f.ctx, store.Results, insert("one", nil)) // not unique
		four := f.queue(f.ctx, store.Results, func(tx store.Tx) error {
			if err := insertPlain(tx, "lost"); err != nil {
				return err
			}
			panic("four")
		})
		five := f.queue(f.ctx, store.Results, insert("five", nil))
		f.taken()
		release()
		if err := <-one; err != nil {
			t.Error(err)
		}
		if err := <-two; !errors.Is(err, errOwn) {
			t.Error(err)
		}
		if _, ok := errors.AsType[*store.UniqueError](<-three); !ok {
			t.Error("three: no UniqueError")
		}
		if err := <-four; err == nil {
			t.Error("four: no error")
		}
		if err := <-five; err != nil {
			t.Error(err)
		}
		if as := f.plain(t); !slices.Equal(as, []string{"one", "five"}) || !slices.Equal(order, as) {
			t.Error(as, order)
		}
		if cs := f.taken(); len(cs) != 2 || cs[1].writes != 5 {
			t.Errorf("commits: %+v", cs)
		}
	})
	t.Run("the functions of a WriteAll run in their order in one commit, and each keeps its own failure", func(t *testing.T) {
		release := f.hold(t)
		var order []string
		put := func(a string, err error) func(store.Tx) error {
			return func(tx store.Tx) error {
				order = append(order, a)
				return errors.Join(insertPlain(tx, a), err)
			}
		}
		done := make(chan []error, 1)
		go func() {
			done <- f.WriteAll(f.ctx, store.Durable, put("all 1", nil), put("all 2", errOwn), put("all 3", nil))
		}()
		for f.Stats().WriterQueue < 3 {
			runtime.Gosched()
		}
		f.taken()
		release()
		errs := <-done
		if len(errs) != 3 || errs[0] != nil || !errors.Is(errs[1], errOwn) || errs[2] != nil {
			t.Error(errs)
		}
		if as := f.plain(t); !slices.Equal(order, []string{"all 1", "all 2", "all 3"}) || !slices.Contains(as, "all 1") || slices.Contains(as, "all 2") || !slices.Contains(as, "all 3") {
			t.Error(order, as)
		}
		if cs := f.taken(); len(cs) != 2 || cs[1].writes != 3 || !cs[1].durable {
			t.Errorf("commits: %+v", cs)
		}
	})
	t.Run("a commit is durable when one of its Writes asks for it", func(t *testing.T) {
		for _, durable := range []store.Durability{store.Results, store.Durable, store.Results} {
			release := f.hold(t)
			one := f.queue(f.ctx, store.Results, nothing)
			two := f.queue(f.ctx, durable, nothing)
			release()
			if err := errors.Join(<-one, <-two); err != nil {
				t.Fatal(err)
			}
			if cs := f.taken(); len(cs) != 2 || cs[0].durable || cs[1].durable != (durable == store.Durable) {
				t.Errorf("%v: %+v", durable, cs)
			}
		}
	})
	t.Run("a context that ends before its turn takes the Write out of the queue", func(t *testing.T) {
		release := f.hold(t)
		ctx, cancel := context.WithCancel(f.ctx)
		done := f.queue(ctx, store.Results, func(store.Tx) error { t.Error("it ran"); return nil })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		release()
		f.write(t, nothing)
	})
	t.Run("one that ends its goroutine takes its batch along, and the writer goes on", func(t *testing.T) {
		release := f.hold(t)
		one := f.queue(f.ctx, store.Results, func(store.Tx) error { runtime.Goexit(); return nil })
		release()
		if err := <-one; err == nil {
			t.Error("no error")
		}
		f.write(t, nothing)
	})
}

func testErrors(t *testing.T, f *fixture) {
	f.write(t, func(tx store.Tx) error { return insertPlain(tx, "a") })
	want := func(t *testing.T, err error, table string, columns ...string) {
		t.Helper()
		u, ok := errors.AsType[*store.UniqueError](err)
		if !ok || u.Table != table || !slices.Equal(u.Columns, columns) || u.Unwrap() == nil {
			t.Errorf("%v: %+v", err, u)
		}
	}
	for name, insert := range map[string]func(store.Tx) error{
		"Insert": func(tx store.Tx) error { return insertPlain(tx, "a") },
		"Exec": func(tx store.Tx) error {
			_, err := tx.Exec(`INSERT INTO st_plain (a, b) VALUES ('a', 'b')`)
			return err
		},
		"QueryRow": func(tx store.Tx) error {
			var id int64
			return tx.QueryRow(`INSERT INTO st_plain (a, b) VALUES ('a', 'b') RETURNING id`).Scan(&id)
		},
	} {
		t.Run("a unique index, by "+name, func(t *testing.T) {
			want(t, f.Write(f.ctx, store.Results, insert), "st_plain", "a", "b")
		})
	}
	t.Run("the statement of a refused write goes on inside its transaction", func(t *testing.T) {
		f.write(t, func(tx store.Tx) error {
			want(t, insertPlain(tx, "a"), "st_plain", "a", "b")
			return insertPlain(tx, "b")
		})
		if as := f.plain(t); !slices.Equal(as, []string{"a", "b"}) {
			t.Error(as)
		}
	})
	t.Run("a reference to nothing", func(t *testing.T) {
		if err := f.Write(f.ctx, store.Results, func(tx store.Tx) error {
			_, err := tx.Exec(`INSERT INTO st_books (tenant_id, created_at, updated_at, token, remark, shelf_id, enabled, tags, place, state, counter)
				VALUES (1, 0, 0, 't', '', 77, ?, '[]', 1, '', 0)`, true)
			return err
		}); err == nil {
			t.Error("no error")
		}
	})
	t.Run("a statement that is no SQL", func(t *testing.T) {
		if err := f.Read(f.ctx, func(tx store.Tx) error {
			_, err := tx.Query(`SELEC 1`)
			return err
		}); err == nil {
			t.Error("no error")
		}
	})
}

func testClose(t *testing.T, f *fixture) {
	release := f.hold(t)
	queued := f.queue(f.ctx, store.Results, func(tx store.Tx) error { return insertPlain(tx, "queued") })
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	for !errors.Is(f.Read(f.ctx, func(store.Tx) error { return nil }), store.ErrClosed) {
		runtime.Gosched()
	}
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := <-queued; err != nil {
		t.Errorf("a Write that was queued before the Close: %v", err)
	}
	if err := f.Write(f.ctx, store.Results, func(store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	f.open(t)
	if as := f.plain(t); !slices.Equal(as, []string{"queued"}) {
		t.Error(as)
	}
}

// testConcurrency counts in many goroutines: no increment is lost, no reader sees the two counters apart.
func testConcurrency(t *testing.T, f *fixture) {
	const writers, each = 8, 40
	f.write(t, func(tx store.Tx) error {
		return errors.Join(store.SetMetaInt(tx, "a", 0), store.SetMetaInt(tx, "b", 0))
	})
	add := func(tx store.Tx, key string) error {
		n, _, err := store.MetaInt(tx, key)
		return errors.Join(err, store.SetMetaInt(tx, key, n+1))
	}
	var busy, idle sync.WaitGroup
	stop := make(chan struct{})
	for w := range writers {
		busy.Go(func() {
			for i := range each {
				d := store.Durability((w + i) % 2)
				fail := i%5 == 4
				err := f.Write(f.ctx, d, func(tx store.Tx) error {
					err := errors.Join(add(tx, "a"), add(tx, "b"))
					if fail {
						return errOwn
					}
					return err
				})
				if fail != errors.Is(err, errOwn) || err != nil && !fail {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		idle.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f.Read(f.ctx, func(tx store.Tx) error {
					a, _, errA := store.MetaInt(tx, "a")
					b, _, errB := store.MetaInt(tx, "b")
					if a != b {
						return fmt.Errorf("a is %d, b is %d", a, b)
					}
					return errors.Join(errA, errB)
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	busy.Wait()
	close(stop)
	idle.Wait()
	f.read(t, func(tx store.Tx) error {
		if n, _, err := store.MetaInt(tx, "a"); n != writers*each*4/5 || err != nil {
			t.Error(n, err)
		}
		return nil
	})
	if s := f.Stats(); s.Commits == 0 || s.Bytes == 0 || s.ReadersInUse != 0 || s.WriterQueue != 0 {
		t.Errorf("%+v", s)
	}
}
