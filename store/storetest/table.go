package storetest

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
)

type shelf struct {
	store.Row
	Token string  `store:"token,token"`
	Name  *string `store:"name,clear,max=128"`
}

type house struct {
	store.Row
	Token string `store:"token,token"`
	Color string `store:"color,clear,max=16"`
}

type book struct {
	store.Row
	Token    string        `store:"token,token"`
	Name     *string       `store:"name,clear,max=8" gql:"title"`
	Remark   string        `store:"remark,clear,emptyclears"`
	Metadata *string       `store:"metadata,clear,json,max=32"`
	ShelfID  int64         `store:"shelf_id,required,ref=st_shelves" gql:"shelfToken"`
	NextID   *int64        `store:"next_id,clear,emptyclears,ref=st_books" gql:"nextToken"`
	HouseID  *int64        `store:"house_id,clear,ref=st_houses,shared" gql:"houseToken"`
	Enabled  bool          `store:"enabled,required"`
	Tags     []string      `store:"tags,clear,list,max=3"`
	Weight   *float64      `store:"weight,clear,min=0"`
	Pages    *int          `store:"pages,clear,min=1,max=5000"`
	Due      *model.Micros `store:"due_at,clear,emptyclears"`
	ISBN     *string       `store:"isbn,clear,unique" gql:"isbn"`
	Place    int64         `store:"place,required"`
	State    string        `store:"state,immutable,required,oneof=NEW|USED"`
	Secret   *string       `store:"secret,clear,secret"`
	Counter  int64         `store:"counter"`
}

var (
	shelves = store.NewTable[shelf](store.Desc[shelf]{Kind: "shelf", Name: "st_shelves",
		Referrers: []store.Referrer{{Kind: "book", Table: "st_books", Column: "shelf_id"}}})
	houses = store.NewTable[house](store.Desc[house]{Kind: "house", Name: "st_houses", Instance: true})
	books  = store.NewTable[book](store.Desc[book]{Kind: "book", Name: "st_books", Check: checkBook})
)

// checkBook refuses a used book of 13 pages, and a change that would make one of a stored book.
func checkBook(_ store.Tx, b *book, changed store.Changed) error {
	if b.Pages != nil && *b.Pages == 13 && (changed.Has("pages") || changed.Has("name")) {
		return model.Invalid("pages", "13 is refused")
	}
	return nil
}

const (
	here  = int64(1) // tenants
	there = int64(2)
)

func newBook(token string, place int64) store.Patch {
	return store.Patch{"token": token, "shelfToken": "a", "enabled": true, "place": place, "state": "NEW"}
}

func with(p store.Patch, more store.Patch) store.Patch {
	p = maps.Clone(p)
	maps.Copy(p, more)
	return p
}

// library is a shelf a and b here, a shelf a there, and a book x on the first.
func (f *fixture) library(t *testing.T) {
	t.Helper()
	if err := f.mutate(func(c *store.Change) error {
		_, err := houses.Create(c, 0, store.Patch{"token": "press"})
		for _, s := range []struct {
			tenant int64
			token  string
		}{{here, "a"}, {here, "b"}, {there, "a"}} {
			_, e := shelves.Create(c, s.tenant, store.Patch{"token": s.token})
			err = errors.Join(err, e)
		}
		_, e := books.Create(c, here, with(newBook("x", 1), store.Patch{"title": "old", "metadata": `{"a":1}`, "remark": "r",
			"nextToken": nil, "houseToken": "press", "tags": []any{"t1", "t2"}, "weight": 1.5, "pages": int64(100),
			"due": "2026-05-01T10:00:00.123456Z", "isbn": "i1", "secret": "s"}))
		return errors.Join(err, e)
	}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) book(t *testing.T, tenant int64, token string) (b *book) {
	t.Helper()
	f.read(t, func(tx store.Tx) (err error) {
		b, err = books.Get(tx, tenant, token)
		return err
	})
	return b
}

func (f *fixture) journal(t *testing.T) (es []store.AuditEvent) {
	t.Helper()
	f.read(t, func(tx store.Tx) (err error) {
		es, _, err = store.ListAudit(tx, store.Page{Size: 1000}, store.AuditFilter{})
		return err
	})
	return es
}

func refusal(t *testing.T, err error, code model.Code, text string) {
	t.Helper()
	if model.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("got %q %v, not %s with %q", model.CodeOf(err), err, code, text)
	}
}

func testTable(t *testing.T, f *fixture) {
	f.library(t)
	before := f.book(t, here, "x")
	t.Run("what was made is read", func(t *testing.T) {
		due := model.Micros(1777629600123456)
		name, meta, isbn, secret, weight, pages := "old", `{"a":1}`, "i1", "s", 1.5, 100
		want := &book{Row: before.Row, Token: "x", Name: &name, Remark: "r", Metadata: &meta, ShelfID: before.ShelfID,
			HouseID: before.HouseID, Enabled: true, Tags: []string{"t1", "t2"}, Weight: &weight, Pages: &pages, Due: &due,
			ISBN: &isbn, Place: 1, State: "NEW", Secret: &secret}
		if !reflect.DeepEqual(before, want) {
			t.Errorf("%+v", before)
		}
		if before.ID == 0 || before.TenantID != here || before.CreatedAt != before.UpdatedAt || before.HouseID == nil || before.ShelfID == 0 {
			t.Errorf("%+v", before)
		}
	})

	// Each refusal is checked to leave book and journal as they were.
	journal := f.journal(t)
	long := strings.Repeat("é", 9)
	for _, c := range []struct {
		name  string
		patch store.Patch
		code  model.Code
		text  string
	}{
		{"unknown field", store.Patch{"colour": "x"}, model.CodeInvalidInput, "colour: "},
		{"a column that is no field", store.Patch{"counter": int64(1)}, model.CodeInvalidInput, "counter: "},
		{"the token", store.Patch{"token": "y"}, model.CodeInvalidInput, "token: "},
		{"an immutable field", store.Patch{"state": "USED"}, model.CodeInvalidInput, "state: "},
		{"null on a required reference", store.Patch{"shelfToken": nil}, model.CodeInvalidInput, "shelfToken: "},
		{"null on a required boolean", store.Patch{"enabled": nil}, model.CodeInvalidInput, "enabled: "},
		{"an unknown reference", store.Patch{"shelfToken": "nope", "title": "new"}, model.CodeInvalidInput, "shelfToken: "},
		{"an empty required reference", store.Patch{"shelfToken": ""}, model.CodeInvalidInput, "shelfToken: "},
		{"a reference of another tenant", store.Patch{"nextToken": "other"}, model.CodeInvalidInput, "nextToken: "},
		{"a text that is too long", store.Patch{"title": long}, model.CodeInvalidInput, "title: "},
		{"a text with a zero byte", store.Patch{"title": "a\x00"}, model.CodeInvalidInput, "title: "},
		{"a document that is none", store.Patch{"metadata": "{", "title": "new"}, model.CodeInvalidInput, "metadata: "},
		{"the document null", store.Patch{"metadata": " null "}, model.CodeInvalidInput, "metadata: "},
		{"a document that is too large", store.Patch{"metadata": `"` + strings.Repeat("x", 40) + `"`}, model.CodeLimitExceeded, "metadata: "},
		{"a list that is too long", store.Patch{"tags": []any{"1", "2", "3", "4"}}, model.CodeInvalidInput, "tags: "},
		{"a list of numbers", store.Patch{"tags": []any{int64(1)}}, model.CodeInvalidInput, "tags: "},
		{"a number below", store.Patch{"pages": int64(0)}, model.CodeInvalidInput, "pages: "},
		{"a number above", store.Patch{"pages": int64(5001)}, model.CodeInvalidInput, "pages: "},
		{"a negative weight", store.Patch{"weight": -0.5}, model.CodeInvalidInput, "weight: "},
		{"a text for a number", store.Patch{"pages": "1"}, model.CodeInvalidInput, "pages: "},
		{"a number for a text", store.Patch{"title": int64(1)}, model.CodeInvalidInput, "title: "},
		{"a time that is none", store.Patch{"due": "tomorrow"}, model.CodeInvalidInput, "due: "},
		{"what the check refuses", store.Patch{"pages": int64(13), "title": "new"}, model.CodeInvalidInput, "pages: "},
	} {
		t.Run("refused: "+c.name, func(t *testing.T) {
			err := f.mutate(func(c2 *store.Change) error {
				_, err := books.Update(c2, here, "x", c.patch)
				return err
			})
			refusal(t, err, c.code, c.text)
			if after := f.book(t, here, "x"); !reflect.DeepEqual(before, after) {
				t.Errorf("it was written: %+v", after)
			}
			if es := f.journal(t); len(es) != len(journal) {
				t.Errorf("the journal has %+v", es[0])
			}
		})
	}
	t.Run("an update of nothing writes nothing", func(t *testing.T) {
		for _, p := range []store.Patch{nil, {}} {
			if err := f.mutate(func(c *store.Change) error {
				b, err := books.Update(c, here, "x", p)
				if !reflect.DeepEqual(b, before) {
					t.Errorf("%+v", b)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		}
		if !reflect.DeepEqual(f.book(t, here, "x"), before) || len(f.journal(t)) != len(journal) {
			t.Error("it was written")
		}
	})
	t.Run("an update of what is not there", func(t *testing.T) {
		for _, tenant := range []int64{here, there} {
			token := "x"
			if tenant == here {
				token = "y"
			}
			refusal(t, f.mutate(func(c *store.Change) error {
				_, err := books.Update(c, tenant, token, store.Patch{})
				return err
			}), model.CodeNotFound, "book")
		}
	})
	t.Run("null clears, a value sets, what is absent stays", func(t *testing.T) {
		update := func(p store.Patch) *book {
			t.Helper()
			if err := f.mutate(func(c *store.Change) error {
				b, err := books.Update(c, here, "x", p)
				if err == nil && b.UpdatedAt <= before.UpdatedAt {
					t.Error("updatedAt did not move")
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return f.book(t, here, "x")
		}
		b := update(store.Patch{"title": nil, "remark": nil, "metadata": nil, "houseToken": nil, "tags": nil, "weight": nil,
			"pages": nil, "due": "", "isbn": nil, "secret": nil})
		want := &book{Row: before.Row, Token: "x", ShelfID: before.ShelfID, Enabled: true, Place: 1, State: "NEW", Tags: []string{}}
		want.UpdatedAt = b.UpdatedAt
		if !reflect.DeepEqual(b, want) {
			t.Errorf("cleared: %+v", b)
		}
		if es := f.journal(t); len(es) != len(journal)+1 || es[0].Operation != store.AuditUpdate || es[0].Label != "x" {
			t.Errorf("%+v", es[0])
		}
		b = update(store.Patch{"title": "12345678", "metadata": map[string]any{"b": int64(2)}, "shelfToken": "b", "nextToken": "x",
			"enabled": false, "tags": []string{"t"}, "weight": int64(2), "remark": "", "isbn": ""})
		switch {
		case *b.Name != "12345678", *b.Metadata != `{"b":2}`, b.ShelfID == before.ShelfID, *b.NextID != b.ID, b.Enabled,
			!slices.Equal(b.Tags, []string{"t"}), *b.Weight != 2, b.Remark != "", *b.ISBN != "":
			t.Errorf("set: %+v", b)
		}
		if b = update(store.Patch{"nextToken": ""}); b.NextID != nil {
			t.Error("an empty token did not clear the reference")
		}
		before = f.book(t, here, "x")
	})
	t.Run("updatedAt moves on although the clock goes back", func(t *testing.T) {
		f.mu.Lock()
		kept := f.clock
		f.clock = f.clock.AddDate(-1, 0, 0)
		f.mu.Unlock()
		if err := f.mutate(func(c *store.Change) error {
			_, err := books.Update(c, here, "x", store.Patch{"place": int64(9)})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if after := f.book(t, here, "x"); after.UpdatedAt != before.UpdatedAt+1 {
			t.Error(before.UpdatedAt, after.UpdatedAt)
		}
		f.mu.Lock()
		f.clock = kept
		f.mu.Unlock()
	})
	t.Run("creates", func(t *testing.T) { f.testCreates(t) })
	t.Run("save", func(t *testing.T) {
		if err := f.mutate(func(c *store.Change) error {
			b, err := books.Get(c, here, "x")
			if err != nil {
				return err
			}
			b.Counter, b.Remark = 7, "not saved"
			return errors.Join(books.Save(c, b), books.Save(c, b, "counter"))
		}); err != nil {
			t.Error(err)
		}
		if b := f.book(t, here, "x"); b.Counter != 7 || b.Remark != "" {
			t.Errorf("%+v", b)
		}
	})
	t.Run("rename", func(t *testing.T) { f.testRename(t) })
	t.Run("delete", func(t *testing.T) { f.testDelete(t) })
	t.Run("the description returns the fields", func(t *testing.T) {
		fs := books.Fields()
		if len(fs) != 17 || fs[0].Name != "token" || !fs[0].Token || fs[1].Name != "title" || fs[1].Column != "name" ||
			fs[16].Name != "" || !fs[15].Secret || fs[4].Ref != "st_shelves" || !fs[4].Required {
			t.Errorf("%+v", fs)
		}
	})
}

func (f *fixture) testCreates(t *testing.T) {
	create := func(tenant int64, p store.Patch) error {
		return f.mutate(func(c *store.Change) error {
			_, err := books.Create(c, tenant, p)
			return err
		})
	}
	without := func(name string) store.Patch {
		p := newBook("new", 2)
		delete(p, name)
		return p
	}
	n := len(f.journal(t))
	for _, c := range []struct {
		name  string
		patch store.Patch
		code  model.Code
		text  string
	}{
		{"no token", without("token"), model.CodeInvalidInput, "token: "},
		{"a token that is none", newBook("a.b", 2), model.CodeInvalidInput, "token: "},
		{"no required value", without("place"), model.CodeInvalidInput, "place: "},
		{"a required value of null", with(newBook("new", 2), store.Patch{"place": nil}), model.CodeInvalidInput, "place: "},
		{"an unknown reference", with(newBook("new", 2), store.Patch{"shelfToken": "nope"}), model.CodeInvalidInput, "shelfToken: "},
		{"a value that is not allowed", with(newBook("new", 2), store.Patch{"state": "OLD"}), model.CodeInvalidInput, "state: "},
		{"a token in use", newBook("x", 2), model.CodeConflict, `unique, "x"`},
		{"an isbn in use", with(newBook("new", 2), store.Patch{"isbn": ""}), model.CodeConflict, "isbn"},
		{"a place in use", newBook("new", 3), model.CodeConflict, "place"},
	} {
		if c.name == "a place in use" {
			if err := create(here, with(newBook("third", 3), nil)); err != nil {
				t.Fatal(err)
			}
			n++
		}
		t.Run("refused: "+c.name, func(t *testing.T) {
			refusal(t, create(here, c.patch), c.code, c.text)
			if es := f.journal(t); len(es) != n {
				t.Errorf("the journal has %+v", es[0])
			}
			if f.book(t, here, "new") != nil {
				t.Error("it was written")
			}
		})
	}
	t.Run("the same token in another tenant", func(t *testing.T) {
		if err := create(there, newBook("x", 1)); err != nil {
			t.Fatal(err)
		}
		if a, b := f.book(t, here, "x"), f.book(t, there, "x"); a.ID == b.ID || a.ShelfID == b.ShelfID {
			t.Error("they share what they must not")
		}
		f.read(t, func(tx store.Tx) error {
			b, err := books.GetByID(tx, there, f.book(t, here, "x").ID)
			if b != nil {
				t.Error("a row id opens another tenant's row")
			}
			return err
		})
	})
	t.Run("a kind of the instance", func(t *testing.T) {
		if err := f.mutate(func(c *store.Change) error {
			h, err := houses.Update(c, 0, "press", store.Patch{"color": "red"})
			if err == nil && (h.Color != "red" || h.TenantID != 0) {
				t.Errorf("%+v", h)
			}
			_, e := houses.Update(c, 0, "press", store.Patch{"color": nil})
			return errors.Join(err, e)
		}); err != nil {
			t.Error(err)
		}
	})
}

func (f *fixture) testRename(t *testing.T) {
	rename := func(token, to string) (b *book, err error) {
		err = f.mutate(func(c *store.Change) (err error) {
			b, err = books.Rename(c, here, token, to)
			return err
		})
		return b, err
	}
	old := f.book(t, here, "x")
	for _, to := range []string{"", " ", "a.b"} {
		_, err := rename("x", to)
		refusal(t, err, model.CodeInvalidInput, "newToken: ")
	}
	_, err := rename("nope", "y")
	refusal(t, err, model.CodeNotFound, "nope")
	_, err = rename("x", "third")
	refusal(t, err, model.CodeConflict, "third")
	if b, err := rename("x", "x"); err != nil || !reflect.DeepEqual(b, old) {
		t.Error(b, err)
	}
	if b, err := rename("x", "y"); err != nil || b.Token != "y" || b.ID != old.ID || b.UpdatedAt <= old.UpdatedAt {
		t.Error(b, err)
	}
	if f.book(t, here, "x") != nil || f.book(t, here, "y") == nil {
		t.Error("the old token still finds it")
	}
}

func (f *fixture) testDelete(t *testing.T) {
	remove := func(tenant int64, token string) (removed bool, err error) {
		err = f.mutate(func(c *store.Change) (err error) {
			removed, err = shelves.Delete(c, tenant, token)
			return err
		})
		return removed, err
	}
	_, err := remove(there, "a")
	refusal(t, err, model.CodeInUse, "book")
	if removed, err := remove(there, "nope"); removed || err != nil {
		t.Error(removed, err)
	}
	if err := f.mutate(func(c *store.Change) error {
		_, err := books.Delete(c, there, "x")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if removed, err := remove(there, "a"); !removed || err != nil {
		t.Error(removed, err)
	}
	if removed, err := remove(there, "a"); removed || err != nil {
		t.Error(removed, err)
	}
	if es := f.journal(t); es[0].Operation != store.AuditDelete || es[0].Table != "st_shelves" || es[0].TenantID != there || es[0].Rows != 1 {
		t.Errorf("%+v", es[0])
	}
}

func testLists(t *testing.T, f *fixture) {
	f.library(t)
	const more = 249
	if err := f.mutate(func(c *store.Change) error {
		for i := range more { // of one instant: the token decides
			s := "a"
			if i%3 == 0 {
				s = "b"
			}
			if _, err := books.Create(c, here, with(newBook("n"+string(rune('a'+i/26))+string(rune('a'+i%26)), int64(i+10)),
				store.Patch{"shelfToken": s, "enabled": i%2 == 0})); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	list := func(p store.Page, filters ...store.Filter) (tokens []string, total int64) {
		t.Helper()
		f.read(t, func(tx store.Tx) error {
			rows, n, err := books.List(tx, here, p, filters...)
			for _, b := range rows {
				tokens = append(tokens, b.Token)
			}
			total = n
			return err
		})
		return tokens, total
	}
	t.Run("newest first, then by token", func(t *testing.T) {
		tokens, total := list(store.Page{Number: 1, Size: 1000})
		if total != more+1 || len(tokens) != more+1 || tokens[more] != "x" || !slices.IsSorted(tokens[:more]) {
			t.Error(total, tokens)
		}
	})
	t.Run("pages", func(t *testing.T) {
		for _, c := range []struct{ number, size, count int }{
			{1, 0, 100}, {0, -1, 100}, {3, 100, 50}, {4, 100, 0}, {1, 5000, 250}, {-7, 10, 10}, {25, 10, 10}, {26, 10, 0},
			{2147483647, 1000, 0},
		} {
			if tokens, total := list(store.Page{Number: c.number, Size: c.size}); len(tokens) != c.count || total != more+1 {
				t.Errorf("%+v: %d of %d", c, len(tokens), total)
			}
		}
		if s, e := (store.Page{Number: 3, Size: 100}).Span(50); s != 201 || e != 250 {
			t.Error(s, e)
		}
		if s, e := (store.Page{Number: 3}).Span(0); s != 0 || e != 0 {
			t.Error(s, e)
		}
	})
	t.Run("filters join by AND", func(t *testing.T) {
		_, all := list(store.Page{}, store.RefersTo("shelf_id", "st_shelves", "b"))
		_, some := list(store.Page{}, store.RefersTo("shelf_id", "st_shelves", "b"), store.Eq("enabled", true))
		_, none := list(store.Page{}, store.RefersTo("shelf_id", "st_shelves", "nope"))
		if all != 83 || some != 42 || none != 0 {
			t.Error(all, some, none)
		}
		for number := range 4 {
			page := store.Page{Number: number + 1, Size: 30}
			listed, n := list(page, store.RefersTo("shelf_id", "st_shelves", "b"))
			found, m := list(page, store.RefersTo("shelf_id", "st_shelves", "b").Narrow())
			if n != m || !slices.Equal(listed, found) {
				t.Errorf("page %d of a narrow filter: %d %v, otherwise %d %v", number+1, m, found, n, listed)
			}
		}
		if _, n := list(store.Page{}, store.Null("isbn"), store.NotNull("shelf_id"), store.Ne("place", 10), store.NotBelow("place", 10), store.NotAbove("place", 12)); n != 2 {
			t.Error(n)
		}
		f.read(t, func(tx store.Tx) error {
			if _, _, err := books.List(tx, here, store.Page{}, store.Eq("nope", 1)); err == nil {
				t.Error("a filter on no column")
			}
			return nil
		})
	})
	t.Run("by many ids and tokens, unknown ones left out", func(t *testing.T) {
		f.read(t, func(tx store.Tx) error {
			all, err := books.Select(tx, here, "id")
			if err != nil {
				return err
			}
			var ids []int64
			tokens := []string{"nope"}
			for _, b := range all {
				ids = append(ids, b.ID, b.ID+100_000)
				tokens = append(tokens, b.Token)
			}
			byID, err1 := books.ByID(tx, here, ids)
			byToken, err2 := books.ByToken(tx, here, tokens)
			byShelf, err3 := books.By(tx, here, "shelf_id", all[0].ShelfID)
			none, err4 := books.ByID(tx, here, nil)
			foreign, err5 := books.ByID(tx, there, ids)
			count, err6 := books.Count(tx, here, store.Eq("token", "x"))
			if len(byID) != more+1 || len(byToken) != more+1 || len(byShelf) != more+1-83 || len(none) != 0 || len(foreign) != 0 || count != 1 {
				t.Error(len(byID), len(byToken), len(byShelf), len(none), len(foreign), count)
			}
			return errors.Join(err1, err2, err3, err4, err5, err6)
		})
	})
}
