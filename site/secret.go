package site

import (
	"io/fs"
	"os"
	"path/filepath"

	"weir/internal/secrettext"
	"weir/internal/smallfile"
)

// Source is where files and secrets come from.
type Source struct {
	ReadFile  func(string) ([]byte, error)      // nil: plain files, of at most maxFile bytes
	Stat      func(string) (fs.FileInfo, error) // nil: os.Stat; for warnings
	Glob      func(string) ([]string, error)    // nil: filepath.Glob; for tests of rules beside a file
	LookupEnv func(string) (string, bool)       // nil: no variable is set
	// WithoutSecrets leaves _file and _env of secrets unread: the format is checked where the secrets are not.
	WithoutSecrets bool
	// Checked reads every value as the API would and compiles the rules, so that everything that needs no instance is
	// refused here, with its position.
	Checked bool
	// Complete is Checked for files that declare all that they name: a required field that is missing is a mistake, though
	// an instance that has the entity already would keep its own.
	Complete bool
}

func (s Source) withDefaults() Source {
	if s.ReadFile == nil {
		s.ReadFile = func(name string) ([]byte, error) { return smallfile.Read(name, maxFile) }
	}
	if s.Stat == nil {
		s.Stat = os.Stat
	}
	if s.Glob == nil {
		s.Glob = filepath.Glob
	}
	if s.LookupEnv == nil {
		s.LookupEnv = func(string) (string, bool) { return "", false }
	}
	return s
}

// maxSecret is the most bytes of a secret's file.
const maxSecret = 64 << 10

// secret reads what key_file or key_env names. why says what is wrong; it never shows the secret.
func (r *reader) secret(from, name, base string) (value, why string) {
	if r.src.WithoutSecrets {
		return "", ""
	}
	if from == "_env" {
		value, set := r.src.LookupEnv(name)
		switch {
		case !set:
			return "", "the variable " + name + " is not set"
		case value == "":
			return "", "the variable " + name + " is empty"
		}
		return value, ""
	}
	path := beside(base, name)
	b, err := r.src.ReadFile(path)
	if err != nil {
		return "", "the file of the secret cannot be read: " + reason(err)
	}
	r.exposed(path)
	if len(b) > maxSecret {
		return "", "the file of the secret is too large"
	}
	if value, err = secrettext.Of(b); err != nil {
		return "", "the file of the secret " + err.Error()
	}
	return value, ""
}

// exposed warns of a file with secrets that other users of the machine may read.
func (r *reader) exposed(path string) {
	fi, err := r.src.Stat(path)
	if err != nil || fi.Mode().Perm()&0o004 == 0 || r.warned[path] {
		return
	}
	r.warned[path] = true
	r.warnings = append(r.warnings, path+" holds secrets and may be read by every user of this machine: chmod o-r "+path)
}

// beside resolves a path that a file names, relative to that file.
func beside(base, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(base), path)
}

// reason is why a file cannot be read, without the path, which the reader knows.
func reason(err error) string {
	if pe, ok := err.(*fs.PathError); ok {
		return pe.Path + ": " + pe.Err.Error()
	}
	return err.Error()
}
