package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Draft is a file that gets its name when it is complete. An abandoned draft leaves no file: where the system can, the draft
// has no name at all, so that not even a kill leaves one.
type Draft struct {
	*os.File
	path  string
	named bool // it stands under f.Name() until it is kept or dropped
}

// NewDraft begins a file that only its owner reads. The error is fs.ErrExist when there is one already.
func NewDraft(path string) (*Draft, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	if f, err := nameless(filepath.Dir(path)); err == nil {
		return &Draft{File: f, path: path}, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".weir-backup-*.part") // mode 0600
	if err != nil {
		return nil, err
	}
	return &Draft{File: f, path: path, named: true}, nil
}

// Keep makes the file durable and gives it its name. The error is fs.ErrExist when a file of that name exists by then.
func (d *Draft) Keep() error {
	err := d.Sync()
	if err == nil {
		err = d.place()
	}
	if err != nil {
		return errors.Join(err, d.Drop())
	}
	return errors.Join(d.Close(), syncDir(filepath.Dir(d.path)))
}

func (d *Draft) place() error {
	if !d.named {
		return name(d.File, d.path)
	}
	// A link refuses to overwrite; file systems of USB sticks have none.
	switch err := os.Link(d.Name(), d.path); {
	case err == nil:
		d.named = false
		return os.Remove(d.Name())
	case errors.Is(err, fs.ErrExist):
		return err
	}
	if _, err := os.Lstat(d.path); err == nil {
		return fmt.Errorf("%s: %w", d.path, fs.ErrExist)
	}
	err := os.Rename(d.Name(), d.path)
	d.named = err != nil
	return err
}

// Drop gives the file up.
func (d *Draft) Drop() error {
	err := d.Close()
	if d.named {
		err = errors.Join(err, os.Remove(d.Name()))
	}
	return err
}
