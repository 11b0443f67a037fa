//go:build linux && amd64

package powercut

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Mixture is what a cut has made of the files.
type Mixture struct {
	Files         int // that differed
	Before, After int // units of those that are as of the last sync, or as written since
	Names         int // that differed
}

// Mix makes the files what a disk may hold after the power has failed. The program is gone, and Off has returned.
func (m *Machine) Mix(r *rand.Rand) (Mixture, error) {
	var out Mixture
	if err := m.disk.mix(r, &out); err != nil {
		return out, err
	}
	return out, m.disk.settle()
}

func (d *disk) mix(r *rand.Rand, out *Mixture) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var folders []string
	err := filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			folders = append(folders, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, path := range folders {
		if err := d.mixFolder(path, r, out); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) mixFolder(path string, r *rand.Rand, out *Mixture) error {
	now, err := list(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went with the one above
	}
	if err != nil {
		return err
	}
	f := d.folders[path]
	if f == nil { // made since, and never synced
		f = &folder{}
	}
	mixed := map[uint64][]byte{} // of the files that stand there
	for _, name := range slices.Sorted(maps.Keys(now)) {
		info, err := os.Lstat(filepath.Join(path, name))
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() {
			after, inode, err := readFile(filepath.Join(path, name))
			if err != nil {
				return err
			}
			mixed[inode] = mixBytes(d.content[inode], after, r, out)
		}
	}
	names := f.choose(now, r, out)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if _, there := names[name]; !there {
			if err := os.RemoveAll(filepath.Join(path, name)); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		b, there := mixed[names[name]]
		if g := f.ghosts[names[name]]; !there && g != nil {
			b, there = mixBytes(g.before, g.after, r, out), true
		}
		if !there {
			continue // a folder
		}
		if err := writeSparse(filepath.Join(path, name), b); err != nil {
			return err
		}
	}
	return nil
}

// choose gives the names that a folder has after the cut: for each that has changed since its last sync as it was or as it
// is. What one rename has changed goes together.
func (f *folder) choose(now map[string]uint64, r *rand.Rand, out *Mixture) map[string]uint64 {
	group := map[string]string{}
	find := func(n string) string {
		for group[n] != "" {
			n = group[n]
		}
		return n
	}
	for _, pair := range f.linked {
		if a, b := find(pair[0]), find(pair[1]); a != b {
			group[a] = b
		}
	}
	all := maps.Clone(now)
	maps.Copy(all, f.synced)
	old, result := map[string]bool{}, map[string]uint64{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, before := f.synced[name]
		is, after := now[name]
		if before && after && was == is {
			result[name] = is
			continue
		}
		out.Names++
		g := find(name)
		if _, drawn := old[g]; !drawn {
			old[g] = r.IntN(2) == 0
		}
		switch {
		case old[g] && before:
			result[name] = was
		case !old[g] && after:
			result[name] = is
		}
	}
	return result
}

const (
	page   = 4096
	sector = 512
)

// mixBytes draws what the disk holds of a file: of each unit in which the two differ one, and one of the two lengths. How
// much of the new has arrived is drawn for each file, so that all of one file and nothing of another is met as well.
func mixBytes(before, after []byte, r *rand.Rand, out *Mixture) []byte {
	if bytes.Equal(before, after) {
		return after
	}
	out.Files++
	unit := page
	if r.IntN(3) == 0 {
		unit = sector
	}
	share := [...]float64{0, 0.1, 0.5, 0.5, 0.9, 1}[r.IntN(6)]
	length := len(before)
	if r.Float64() < max(share, 0.1) {
		length = len(after)
	}
	if share == 0 {
		length = len(before)
	}
	b := make([]byte, length)
	for at := 0; at < length; at += unit {
		end := min(at+unit, length)
		x, y := slice(before, at, end), slice(after, at, end)
		if bytes.Equal(x, y) && len(x) == len(y) {
			copy(b[at:end], y)
			continue
		}
		if r.Float64() < share {
			out.After++
			copy(b[at:end], y)
		} else {
			out.Before++
			copy(b[at:end], x)
		}
	}
	return b
}

func slice(b []byte, from, to int) []byte { return b[min(from, len(b)):min(to, len(b))] }

// writeSparse writes a file anew and leaves out the pages that are empty, as they were in the file.
func writeSparse(path string, b []byte) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	empty := make([]byte, page)
	for at := 0; at < len(b); at += page {
		part := slice(b, at, at+page)
		if bytes.Equal(part, empty[:len(part)]) {
			continue
		}
		if _, err := f.WriteAt(part, int64(at)); err != nil {
			return err
		}
	}
	return f.Truncate(int64(len(b)))
}

// Lose makes some files what they were at their last sync, or at the one before, where the last has not reached the disk. It
// leaves the others as they are. The program is gone, and Off has returned.
func (m *Machine) Lose(of func(path string) bool, last bool) error {
	if err := m.disk.lose(of, last); err != nil {
		return err
	}
	return m.disk.settle()
}

func (d *disk) lose(of func(path string) bool, last bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || !of(path) {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		b := d.content[inodeOf(info)]
		if was, there := d.earlier[inodeOf(info)]; last && there {
			b = was
		}
		return writeSparse(path, b)
	})
}
