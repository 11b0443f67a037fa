package lwm2m

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/internal/smallfile"
	"weir/lwm2m/content"
)

// Bounds of lwm2m.models_dir. What is beyond them is left out, and the log says so.
const (
	maxModelFiles  = 256
	modelsInterval = 5 * time.Second // after which files that are new count
)

// ModelFile is a definition file with what it holds.
type ModelFile struct {
	Name    string // of the file
	Objects []content.Definition
	Fault   string // why it does not count; "" where it does
}

// ReadModels reads the definition files of a directory (*.xml), in the order of their names. A directory that is not there has none.
func ReadModels(dir string) ([]ModelFile, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []ModelFile
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".xml") {
			continue
		}
		if len(all) == maxModelFiles {
			return all, fmt.Errorf("%s holds more than %d definition files", dir, maxModelFiles)
		}
		f := ModelFile{Name: e.Name()}
		b, err := smallfile.Read(filepath.Join(dir, e.Name()), content.MaxDefinition)
		if err == nil {
			f.Objects, err = content.ParseDefinitions(b)
		}
		if err != nil {
			f.Fault = err.Error()
		}
		all = append(all, f)
	}
	return all, nil
}

// watchModels reads the definition files, and again when they change, until ctx ends.
func (s *Server) watchModels(ctx context.Context) {
	dir := s.settings.Load().ModelsDir
	if dir == "" {
		return
	}
	var seen []string
	t := time.NewTicker(modelsInterval)
	defer t.Stop()
	for {
		if now := stampsOf(dir); !slices.Equal(now, seen) {
			seen = now
			s.readModels(dir)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// stampsOf are the names, sizes and times of the files of a directory.
func stampsOf(dir string) (stamps []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []string{""} // it may come
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			stamps = append(stamps, fmt.Sprint(e.Name(), info.Size(), info.ModTime().UnixNano()))
		}
	}
	return stamps
}

// readModels takes over the definition files of a directory: what cannot be read leaves the others in force.
func (s *Server) readModels(dir string) {
	files, err := ReadModels(dir)
	if err != nil {
		s.log.Error("definition files of LwM2M objects cannot be read", "dir", dir, "error", err)
	}
	var all []content.Definition
	for _, f := range files {
		if f.Fault != "" {
			s.log.Warn("a definition file of LwM2M objects does not count", "file", filepath.Join(dir, f.Name), "error", f.Fault)
		}
		all = append(all, f.Objects...)
	}
	s.known.Store(content.NewModels(all))
}
