package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// namedFiles is the maximum number of files that a finding names.
const namedFiles = 3

// FileModes checks that the files of a data directory belong to the user that Weir runs as, and that no other user can
// read them: the database contains the readings of devices, the key decrypts all sealed values.
func (m Machine) FileModes(dir string) Check {
	return Check{"file-modes", func(ctx context.Context) Finding {
		var open, foreign []string
		n := 0
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == dir || d.Type()&fs.ModeSymlink != 0 {
				return err
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) { // the log removes files
				return nil
			}
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(dir, path)
			if n++; info.Mode().Perm()&0o007 != 0 {
				open = append(open, fmt.Sprintf("%s (%04o)", name, info.Mode().Perm()))
			}
			if uid, ok := m.Owner(info); ok && uid != m.User {
				foreign = append(foreign, fmt.Sprintf("%s (user %d)", name, uid))
			}
			return ctx.Err()
		})
		switch {
		case errors.Is(err, os.ErrNotExist):
			return Skip("there is no directory yet")
		case err != nil:
			return Skip("not all files can be checked: %v", plain(err))
		case len(foreign) > 0:
			return Warn(fmt.Sprintf("chown -R %d %s: files were copied or restored as another user", m.User, dir), "of another user than %d: %s", m.User, some(foreign))
		case len(open) > 0:
			return Warn("chmod -R o-rwx "+dir, "readable by every user of the machine: %s", some(open))
		}
		return Good("%s, for their owner alone", Count(n, "file"))
	}}
}

// some names the first of a list, and the number of the others.
func some(list []string) string {
	if more := len(list) - namedFiles; more > 0 {
		return strings.Join(list[:namedFiles], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(list, ", ")
}
