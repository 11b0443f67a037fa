package entity_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// migrate makes the tables of the example.
func migrate(ctx context.Context, db store.Store) {
	err := db.Write(ctx, store.Durable, func(tx store.Tx) (err error) {
		for statement := range strings.SplitSeq(libraryTables, ";") {
			_, e := tx.Exec(statement)
			err = errors.Join(err, e)
		}
		return err
	})
	if err != nil {
		panic(err)
	}
}

// A description that contradicts itself is a mistake of the program, found when the kind is made.
func TestMistakesInADescriptionPanic(t *testing.T) {
	t.Parallel()
	base := entity.Base{}
	needs := entity.Needs(model.DeviceRead)
	for want, mistake := range map[string]func(){
		"needs a type, a plural and authorities":      func() { entity.New(base, entity.Desc[Shelf]{Kind: "shelf", Table: "shelves"}) },
		"is described twice":                          func() { entity.NewCatalog(shelves(base), shelves(base)) },
		"book comes before shelf, which it refers to": func() { entity.NewCatalog(books(base), shelves(base)) },
		"a parent is a required reference": func() {
			type leaf struct {
				store.Row
				Token string `store:"token,token"`
				Tree  *int64 `store:"tree_id,clear,ref=trees,parent"`
			}
			entity.New(base, entity.Desc[leaf]{Kind: "leaf", Type: "Leaf", Plural: "leaves", Table: "leaves", Read: needs, Write: needs})
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, want) {
					t.Errorf("got %s", p)
				}
			}()
			mistake()
		})
	}
}

// Linking the same kinds again, as a catalog over several packages does, changes nothing.
func TestACatalogOverCatalogsLinksOnce(t *testing.T) {
	t.Parallel()
	base := entity.Base{}
	s, b := shelves(base), books(base)
	entity.NewCatalog(s, b)
	c := entity.NewCatalog(s, b)
	if c.Of("books").Info() != b.Info() || c.Of("magazines") != nil || len(c.Area("library")) != 2 || len(c.Area("garden")) != 0 {
		t.Errorf("%v", c.All())
	}
	if parts := c.Of("shelves").Parts(); len(parts) != 0 {
		t.Errorf("books are parts of shelves: %v", parts)
	}
	type tree struct {
		store.Row
		Token string `store:"token,token"`
	}
	type leaf struct {
		store.Row
		Token string `store:"token,token"`
		Tree  int64  `store:"tree_id,required,ref=trees,parent"`
	}
	needs := entity.Needs(model.DeviceRead)
	trees := entity.New(base, entity.Desc[tree]{Kind: "tree", Type: "Tree", Plural: "trees", Table: "trees", Read: needs, Write: needs})
	leaves := entity.New(base, entity.Desc[leaf]{Kind: "leaf", Type: "Leaf", Plural: "leaves", Table: "leaves", Read: needs, Write: needs})
	entity.NewCatalog(trees, leaves)
	if parts := entity.NewCatalog(trees, leaves).Of("trees").Parts(); len(parts) != 1 || parts[0].Info() != leaves.Info() {
		t.Errorf("the parts of trees are %v", parts)
	}
}
