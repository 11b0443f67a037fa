package edge

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"weir/internal/edgewire"
	"weir/internal/ranges"
	"weir/internal/smallfile"
	"weir/model"
)

// Names of the files besides the log, and the largest that is read.
const (
	identityName = "identity.json"
	stateName    = "state.json"
	maxStateFile = 16 << 20
)

// Modes of what an edge writes.
const (
	dirMode  fs.FileMode = 0o750
	fileMode fs.FileMode = 0o600
)

// formatVersion is that of the files.
const formatVersion = 1

// identity is who the installation is. It is written once.
type identity struct {
	Version    int    `json:"version"`
	InstallID  string `json:"installId"`
	InstanceID string `json:"instanceId"`
	// SentAs is the id under which messages are numbered since a Weir above said that InstallID has a copy; "": InstallID.
	SentAs string `json:"sentAs,omitempty"`
}

func (i identity) pair() (id [16]byte) {
	_, _ = hex.Decode(id[:], []byte(i.InstallID)) // it was checked when it was read
	return id
}

// saved is the state: what must not be lost, and must change together.
type saved struct {
	Version int `json:"version"`
	// Position: everything up to here is acknowledged above, dead or dropped, and counted as such in Lines.
	Position model.Offset `json:"position"`
	Epoch    uint32       `json:"epoch"` // of the log
	// AcceptedThrough: the records up to here are counted in Lines as accepted.
	AcceptedThrough model.Offset `json:"acceptedThrough"`
	Newest          model.Nanos  `json:"newest"` // receive time
	Maps            []timeMap    `json:"timeMaps,omitempty"`
	Lines           []line       `json:"lines,omitempty"`
	// Counted: how the records up to here ended is in Lines. It is above Position where a Weir above has asked for some again.
	Counted model.Offset `json:"counted,omitempty"`
	Numbers numbering    `json:"numbers,omitzero"`
	// Beyond are offsets after Position that have ended in the live lane, and are counted.
	Beyond ranges.Set `json:"beyond,omitempty"`
	// Of the uplink of a platform: the number of the newest message up to Position, that up to AcceptedThrough, places at which the log can be read
	// again, and of which records the numbers are.
	Number   uint64        `json:"number,omitempty"`
	Tally    uint64        `json:"tally,omitempty"`
	Marks    []place       `json:"marks,omitempty"`
	Forwards string        `json:"forwards,omitempty"`
	Presence savedPresence `json:"presence,omitzero"`
	// Runs is what the site judges for the Weir above; nil: it was never looked up.
	Runs []judging `json:"runs"`
	// Repeats are records after Position that do not go up.
	Repeats savedRepeats `json:"repeats,omitempty"`
}

// stateFile are the files of a directory.
type stateFile struct {
	dir      string
	position atomic.Uint64 // of the newest state that was written
}

// identity reads who the installation is; fresh: nobody yet.
func (s *stateFile) identity(instance string) (id identity, fresh bool, err error) {
	b, err := smallfile.Read(filepath.Join(s.dir, identityName), maxStateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return identity{Version: formatVersion, InstanceID: instance}, true, nil
	}
	if err != nil {
		return id, false, err
	}
	path := filepath.Join(s.dir, identityName)
	bits := []byte(nil)
	if err = json.Unmarshal(b, &id); err == nil {
		bits, err = hex.DecodeString(id.InstallID)
	}
	switch {
	case err != nil || len(bits) != 16 || id.SentAs != "" && !edgewire.ValidID(id.SentAs):
		return id, false, &model.Error{Message: path + " is damaged: the id of the installation cannot be read", Err: err,
			Hint: "move the file away: the id goes on from the log"}
	case id.Version != formatVersion:
		return id, false, &model.Error{Message: fmt.Sprintf("%s has the format %d, which a newer weir wrote", path, id.Version), Hint: "start that version"}
	case id.InstanceID != instance:
		return id, false, &model.Error{Code: model.CodeConflict, Message: fmt.Sprintf("this directory belongs to the instance id %s, the configuration says %s", id.InstanceID, instance),
			Hint: "set instance.id to " + id.InstanceID + ", or name another data_dir: what waits here goes to topics of " + id.InstanceID}
	}
	return id, false, nil
}

func (s *stateFile) writeIdentity(id identity) error { return s.replace(identityName, id) }

// load reads the state; an installation without one has forwarded nothing.
func (s *stateFile) load() (*saved, error) {
	out := &saved{Version: formatVersion}
	path := filepath.Join(s.dir, stateName)
	b, err := smallfile.Read(path, maxStateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	switch {
	case err != nil:
		return nil, &model.Error{Message: path + " cannot be read", Err: err, Hint: "move the file away: everything that the log holds is sent again, under the same numbers"}
	case out.Version != formatVersion:
		return nil, &model.Error{Message: fmt.Sprintf("%s has the format %d, which a newer weir wrote", path, out.Version), Hint: "start that version"}
	}
	s.position.Store(uint64(out.Position))
	return out, nil
}

func (s *stateFile) write(v *saved) error {
	v.Version = formatVersion
	if err := s.replace(stateName, v); err != nil {
		return err
	}
	s.position.Store(uint64(v.Position))
	return nil
}

// kept is the position of the newest state that was written.
func (s *stateFile) kept() model.Offset { return model.Offset(s.position.Load()) }

// replace writes a file whole or not at all.
func (s *stateFile) replace(name string, v any) error {
	if err := os.MkdirAll(s.dir, dirMode); err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(s.dir, name), b)
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, b []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
