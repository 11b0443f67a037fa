package entity_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"weir/model"
	"weir/store"
	"weir/store/entity"
	"weir/store/sqlite"
)

// Shelf and Book are two kinds: a book stands on a shelf.
type Shelf struct {
	store.Row
	Token string `store:"token,token" gql:"token"`
}

type Book struct {
	store.Row
	Token   string  `store:"token,token" gql:"token"`
	ShelfID int64   `store:"shelf_id,required,ref=shelves,filter=shelf" gql:"shelfToken"`
	Title   *string `store:"title,clear,max=128" gql:"title"`
	Pages   *int64  `store:"pages,clear,min=1" gql:"pages"`
}

func shelves(base entity.Base) *entity.Kind[Shelf] {
	return entity.New(base, entity.Desc[Shelf]{
		Kind: "shelf", Type: "Shelf", Plural: "shelves", Area: "library", Table: "shelves",
		Read: entity.Needs(model.DeviceRead), Write: entity.Needs(model.DeviceWrite),
	})
}

func books(base entity.Base) *entity.Kind[Book] {
	return entity.New(base, entity.Desc[Book]{
		Kind: "book", Type: "Book", Plural: "books", Area: "library", Table: "books",
		Read: entity.Needs(model.DeviceRead), Write: entity.Needs(model.DeviceWrite),
		Check: func(_ store.Tx, b *Book, changed store.Changed) error {
			if changed.Has("pages") && b.Pages != nil && b.Title == nil {
				return model.Invalid("pages", "a book without a title has none")
			}
			return nil
		},
	})
}

const libraryTables = `CREATE TABLE shelves (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant_id INTEGER NOT NULL, created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL, token TEXT NOT NULL, UNIQUE (tenant_id, token)) STRICT;
CREATE TABLE books (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant_id INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
	token TEXT NOT NULL, shelf_id INTEGER NOT NULL REFERENCES shelves (id), title TEXT, pages INTEGER, UNIQUE (tenant_id, token)) STRICT`

func ExampleNew() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "library")
	defer os.RemoveAll(dir)
	db, err := sqlite.Open(ctx, filepath.Join(dir, "weir.db"), sqlite.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	migrate(ctx, db)

	base := entity.Base{Store: db, Writer: store.Direct{Store: db}}
	shelves, books := shelves(base), books(base)
	entity.NewCatalog(shelves, books)

	librarian := model.Service("librarian", "town", 1, model.DeviceRead, model.DeviceWrite)
	reader := model.Service("reader", "town", 1, model.DeviceRead)

	_, _ = shelves.Create(ctx, librarian, store.Patch{"token": "a"})
	_, err = books.Create(ctx, librarian, store.Patch{"token": "weirs", "shelfToken": "b"})
	fmt.Println(err)
	book, _ := books.Create(ctx, librarian, store.Patch{"token": "weirs", "shelfToken": "a", "title": "On Weirs"})
	book, _ = books.Update(ctx, librarian, "weirs", store.Patch{"pages": int64(200)}) // absent keeps
	fmt.Println(*book.Title, *book.Pages)
	book, _ = books.Update(ctx, librarian, "weirs", store.Patch{"pages": nil}) // null clears
	fmt.Println(*book.Title, book.Pages == nil)
	_, err = books.Delete(ctx, reader, "weirs")
	fmt.Println(err)
	_, err = shelves.Delete(ctx, librarian, "a")
	fmt.Println(err)
	onShelf, _ := books.Info().Criteria(ctx, reader, map[string]any{"shelf": "a"})
	found, total, _ := books.List(ctx, reader, store.Page{}, onShelf...)
	fmt.Println(found[0].Token, total)
	// Output:
	// shelfToken: "b" does not exist
	// On Weirs 200
	// On Weirs true
	// forbidden: device:write is required
	// shelf "a" is in use by a book
	// weirs 1
}
