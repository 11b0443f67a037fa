package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"io"

	"weir/store"
)

// Copy calls fn in one consistent snapshot. write writes the database as of that snapshot as a file of so many bytes, page
// by page, so that no second copy is made and writes go on meanwhile; only the write-ahead log grows as long as fn runs.
func (db *DB) Copy(ctx context.Context, fn func(tx store.Tx, bytes int64, write func(io.Writer) error) error) error {
	return db.read(ctx, store.Bulk, func(tx store.Tx) error { return copyPages(tx, fn) })
}

// Copy is DB.Copy of a database that is not open.
func (o *Inspector) Copy(ctx context.Context, fn func(tx store.Tx, bytes int64, write func(io.Writer) error) error) error {
	return o.db.Copy(ctx, fn)
}

func copyPages(tx store.Tx, fn func(tx store.Tx, bytes int64, write func(io.Writer) error) error) error {
	var pages, size int64
	if err := tx.QueryRow(`PRAGMA page_size`).Scan(&size); err != nil {
		return err
	}
	if err := tx.QueryRow(`PRAGMA page_count`).Scan(&pages); err != nil {
		return err
	}
	return fn(tx, pages*size, func(w io.Writer) error { return writePages(tx, w, pages) })
}

func writePages(tx store.Tx, w io.Writer, pages int64) error {
	rows, err := tx.Query(`SELECT pgno, data FROM sqlite_dbpage ORDER BY pgno`)
	if err != nil {
		return err
	}
	defer rows.Close()
	written := int64(0)
	for rows.Next() {
		if err := tx.Context().Err(); err != nil {
			return err
		}
		var number int64
		var page sql.RawBytes
		if err := rows.Scan(&number, &page); err != nil {
			return err
		}
		if written++; number != written {
			return fmt.Errorf("%w: page %d comes after %d", store.ErrDamaged, number, written-1)
		}
		if _, err := w.Write(page); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if written != pages {
		return fmt.Errorf("%w: %d pages of %d", store.ErrDamaged, written, pages)
	}
	return nil
}
