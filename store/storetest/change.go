package storetest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"weir/internal/rootkey"
	"weir/model"
	"weir/store"
)

// pending returns the control rows above a sequence.
func (f *fixture) pending(t *testing.T, after uint64, limit int) (cs []model.Control) {
	t.Helper()
	f.read(t, func(tx store.Tx) (err error) {
		cs, err = store.PendingControl(tx, after, limit)
		return err
	})
	return cs
}

func testChanges(t *testing.T, f *fixture) {
	mutate := func(fn func(*store.Change) error) (uint64, error) {
		return store.Mutate(f.ctx, f.Store, ann, f.now, fn)
	}
	view := func(key string) model.ViewChange {
		return model.ViewChange{Kind: model.ViewDevice, Key: key, Body: []byte(`{"v":1}`)}
	}
	t.Run("a change without meaning has no sequence, and is durable", func(t *testing.T) {
		f.taken()
		seq, err := mutate(func(c *store.Change) error {
			_, err := shelves.Create(c, here, store.Patch{"token": "s1"})
			return err
		})
		if seq != 0 || err != nil || len(f.pending(t, 0, 10)) != 0 {
			t.Error(seq, err)
		}
		if cs := f.taken(); len(cs) != 1 || !cs[0].durable {
			t.Errorf("%+v", cs)
		}
	})
	var first uint64
	t.Run("rows and control rows are one", func(t *testing.T) {
		want := []model.ViewChange{view("a"), {Kind: model.ViewTenant, Key: "gone"}, view("b")}
		seq, err := mutate(func(c *store.Change) error {
			c.View(want[0])
			_, err := shelves.Create(c, here, store.Patch{"token": "s2"})
			c.View(want[1:]...)
			return err
		})
		cs := f.pending(t, 0, 10)
		if err != nil || len(cs) != 1 || cs[0].Sequence != seq || cs[0].Part != 0 || cs[0].Parts != 1 {
			t.Fatal(seq, err, cs)
		}
		got, err := store.DecodeViewChanges(cs[0].Body)
		if err != nil || !slices.EqualFunc(got, want, func(a, b model.ViewChange) bool {
			return a.Kind == b.Kind && a.Key == b.Key && bytes.Equal(a.Body, b.Body) && (a.Body == nil) == (b.Body == nil)
		}) {
			t.Errorf("%+v %v", got, err)
		}
		first = seq
	})
	t.Run("a refused change leaves neither", func(t *testing.T) {
		_, err := mutate(func(c *store.Change) error {
			c.View(view("c"))
			if _, err := shelves.Create(c, here, store.Patch{"token": "s3"}); err != nil {
				return err
			}
			_, err := shelves.Create(c, here, store.Patch{"token": "s3"})
			return err
		})
		refusal(t, err, model.CodeConflict, "s3")
		if cs := f.pending(t, first, 10); len(cs) != 0 {
			t.Errorf("%+v", cs)
		}
		f.read(t, func(tx store.Tx) error {
			s, err := shelves.Get(tx, here, "s3")
			if s != nil {
				t.Error("the row is there")
			}
			return err
		})
	})
	t.Run("a sequence is never used again", func(t *testing.T) {
		f.write(t, func(tx store.Tx) error { return store.RemoveControl(tx, first) })
		if len(f.pending(t, 0, 10)) != 0 {
			t.Error("it is still there")
		}
		seq, err := mutate(func(c *store.Change) error { c.View(view("d")); return nil })
		if err != nil || seq <= first {
			t.Error(seq, first, err)
		}
	})
	t.Run("a large change is split, and joined again", func(t *testing.T) {
		big := view("big")
		big.Body = bytes.Repeat([]byte("0123456789"), 200_000)
		seq, err := mutate(func(c *store.Change) error { c.View(big); return nil })
		if err != nil {
			t.Fatal(err)
		}
		cs := f.pending(t, seq-1, 10)
		var body []byte
		for i, c := range cs {
			if int(c.Part) != i || int(c.Parts) != len(cs) || c.Sequence != seq || len(c.Body) > store.MaxControlBody {
				t.Errorf("part %d of %d, sequence %d, %d bytes", c.Part, c.Parts, c.Sequence, len(c.Body))
			}
			body = append(body, c.Body...)
		}
		got, err := store.DecodeViewChanges(body)
		if err != nil || len(cs) < 2 || len(got) != 1 || !bytes.Equal(got[0].Body, big.Body) {
			t.Error(len(cs), err)
		}
		if one := f.pending(t, seq-1, 1); len(one) != 1 {
			t.Error("the limit does not hold")
		}
	})
	t.Run("a change that would fill the log is refused whole", func(t *testing.T) {
		huge := view("huge")
		huge.Body = make([]byte, 16<<20)
		_, err := mutate(func(c *store.Change) error { c.View(huge); return nil })
		refusal(t, err, model.CodeLimitExceeded, "log")
	})
	t.Run("packages that take part in a change write and read within it", func(t *testing.T) {
		bob := &model.Principal{Kind: model.LocalOperator, Subject: "bob"}
		var told []string
		tell := func(s string) func() { return func() { told = append(told, s) } }
		part := func(c *store.Change, fail error) error {
			w, ctx := store.Direct{Store: f.Store}, c.Context()
			c.View(view("before"))
			err := w.Mutate(ctx, bob, func(inner *store.Change) error {
				if inner.Actor() != "bob" || inner.At != c.At {
					t.Error(inner.Actor(), inner.At, c.At)
				}
				inner.View(view("within"))
				inner.OnCommit(tell("mutate"))
				_, err := shelves.Create(inner, here, store.Patch{"token": "joined"})
				return err
			})
			if err != nil || c.Actor() != "ann" {
				t.Error(err, c.Actor())
			}
			if err := store.Read(ctx, f.Store, func(tx store.Tx) error {
				tx.OnCommit(tell("read"))
				s, err := shelves.Get(tx, here, "joined")
				if s == nil {
					t.Error("what was written is not read")
				}
				return err
			}); err != nil {
				t.Error(err)
			}
			store.AfterCommit(ctx, tell("after the commit"))
			c.View(view("after"))
			return fail
		}
		taken := errors.New("taken back")
		if _, err := mutate(func(c *store.Change) error { return part(c, taken) }); !errors.Is(err, taken) || len(told) != 0 {
			t.Error(err, told)
		}
		seq, err := mutate(func(c *store.Change) error { return part(c, nil) }) // the token is free again
		if err != nil || !slices.Equal(told, []string{"mutate", "after the commit"}) {
			t.Fatal(err, told)
		}
		vs, err := store.DecodeViewChanges(f.pending(t, seq-1, 1)[0].Body)
		if err != nil || len(vs) != 3 || vs[0].Key != "before" || vs[1].Key != "within" || vs[2].Key != "after" {
			t.Error(vs, err)
		}
	})
	t.Run("the instant is one for all of the change, and the actor is named", func(t *testing.T) {
		if _, err := mutate(func(c *store.Change) error {
			a, err1 := shelves.Create(c, here, store.Patch{"token": "s5"})
			b, err2 := shelves.Create(c, here, store.Patch{"token": "s6"})
			if a.CreatedAt != c.At || b.CreatedAt != c.At || c.Actor() != "ann" {
				t.Error(a.CreatedAt, b.CreatedAt, c.At, c.Actor())
			}
			return errors.Join(err1, err2)
		}); err != nil {
			t.Error(err)
		}
	})
}

func testSecrets(t *testing.T, f *fixture) {
	var key, other rootkey.Key
	key[0], other[0] = 1, 2
	v := store.NewVault(key)
	name := store.SecretName{TenantID: here, Scope: store.ScopeTenant, Name: "connector/7/secret"}
	put := func(n store.SecretName, plain string) error {
		return f.mutate(func(c *store.Change) error { return v.Put(c, n, []byte(plain)) })
	}
	get := func(v *store.Vault, n store.SecretName) (plain []byte, ok bool, err error) {
		f.read(t, func(tx store.Tx) error {
			plain, ok, err = v.Get(tx, n)
			return nil
		})
		return plain, ok, err
	}
	want := func(t *testing.T, n store.SecretName, plain string, there bool) {
		t.Helper()
		if got, ok, err := get(v, n); string(got) != plain || ok != there || err != nil {
			t.Errorf("%q %v %v", got, ok, err)
		}
	}
	t.Run("put, put again, delete", func(t *testing.T) {
		want(t, name, "", false)
		for _, plain := range []string{"one", "two", ""} {
			if err := put(name, plain); err != nil {
				t.Fatal(err)
			}
			want(t, name, plain, true)
		}
		for _, had := range []bool{true, false} {
			if err := f.mutate(func(c *store.Change) error {
				removed, err := v.Delete(c, name)
				if removed != had {
					t.Error(removed)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		}
		want(t, name, "", false)
		var ops []string
		for _, e := range f.journal(t) {
			ops = append(ops, e.Operation+" "+e.Label)
		}
		if s := strings.Join(ops, ","); s != "delete connector/7/secret,update connector/7/secret,update connector/7/secret,create connector/7/secret" {
			t.Error(s)
		}
	})
	t.Run("the same name in another tenant or scope is another secret", func(t *testing.T) {
		names := []store.SecretName{name, {TenantID: there, Scope: store.ScopeTenant, Name: name.Name}, {Scope: store.ScopeInstance, Name: name.Name}}
		for i, n := range names {
			if err := put(n, string(rune('a'+i))); err != nil {
				t.Fatal(err)
			}
		}
		for i, n := range names {
			want(t, n, string(rune('a'+i)), true)
		}
	})
	t.Run("names that are refused", func(t *testing.T) {
		for _, n := range []store.SecretName{{}, {TenantID: here, Scope: store.ScopeInstance, Name: "x"}, {Scope: store.ScopeTenant, Name: "x"},
			{TenantID: here, Scope: "other", Name: "x"}, {TenantID: here, Scope: store.ScopeTenant, Name: strings.Repeat("x", 257)}} {
			if err := put(n, "x"); err == nil {
				t.Errorf("%+v", n)
			}
		}
	})
	t.Run("the value is not in the file's rows", func(t *testing.T) {
		if err := put(name, "plain text that must not be seen"); err != nil {
			t.Fatal(err)
		}
		f.read(t, func(tx store.Tx) error {
			var ciphertext, wrapped, nonce []byte
			err := tx.QueryRow(`SELECT ciphertext, wrapped_key, nonce FROM secrets WHERE tenant_id = ? AND scope = 'tenant'`, here).
				Scan(&ciphertext, &wrapped, &nonce)
			if bytes.Contains(ciphertext, []byte("plain")) || len(wrapped) != 60 || len(nonce) != 12 {
				t.Error(len(ciphertext), len(wrapped), len(nonce))
			}
			return err
		})
	})
	t.Run("a row moved to another's key does not open", func(t *testing.T) {
		f.write(t, func(tx store.Tx) error {
			_, err := tx.Exec(`UPDATE secrets SET tenant_id = ? WHERE tenant_id = ?`, 99, there)
			return err
		})
		if _, _, err := get(v, store.SecretName{TenantID: 99, Scope: store.ScopeTenant, Name: name.Name}); !errors.Is(err, store.ErrSealed) {
			t.Error(err)
		}
	})
	t.Run("another root key opens nothing, and is refused from the start", func(t *testing.T) {
		if _, _, err := get(store.NewVault(other), name); !errors.Is(err, store.ErrSealed) {
			t.Error(err)
		}
		f.write(t, func(tx store.Tx) error { return errors.Join(v.Claim(tx), v.Claim(tx)) })
		err := f.Write(f.ctx, store.Durable, store.NewVault(other).Claim)
		if m, ok := errors.AsType[*rootkey.MissingError](err); !ok || m.ID != key.ID() || m.Found != other.ID() {
			t.Error(err)
		}
		f.read(t, func(tx store.Tx) error {
			id, err := store.RootKeyID(tx)
			if id != v.KeyID() {
				t.Error(id)
			}
			return err
		})
	})
}

func testMeta(t *testing.T, f *fixture) {
	f.write(t, func(tx store.Tx) error {
		if b, err := store.Meta(tx, "k"); b != nil || err != nil {
			t.Error(b, err)
		}
		if _, ok, err := store.MetaInt(tx, "k"); ok || err != nil {
			t.Error(ok, err)
		}
		if err := errors.Join(store.SetMeta(tx, "k", []byte{}), store.SetMeta(tx, "k", []byte("v")), store.SetMetaInt(tx, "n", 1<<60)); err != nil {
			return err
		}
		b, err1 := store.Meta(tx, "k")
		n, ok, err2 := store.MetaInt(tx, "n")
		_, isInt, err3 := store.MetaInt(tx, "k")
		if string(b) != "v" || n != 1<<60 || !ok || isInt {
			t.Error(b, n, ok, isInt)
		}
		err4 := store.SetMeta(tx, "k", nil)
		if b, err := store.Meta(tx, "k"); b != nil || err != nil {
			t.Error(b, err)
		}
		return errors.Join(err1, err2, err3, err4)
	})
	id := [16]byte{1, 15: 9}
	f.write(t, func(tx store.Tx) error {
		if _, ok, err := store.PairID(tx); ok || err != nil {
			t.Error(ok, err)
		}
		return store.SetPairID(tx, id)
	})
	f.read(t, func(tx store.Tx) error {
		got, ok, err := store.PairID(tx)
		if got != id || !ok {
			t.Error(got, ok)
		}
		return err
	})
	f.write(t, func(tx store.Tx) error { return store.SetMeta(tx, "pair_id", []byte("short")) })
	f.read(t, func(tx store.Tx) error {
		if _, _, err := store.PairID(tx); !errors.Is(err, store.ErrDamaged) {
			t.Error(err)
		}
		return nil
	})
}

func testAudit(t *testing.T, f *fixture) {
	if err := f.mutate(func(c *store.Change) error {
		for i := range 3 {
			if err := c.Audit(store.AuditEvent{TenantID: here, Category: store.AuditAuth, Operation: store.AuditLogin, Occurred: model.Micros(i + 1), Label: "l"}); err != nil {
				return err
			}
		}
		c.By = nil
		return c.Audit(store.AuditEvent{TenantID: there, Category: store.AuditMutation, Operation: store.AuditCreate, Table: "st", Key: "1", Rows: 1})
	}); err != nil {
		t.Fatal(err)
	}
	list := func(p store.Page, filter store.AuditFilter) (es []store.AuditEvent, total int64) {
		t.Helper()
		f.read(t, func(tx store.Tx) (err error) {
			es, total, err = store.ListAudit(tx, p, filter)
			return err
		})
		return es, total
	}
	if es, total := list(store.Page{}, store.AuditFilter{}); total != 4 || es[0].Actor != "system" || es[0].Occurred < 1_000 || es[3].Occurred != 1 {
		t.Error(total, es)
	}
	if es, total := list(store.Page{Number: 2, Size: 2}, store.AuditFilter{TenantID: new(here)}); total != 3 || len(es) != 1 || es[0].Occurred != 1 || es[0].Actor != "ann" || es[0].Label != "l" || es[0].Table != "" {
		t.Error(total, es)
	}
	for _, c := range []struct {
		filter store.AuditFilter
		total  int64
	}{
		{store.AuditFilter{TenantID: new(int64(77))}, 0},
		{store.AuditFilter{Start: new(model.Micros(2)), End: new(model.Micros(3))}, 2},
		{store.AuditFilter{Category: store.AuditAuth, Actor: "ann", Operation: store.AuditLogin}, 3},
		{store.AuditFilter{Actor: "bob"}, 0},
		{store.AuditFilter{Table: "st", Key: "1"}, 1},
	} {
		if _, total := list(store.Page{}, c.filter); total != c.total {
			t.Errorf("%+v: %d", c.filter, total)
		}
	}
}
