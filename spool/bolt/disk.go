package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// makeDir creates the log's folder, and makes its own entry durable.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return syncDir(filepath.Dir(dir))
}

func (l *Log) syncDir() error {
	if l.opt.unsafe {
		return nil
	}
	return syncDir(l.dir)
}

// syncDir makes the creation, renaming and removal of files in dir durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}
