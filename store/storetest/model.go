package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/model"
	"weir/store"
)

// plainBook is a book of the plain model.
type plainBook struct {
	tenant  int64
	token   string
	name    *string
	shelf   string
	enabled bool
	place   int64
	created int
}

// library is the plain model: what the tables must be equal to.
type library struct {
	books   []*plainBook
	shelves map[int64]map[string]bool
	made    int
}

func (l *library) find(tenant int64, token string) *plainBook {
	for _, b := range l.books {
		if b.tenant == tenant && b.token == token {
			return b
		}
	}
	return nil
}

// taken reports whether another book holds the token, or the place on the shelf.
func (l *library) taken(n *plainBook) bool {
	return slices.ContainsFunc(l.books, func(b *plainBook) bool {
		return b.tenant == n.tenant && b != n && (b.token == n.token || b.shelf == n.shelf && b.place == n.place)
	})
}

func (l *library) create(tenant int64, token, shelf string, place int64) model.Code {
	b := &plainBook{tenant: tenant, token: token, shelf: shelf, enabled: true, place: place, created: l.made}
	switch {
	case !model.ValidToken(token), !l.shelves[tenant][shelf]:
		return model.CodeInvalidInput
	case l.taken(b):
		return model.CodeConflict
	}
	l.made++
	l.books = append(l.books, b)
	return ""
}

func (l *library) update(tenant int64, token string, p store.Patch) model.Code {
	b := l.find(tenant, token)
	if b == nil {
		return model.CodeNotFound
	}
	n := *b
	if v, ok := p["title"]; ok {
		n.name = nil
		if s, ok := v.(string); ok {
			n.name = &s
		}
	}
	if v, ok := p["shelfToken"]; ok {
		s, _ := v.(string)
		if !l.shelves[tenant][s] {
			return model.CodeInvalidInput
		}
		n.shelf = s
	}
	if v, ok := p["enabled"]; ok {
		e, isBool := v.(bool)
		if !isBool {
			return model.CodeInvalidInput
		}
		n.enabled = e
	}
	if v, ok := p["place"]; ok {
		n.place = v.(int64)
	}
	old := *b
	*b = n
	if l.taken(b) {
		*b = old
		return model.CodeConflict
	}
	return ""
}

func (l *library) rename(tenant int64, token, to string) model.Code {
	b := l.find(tenant, token)
	switch {
	case b == nil:
		return model.CodeNotFound
	case token == to:
		return ""
	case !model.ValidToken(to):
		return model.CodeInvalidInput
	case l.find(tenant, to) != nil:
		return model.CodeConflict
	}
	b.token = to
	return ""
}

func (l *library) remove(tenant int64, token string) {
	l.books = slices.DeleteFunc(l.books, func(b *plainBook) bool { return b.tenant == tenant && b.token == token })
}

// list is what a list must show.
func (l *library) list(tenant int64) (all []string) {
	var bs []*plainBook
	for _, b := range l.books {
		if b.tenant == tenant {
			bs = append(bs, b)
		}
	}
	slices.SortFunc(bs, func(a, b *plainBook) int {
		return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(a.token, b.token))
	})
	for _, b := range bs {
		name := "-"
		if b.name != nil {
			name = *b.name
		}
		all = append(all, fmt.Sprint(b.token, b.shelf, name, b.enabled, b.place))
	}
	return all
}

// testModel compares random operations on the tables with the plain model.
func testModel(t *testing.T, f *fixture) {
	rapid.Check(t, func(t *rapid.T) {
		f.reset(t)
		l := &library{shelves: map[int64]map[string]bool{here: {"a": true, "b": true}, there: {"a": true}}}
		tenants := rapid.SampledFrom([]int64{here, there})
		tokens := rapid.SampledFrom([]string{"t1", "t2", "t3", "t4", "bad token"})
		shelf := rapid.SampledFrom([]string{"a", "b", "c"})
		places := rapid.Int64Range(1, 4)
		check := func(what string, err error, want model.Code) {
			if model.CodeOf(err) != want || want == "" && err != nil {
				t.Fatalf("%s: %v, the model says %q", what, err, want)
			}
		}
		for range rapid.IntRange(1, 12).Draw(t, "operations") {
			tenant, token := tenants.Draw(t, "tenant"), tokens.Draw(t, "token")
			switch rapid.SampledFrom([]string{"create", "create", "update", "update", "rename", "delete"}).Draw(t, "operation") {
			case "create":
				s, place := shelf.Draw(t, "shelf"), places.Draw(t, "place")
				want := l.create(tenant, token, s, place)
				check("create", f.mutate(func(c *store.Change) error {
					_, err := books.Create(c, tenant, with(newBook(token, place), store.Patch{"shelfToken": s}))
					return err
				}), want)
			case "update":
				p := drawPatch(t, shelf, places)
				want := l.update(tenant, token, p)
				check("update", f.mutate(func(c *store.Change) error {
					_, err := books.Update(c, tenant, token, p)
					return err
				}), want)
			case "rename":
				to := tokens.Draw(t, "newToken")
				want := l.rename(tenant, token, to)
				check("rename", f.mutate(func(c *store.Change) error {
					_, err := books.Rename(c, tenant, token, to)
					return err
				}), want)
			case "delete":
				had := l.find(tenant, token) != nil
				l.remove(tenant, token)
				check("delete", f.mutate(func(c *store.Change) error {
					removed, err := books.Delete(c, tenant, token)
					if removed != had {
						t.Fatalf("delete says %v", removed)
					}
					return err
				}), "")
			}
			for _, tenant := range []int64{here, there} {
				if got, want := f.listed(t, tenant), l.list(tenant); !slices.Equal(got, want) {
					t.Fatalf("tenant %d has %v, the model %v", tenant, got, want)
				}
			}
		}
	})
}

func drawPatch(t *rapid.T, shelf *rapid.Generator[string], places *rapid.Generator[int64]) store.Patch {
	p := store.Patch{}
	some := rapid.IntRange(0, 3)
	if n := some.Draw(t, "title"); n == 1 {
		p["title"] = nil
	} else if n == 2 {
		p["title"] = rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "name")
	}
	if n := some.Draw(t, "shelfToken"); n == 1 {
		p["shelfToken"] = nil
	} else if n == 2 {
		p["shelfToken"] = shelf.Draw(t, "shelf")
	}
	if n := some.Draw(t, "enabled"); n == 1 {
		p["enabled"] = nil
	} else if n == 2 {
		p["enabled"] = rapid.Bool().Draw(t, "on")
	}
	if rapid.Bool().Draw(t, "moves") {
		p["place"] = places.Draw(t, "place")
	}
	return p
}

// reset empties the tables and makes the shelves.
func (f *fixture) reset(t *rapid.T) {
	if err := f.mutate(func(c *store.Change) error {
		for _, s := range []string{`DELETE FROM st_books`, `DELETE FROM st_shelves`} {
			if _, err := c.Exec(s); err != nil {
				return err
			}
		}
		for _, s := range []shelf{{Row: store.Row{TenantID: here}, Token: "a"}, {Row: store.Row{TenantID: here}, Token: "b"},
			{Row: store.Row{TenantID: there}, Token: "a"}} {
			if err := shelves.Insert(c, &s); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// listed shows a tenant's books in the order of the list.
func (f *fixture) listed(t *rapid.T, tenant int64) (all []string) {
	if err := f.Read(f.ctx, func(tx store.Tx) error {
		names := map[int64]string{}
		ss, err := shelves.Select(tx, tenant, "id")
		if err != nil {
			return err
		}
		for _, s := range ss {
			names[s.ID] = s.Token
		}
		bs, total, err := books.List(tx, tenant, store.Page{})
		if err != nil {
			return err
		}
		if int(total) != len(bs) {
			t.Fatalf("%d of %d rows", len(bs), total)
		}
		for _, b := range bs {
			name := "-"
			if b.Name != nil {
				name = *b.Name
			}
			all = append(all, fmt.Sprint(b.Token, names[b.ShelfID], name, b.Enabled, b.Place))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
