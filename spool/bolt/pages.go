package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
)

// The pages of bbolt, read without it: bbolt trusts its pages, and a page that names itself among its children makes it
// recurse until the process ends. All numbers are little endian, as on every machine that Weir is built for.
//
//	page     id u64, flags u16, count u16, pages that follow it as its overflow u32; then count elements
//	leaf     flags u32, distance of the key from the element u32, length of key u32, of value u32
//	branch   distance of the key u32, length u32, page u64
//	bucket   a leaf's value when its flag says so: root page u64 (0: the page follows right here), sequence u64
//	meta     magic, version, page size, flags, each u32; root page u64, sequence u64, free list u64, pages u64, transaction
//	         u64, FNV-1a of everything before it u64
const (
	pageHead     = 16
	elementSize  = 16
	bucketHead   = 16
	metaSize     = 64
	branchFlag   = 0x01
	leafFlag     = 0x02
	bucketFlag   = 0x01
	maxPageDepth = 16
	// maxBatch is above the size of any batch: the last group in it may exceed spool.BatchBytes.
	maxBatch = 8 << 20
)

// page is a page with its contents, overflow included.
type page struct {
	id           uint64
	flags, count uint16
	overflow     uint32
	bytes        []byte // from its header on
}

// errPage means that a page does not match its position or its parent.
var errPage = errors.New("a page is not what it should be")

// pageFile reads pages.
type pageFile struct {
	io.ReaderAt
	pages uint64
}

func newPageFile(r io.ReaderAt, size int64) pageFile { return pageFile{r, uint64(size) / pageSize} }

// head reads the header of the page at id.
func (f pageFile) head(id uint64) (p page, err error) {
	if id >= f.pages {
		return p, fmt.Errorf("%w: page %d of %d", errPage, id, f.pages)
	}
	var b [pageHead]byte
	if _, err := f.ReadAt(b[:], int64(id)*pageSize); err != nil {
		return p, err
	}
	p = pageOf(b[:])
	if p.id != id || id+uint64(p.overflow) >= f.pages {
		return p, fmt.Errorf("%w: page %d calls itself %d, with %d more", errPage, id, p.id, p.overflow)
	}
	return p, nil
}

// read reads the page at id with its overflow, up to limit bytes.
func (f pageFile) read(id uint64, limit int) (p page, err error) {
	if p, err = f.head(id); err != nil {
		return p, err
	}
	size := (int(p.overflow) + 1) * pageSize
	if p.overflow >= maxBatch/pageSize*2 || size > limit {
		return p, fmt.Errorf("%w: page %d has %d more", errPage, id, p.overflow)
	}
	p.bytes = make([]byte, size)
	_, err = f.ReadAt(p.bytes, int64(id)*pageSize)
	return p, err
}

// pageOf reads a header. b has at least pageHead bytes.
func pageOf(b []byte) page {
	return page{id: binary.LittleEndian.Uint64(b), flags: binary.LittleEndian.Uint16(b[8:]), count: binary.LittleEndian.Uint16(b[10:]),
		overflow: binary.LittleEndian.Uint32(b[12:]), bytes: b}
}

// leafElement is a key of a leaf, with its value.
type leafElement struct {
	bucket     bool
	key, value []byte
}

// element returns the i-th element of a leaf, false when it is outside the page.
func (p page) element(i int) (e leafElement, ok bool) {
	at := pageHead + i*elementSize
	if at+elementSize > len(p.bytes) {
		return e, false
	}
	h := p.bytes[at:]
	key := uint64(at) + uint64(binary.LittleEndian.Uint32(h[4:]))
	value := key + uint64(binary.LittleEndian.Uint32(h[8:]))
	end := value + uint64(binary.LittleEndian.Uint32(h[12:]))
	if end > uint64(len(p.bytes)) {
		return e, false
	}
	return leafElement{binary.LittleEndian.Uint32(h)&bucketFlag != 0, p.bytes[key:value], p.bytes[value:end]}, true
}

// child returns the page of the i-th element of a branch, false when the element is outside the page.
func (p page) child(i int) (id uint64, ok bool) {
	at := pageHead + i*elementSize
	if at+elementSize > len(p.bytes) {
		return 0, false
	}
	key := uint64(at) + uint64(binary.LittleEndian.Uint32(p.bytes[at:])) + uint64(binary.LittleEndian.Uint32(p.bytes[at+4:]))
	return binary.LittleEndian.Uint64(p.bytes[at+8:]), key <= uint64(len(p.bytes))
}

// roots returns the root page of the newest transaction whose first page is whole, and how many of the two first pages are.
func (f pageFile) roots() (id uint64, whole int, err error) {
	var newest uint64
	for at := range int64(2) {
		b := make([]byte, pageHead+metaSize)
		if _, err := f.ReadAt(b, at*pageSize); err != nil {
			return 0, 0, err
		}
		m := b[pageHead:]
		h := fnv.New64a()
		_, _ = h.Write(m[:metaSize-8]) // never fails
		if h.Sum64() != binary.LittleEndian.Uint64(m[metaSize-8:]) {
			continue
		}
		if tx := binary.LittleEndian.Uint64(m[48:]); whole == 0 || tx > newest {
			newest, id = tx, binary.LittleEndian.Uint64(m[16:])
		}
		whole++
	}
	return id, whole, nil
}

func (f pageFile) root() (uint64, error) {
	id, whole, err := f.roots()
	if err == nil && whole == 0 {
		err = fmt.Errorf("%w: neither of the first two pages is whole", errPage)
	}
	return id, err
}

// wholeHeads reports whether both first pages of a file are whole.
func wholeHeads(path string) (whole bool, err error) {
	err = examine(path, func(f pageFile) error {
		_, n, err := f.roots()
		whole = n == 2
		return err
	})
	return whole, err
}

// checkBranches walks the branches of the tree down to the headers of its leaves, and returns an error where bbolt might
// recurse without end.
func (f pageFile) checkBranches() error {
	root, err := f.root()
	if err != nil {
		return err
	}
	return f.walk(root, 0, map[uint64]bool{}, nil)
}

// checkAll walks the whole tree, sub-buckets included, and returns an error unless bbolt can read it without a panic.
func (f pageFile) checkAll() error {
	root, err := f.root()
	if err != nil {
		return err
	}
	seen := map[uint64]bool{}
	return f.walk(root, 0, seen, func(p page) error { return f.checkLeaf(p, seen) })
}

// walk visits the pages of a tree, each once.
func (f pageFile) walk(id uint64, depth int, seen map[uint64]bool, leaf func(page) error) error {
	p, err := f.head(id)
	if err != nil {
		return err
	}
	for i := range uint64(p.overflow) + 1 {
		if seen[id+i] || id+i < 2 {
			return fmt.Errorf("%w: page %d is reached twice", errPage, id+i)
		}
		seen[id+i] = true
	}
	switch {
	case depth > maxPageDepth || p.flags != branchFlag && p.flags != leafFlag:
		return fmt.Errorf("%w: page %d is neither branch nor leaf", errPage, id)
	case p.flags == leafFlag && leaf == nil:
		return nil
	}
	if p, err = f.read(id, 2*maxBatch); err != nil {
		return err
	}
	if p.flags == leafFlag {
		return leaf(p)
	}
	for i := range int(p.count) {
		child, ok := p.child(i)
		if !ok {
			return fmt.Errorf("%w: branch %d", errPage, id)
		}
		if err := f.walk(child, depth+1, seen, leaf); err != nil {
			return err
		}
	}
	return nil
}

// checkLeaf checks the elements of a leaf of the root bucket: their keys ascend, and each sub-bucket is one leaf.
func (f pageFile) checkLeaf(p page, seen map[uint64]bool) error {
	var before []byte
	for i := range int(p.count) {
		e, ok := p.element(i)
		if !ok || i > 0 && slices.Compare(before, e.key) >= 0 || e.bucket && len(e.value) < bucketHead {
			return fmt.Errorf("%w: leaf %d", errPage, p.id)
		}
		before = e.key
		if !e.bucket {
			continue
		}
		inner := binary.LittleEndian.Uint64(e.value)
		if inner == 0 {
			if in, ok := inlinePage(e.value); !ok || in.flags != leafFlag {
				return fmt.Errorf("%w: leaf %d", errPage, p.id)
			}
			continue
		}
		if err := f.walk(inner, maxPageDepth, seen, func(page) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// inlinePage is the page of a sub-bucket inside its parent's leaf.
func inlinePage(value []byte) (page, bool) {
	if len(value) < bucketHead+pageHead {
		return page{}, false
	}
	return pageOf(value[bucketHead:]), true
}
