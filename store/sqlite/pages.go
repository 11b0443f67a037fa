package sqlite

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"weir/store"
)

// pages reads and writes the pages of the database as they are in its file, within one transaction. The format is that of
// https://www.sqlite.org/fileformat2.html; the names of its sections stand in the comments.
type pages struct {
	tx     store.Tx
	count  int64
	size   int64 // of a page in bytes
	usable int   // what a page holds of them
	first  []byte

	trunks map[int64]bool   // of the free list; nil before it is asked for
	maps   map[int64][]byte // pages of the pointer map
}

func openPages(tx store.Tx) (*pages, error) {
	p := &pages{tx: tx, maps: map[int64][]byte{}}
	if err := tx.QueryRow(`PRAGMA page_count`).Scan(&p.count); err != nil {
		return nil, err
	}
	first, err := p.read(1)
	if err != nil {
		return nil, err
	}
	p.first, p.size, p.usable = first, int64(len(first)), len(first)-int(first[20])
	return p, nil
}

func (p *pages) read(n int64) (page []byte, err error) {
	err = p.tx.QueryRow(`SELECT data FROM sqlite_dbpage WHERE pgno = ?`, n).Scan(&page)
	if err == nil && p.size > 0 && int64(len(page)) != p.size {
		err = damagedPage(n)
	}
	return page, err
}

func damagedPage(n int64) error { return fmt.Errorf("%w: page %d", store.ErrDamaged, n) }

// clean overwrites with zeros what nothing uses of a page.
func (p *pages) clean(n int64) error {
	if n > p.count {
		return nil
	}
	changed, page, err := p.cleaned(n)
	if err != nil || !changed {
		return err
	}
	_, err = p.tx.Exec(`UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?`, page, n)
	return err
}

// cleaned returns a page with zeros where nothing uses it, and whether that differs from the page.
func (p *pages) cleaned(n int64) (changed bool, clean []byte, err error) {
	kind, parent := byte(pageRoot), int64(0)
	if n > 1 {
		if n == lockByte/p.size+1 || n == p.mapOf(n) {
			return false, nil, nil
		}
		if kind, parent, err = p.pointer(n); err != nil {
			return false, nil, err
		}
	}
	page, err := p.read(n)
	if err != nil {
		return false, nil, err
	}
	clean = make([]byte, len(page))
	switch kind {
	case pageFree:
		trunk, err := p.isTrunk(n)
		if err != nil {
			return false, nil, err
		}
		if trunk { // "The Freelist"
			leaves := int64(binary.BigEndian.Uint32(page[4:]))
			if leaves > p.size/4-2 {
				return false, nil, damagedPage(n)
			}
			copy(clean, page[:8+4*leaves])
		}
	case pageOverflow, pageOverflowMore: // "Cell Payload Overflow Pages"
		used := p.usable
		if binary.BigEndian.Uint32(page) == 0 {
			if used, err = p.tail(n, kind, parent); err != nil {
				return false, nil, err
			}
		}
		copy(clean, page[:used])
	case pageRoot, pageTree:
		cells, err := p.cells(n, page)
		if err != nil {
			return false, nil, err
		}
		for _, c := range cells {
			copy(clean[c.from:], page[c.from:c.to])
		}
	default:
		return false, nil, damagedPage(n)
	}
	return !bytes.Equal(clean, page), clean, nil
}

// "The Lock-Byte Page": the page with the byte 2^30 is never used.
const lockByte = 1 << 30

// "Pointer Map or Ptrmap Pages": kinds of pages.
const (
	pageRoot = 1 + iota
	pageFree
	pageOverflow     // the first of a cell; its parent is the page with that cell
	pageOverflowMore // its parent is the one before it
	pageTree
)

// pointerBytes is the length of an entry of the pointer map.
const pointerBytes = 5

// mapOf is the page of the pointer map that describes a page. The map has a page before each usable/5 pages, from page 2 on.
func (p *pages) mapOf(n int64) int64 {
	each := int64(p.usable)/pointerBytes + 1
	m := (n-2)/each*each + 2
	if m == lockByte/p.size+1 {
		m++
	}
	return m
}

func (p *pages) pointer(n int64) (kind byte, parent int64, err error) {
	m := p.mapOf(n)
	at := (n - m - 1) * pointerBytes
	if at < 0 || at+pointerBytes > int64(p.usable) {
		return 0, 0, damagedPage(n)
	}
	page := p.maps[m]
	if page == nil {
		if page, err = p.read(m); err != nil {
			return 0, 0, err
		}
		p.maps[m] = page
	}
	return page[at], int64(binary.BigEndian.Uint32(page[at+1:])), nil
}

// isTrunk reports whether a free page lists others.
func (p *pages) isTrunk(n int64) (bool, error) {
	if p.trunks == nil {
		p.trunks = map[int64]bool{}
		for at := int64(binary.BigEndian.Uint32(p.first[32:])); at != 0; {
			if p.trunks[at] || at > p.count {
				return false, damagedPage(at)
			}
			p.trunks[at] = true
			page, err := p.read(at)
			if err != nil {
				return false, err
			}
			at = int64(binary.BigEndian.Uint32(page))
		}
	}
	return p.trunks[n], nil
}

// tail is how many bytes the last overflow page of a cell uses.
func (p *pages) tail(n int64, kind byte, parent int64) (used int, err error) {
	each := p.usable - 4 // the number of the next page comes first
	before := 0
	for kind == pageOverflowMore {
		n, before = parent, before+each
		if kind, parent, err = p.pointer(n); err != nil {
			return 0, err
		}
		if before > maxRowBytes {
			return 0, damagedPage(n)
		}
	}
	if kind != pageOverflow {
		return 0, damagedPage(n)
	}
	page, err := p.read(parent)
	if err != nil {
		return 0, err
	}
	cells, err := p.cells(parent, page)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(cells, func(c cell) bool { return c.overflow == n })
	if i < 0 {
		return 0, damagedPage(n)
	}
	used = 4 + cells[i].beyond - before
	if used <= 4 || used > p.usable {
		return 0, damagedPage(n)
	}
	return used, nil
}

// maxRowBytes is the longest row that SQLite has.
const maxRowBytes = 1<<31 - 1

// cell is a part of a b-tree page that is used.
type cell struct {
	from, to int
	overflow int64 // the first page with what does not fit; 0 for none
	beyond   int   // how many bytes do not fit
}

// cells finds what is used of a b-tree page: its header with the pointers to its cells, the cells, and the headers of its free
// blocks ("B-tree Pages").
func (p *pages) cells(n int64, page []byte) ([]cell, error) {
	head := 0
	if n == 1 {
		head = 100 // "The Database Header"
	}
	bad := damagedPage(n)
	kind := page[head]
	count, pointers := int(binary.BigEndian.Uint16(page[head+3:])), head+8
	if kind == interiorIndex || kind == interiorTable {
		pointers += 4 // the rightmost child
	}
	if pointers+2*count > p.usable {
		return nil, bad
	}
	out := append(make([]cell, 0, count+4), cell{to: pointers + 2*count})
	for i := range count {
		c := cell{from: int(binary.BigEndian.Uint16(page[pointers+2*i:]))}
		if c.from < pointers+2*count || !p.extent(kind, page, &c) {
			return nil, bad
		}
		out = append(out, c)
	}
	for block := int(binary.BigEndian.Uint16(page[head+1:])); block != 0; {
		if block+4 > p.usable || len(out) > count+p.usable/4 {
			return nil, bad
		}
		out = append(out, cell{from: block, to: block + 4})
		block = int(binary.BigEndian.Uint16(page[block:]))
	}
	return out, nil
}

// Kinds of b-tree pages.
const (
	interiorIndex = 2
	interiorTable = 5
	leafIndex     = 10
	leafTable     = 13
)

// extent finds where a cell ends. It is false for one that does not fit into its page.
func (p *pages) extent(kind byte, page []byte, c *cell) bool {
	at := c.from
	if kind == interiorIndex || kind == interiorTable {
		at += 4 // the left child
	}
	varint := func() (v uint64) {
		for i := range 9 {
			if at >= p.usable {
				at = p.usable + 1
				return 0
			}
			b := page[at]
			at++
			if i == 8 {
				return v<<8 | uint64(b)
			}
			if v = v<<7 | uint64(b&0x7F); b < 0x80 {
				break
			}
		}
		return v
	}
	switch kind {
	case interiorTable:
		varint()
	case leafTable, leafIndex, interiorIndex:
		payload := varint()
		if payload > maxRowBytes {
			return false
		}
		most := (p.usable-12)*64/255 - 23
		if kind == leafTable {
			varint()
			most = p.usable - 35
		}
		inside := int(payload)
		if inside > most {
			least := (p.usable-12)*32/255 - 23
			if inside = least + (int(payload)-least)%(p.usable-4); inside > most {
				inside = least
			}
			if at+inside+4 > p.usable {
				return false
			}
			c.overflow, c.beyond = int64(binary.BigEndian.Uint32(page[at+inside:])), int(payload)-inside
			inside += 4
		}
		at += inside
	default:
		return false
	}
	c.to = max(at, c.from+4) // no cell is shorter, so that a free block fits where it was
	return c.to <= p.usable
}
