package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"weir/internal/smallfile"
)

// Source is everything that a configuration comes from. A running instance keeps its own, to read it again.
type Source struct {
	// File is a YAML file, or a directory with weir.yaml in it; "" for none. What is in conf.d next to the file is laid
	// over it in the order of the names.
	File    string
	Environ []string // as of os.Environ; WEIR_* counts
	Set     []string // path=value, as on the command line
	DataDir string   // of --data, "" for none
	// Asking says that the caller wants to find an instance, not to run one: whether the files of the certificate can be
	// served is left to the instance, which may have better ones in memory than lie there now.
	Asking bool
	// Thorough looks for the site files, too, which a start reads.
	Thorough bool

	// pasted says that the content of File comes from elsewhere: see Pasted.
	pasted bool

	// What reads; plain files of at most maxFileBytes and those of package os when ReadFile is nil.
	ReadFile func(string) ([]byte, error)
	ReadDir  func(string) ([]fs.DirEntry, error)
	Stat     func(string) (fs.FileInfo, error)
}

func (s Source) withDefaults() Source {
	if s.ReadFile == nil {
		s.ReadFile, s.ReadDir, s.Stat = readPlain, os.ReadDir, os.Stat
	}
	if s.ReadDir == nil {
		s.ReadDir = func(string) ([]fs.DirEntry, error) { return nil, fs.ErrNotExist }
	}
	if s.Stat == nil {
		s.Stat = func(string) (fs.FileInfo, error) { return nil, fs.ErrNotExist }
	}
	return s
}

// Pasted returns the source with a text in place of its file. Of the other files only those of conf.d are read: what the text names
// (certificates, site files, files, variables and credentials with secrets) is not looked at, so that it says nothing about the machine to
// the one who has written it.
func (s Source) Pasted(text string) Source {
	s = s.withDefaults()
	if s.File == "" {
		s.File = mainFile
	}
	file, dir := s.File, filepath.Dir(s.File)
	if fi, err := s.Stat(file); err == nil && fi.IsDir() {
		dir, file = file, filepath.Join(file, mainFile)
	}
	read, overlay := s.ReadFile, filepath.Join(dir, overlays)
	s.ReadFile = func(name string) ([]byte, error) {
		switch {
		case name == file:
			return []byte(text), nil
		case filepath.Dir(name) == overlay:
			return read(name)
		}
		return nil, fs.ErrPermission
	}
	s.Asking, s.Thorough, s.pasted = true, false, true
	return s
}

// PastedFile is how the problems of Pasted name the text, where the file of the source is a directory or none.
func PastedFile(file string) string {
	if file == "" {
		return mainFile
	}
	return filepath.Join(file, mainFile)
}

// getenv returns a variable, and whether it is set. Of two the later counts, as for os.Getenv.
func (s Source) getenv(name string) (value string, set bool) {
	for _, kv := range s.Environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value, set = v, true
		}
	}
	return value, set
}

const (
	mainFile = "weir.yaml"
	overlays = "conf.d"
)

// Bounds of what a configuration is read from: a watched one is read every few seconds.
const (
	maxFileBytes = 256 << 10 // of one file
	maxAllBytes  = 1 << 20   // of all together
	maxOverlays  = 256
)

func readPlain(name string) ([]byte, error) { return smallfile.Read(name, maxFileBytes) }

// read reads a file and remembers what it held.
func (l *loader) read(name string) ([]byte, error) {
	b, err := l.src.ReadFile(name)
	if l.size += len(b); l.size > maxAllBytes {
		b, err = nil, fmt.Errorf("the files of the configuration are larger than %d MiB together", maxAllBytes>>20)
	}
	fmt.Fprintf(l.seen, "%q %v %d\n", name, err, len(b))
	l.seen.Write(b)
	return b, err
}

// files reads the configuration file and what is laid over it.
func (l *loader) files() {
	if l.src.File == "" {
		return
	}
	file, dir := l.src.File, filepath.Dir(l.src.File)
	fi, err := l.src.Stat(file)
	isDir := err == nil && fi.IsDir()
	if isDir {
		file, dir = filepath.Join(file, mainFile), file
	}
	overlay := l.overlays(filepath.Join(dir, overlays))
	if text, err := l.read(file); err == nil {
		l.file(file, text)
	} else if !isDir || !notThere(err) || len(overlay) == 0 {
		hint := ""
		if notThere(err) {
			hint = "weir runs without a file, too: leave --config and WEIR_CONFIG out"
		}
		if errors.Is(err, fs.ErrPermission) {
			hint = "run the command as root, or as a member of the group that the file belongs to"
		}
		if isDir {
			hint = "the directory holds neither weir.yaml nor conf.d/*.yaml"
		}
		l.unreadable(file, err, hint)
	}
	for _, name := range overlay {
		if text, err := l.read(name); err == nil {
			l.file(name, text)
		} else {
			l.unreadable(name, err, "")
		}
	}
}

// overlays returns the files of conf.d in the order of their names. Editors' leftovers, which begin with a dot, are none.
func (l *loader) overlays(dir string) []string {
	entries, err := l.src.ReadDir(dir)
	if err != nil {
		if !notThere(err) {
			l.unreadable(dir, err, "")
		}
		return nil
	}
	var out []string
	for _, e := range entries { // in order
		name := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case filepath.Ext(e.Name()) == ".yaml":
			out = append(out, name)
		case filepath.Ext(e.Name()) == ".yml":
			l.warnings = append(l.warnings, Warning{File: name, Reason: "is not read", Hint: "name it .yaml"})
		}
	}
	if len(out) > maxOverlays {
		l.unreadable(dir, fmt.Errorf("holds %d files; %d are read at most", len(out), maxOverlays), "put what belongs together into one file")
		return nil
	}
	return out
}

func (l *loader) unreadable(name string, err error, hint string) {
	l.problems = append(l.problems, Problem{File: name, Reason: reasonOf(err), Hint: hint})
}

// reasonOf leaves out of an error of the file system what the problem already says: the name of the file.
func reasonOf(err error) string {
	if pe, ok := asPathError(err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}
