//go:build linux && amd64

package powercut

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// disk is what is on the disk for good, beside what the files show. Files are known by their inode: what was synced stays
// with it when the name changes.
type disk struct {
	root string

	mu      sync.Mutex
	folders map[string]*folder // by path
	content map[uint64][]byte  // of files, as of their last sync; none: nothing of it
	earlier map[uint64][]byte  // as of the one before
}

// folder is a folder's names.
type folder struct {
	synced map[string]uint64 // inodes, as of the last sync of the folder
	ghosts map[uint64]*ghost // files without a name that bear one in synced
	linked [][2]string       // pairs of names that a rename since has made one matter
}

// ghost is a file that was removed or replaced, where that was not synced.
type ghost struct {
	before, after []byte // as of its last sync, as of its removal
}

func newDisk(root string) (*disk, error) {
	abs, err := filepath.Abs(root)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, err
	}
	d := &disk{root: abs}
	return d, d.settle()
}

// settle takes what the files show for what the disk holds: the program is off.
func (d *disk) settle() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.folders, d.content, d.earlier = map[string]*folder{}, map[uint64][]byte{}, map[uint64][]byte{}
	return filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return d.syncFolder(path)
		case !e.Type().IsRegular():
			return nil
		}
		b, inode, err := readFile(path)
		d.content[inode] = b
		return err
	})
}

// holds reports whether a path lies on the disk.
func (d *disk) holds(path string) bool {
	return path == d.root || strings.HasPrefix(path, d.root+"/")
}

// sync puts a file or a folder down for good.
func (d *disk) sync(c *call, path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := os.Stat(c.link(0))
	if err != nil {
		return err
	}
	if info.IsDir() {
		return d.syncFolder(path)
	}
	b, inode, err := readFile(c.link(0))
	if err != nil || strings.HasSuffix(path, " (deleted)") {
		return err
	}
	if was, there := d.content[inode]; there {
		d.earlier[inode] = was
	}
	d.content[inode] = b
	return nil
}

func (d *disk) syncFolder(path string) error {
	names, err := list(path)
	d.folders[path] = &folder{synced: names, ghosts: map[uint64]*ghost{}}
	return err
}

// unlink notes that a name goes.
func (d *disk) unlink(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.forget(path)
}

// forget keeps a file that is about to lose its name, where it may come back.
func (d *disk) forget(path string) error {
	f := d.folders[filepath.Dir(path)]
	if !d.holds(path) || f == nil {
		return nil
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	b, inode, err := readFile(path)
	if err != nil {
		return err
	}
	for _, i := range f.synced {
		if i == inode {
			f.ghosts[inode] = &ghost{before: d.content[inode], after: b}
		}
	}
	delete(d.earlier, inode)
	delete(d.content, inode) // the number may be given to another file
	return nil
}

// rename notes that a name becomes another.
func (d *disk) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.forget(to); err != nil {
		return err
	}
	if f := d.folders[filepath.Dir(from)]; f != nil && filepath.Dir(from) == filepath.Dir(to) {
		f.linked = append(f.linked, [2]string{filepath.Base(from), filepath.Base(to)})
	}
	return nil
}

// list reads a folder's names: files and folders.
func list(dir string) (map[string]uint64, error) {
	entries, err := os.ReadDir(dir)
	out := map[string]uint64{}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if e.IsDir() || e.Type().IsRegular() {
			out[e.Name()] = inodeOf(info)
		}
	}
	return out, err
}

func inodeOf(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// readFile reads a file and says which it is.
func readFile(path string) ([]byte, uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	b := make([]byte, info.Size())
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // it has become shorter meanwhile
	}
	return b[:n], inodeOf(info), err
}
