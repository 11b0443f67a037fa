// Package rootkey keeps the key that seals an instance's secrets: 32 random bytes in a file that only
// its owner can read, or in an environment variable. A new key is created only while no value is sealed, because a lost
// key cannot be created again.
package rootkey

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Size of a key in bytes.
const Size = 32

// IDSize is the length of a key's id: the first bytes of its SHA-256.
const IDSize = 8

// maxFile bounds the size of a key file.
const maxFile = 4096

// Key is a root key. It is never printed: see ID.
type Key [Size]byte

// ID names a key without revealing it: the first bytes of its SHA-256, in hex.
func (k Key) ID() string {
	id := k.IDBytes()
	return hex.EncodeToString(id[:])
}

// IDBytes is ID before it is written in hex.
func (k Key) IDBytes() [IDSize]byte {
	sum := sha256.Sum256(k[:])
	return [IDSize]byte(sum[:IDSize])
}

// String returns the id, so that no log shows a key.
func (k Key) String() string { return "root key " + k.ID() }

// GoString is String, for %#v.
func (k Key) GoString() string { return k.String() }

// Options locate the key.
type Options struct {
	File string // path of the key file
	Env  string // value of the environment variable, base64; "" when it is not set. It has precedence over the file.
	// SealedUnder is the id of the key of the store's ciphertexts, "" while it has none.
	SealedUnder string
}

// Result is a key and its origin.
type Result struct {
	Key      Key
	Created  bool
	Warnings []string // for the operator
}

// MissingError is returned when the store has ciphertexts and the key that they need is missing or another one. The start
// stops.
type MissingError struct {
	ID    string // of the needed key
	Found string // id of the key found, "" for none
	From  string // file or variable that was read
}

func (e *MissingError) Error() string {
	if e.Found == "" {
		return fmt.Sprintf("the root key %s is missing: %s does not exist", e.ID, e.From)
	}
	return fmt.Sprintf("the root key %s is missing: %s holds the key %s", e.ID, e.From, e.Found)
}

// Errors of a key that cannot be used.
var (
	// ErrMalformed is returned when a root key is neither 32 bytes nor the base64 of 32 bytes.
	ErrMalformed = errors.New("rootkey: not a key of 32 bytes")
	// ErrExposed is returned when every user of the machine can read or write the key file.
	ErrExposed = errors.New("rootkey: the key file is readable by other users")
)

// variable is the name of the environment variable in messages.
const variable = "WEIR_ROOT_KEY"

// Load returns the root key: of Env, else of File, which is created while no value is sealed. Errors: *MissingError,
// ErrMalformed, ErrExposed, and those of the file system.
func Load(o Options) (Result, error) {
	res, from, err := find(o)
	if err != nil {
		return Result{}, err
	}
	if id := res.Key.ID(); o.SealedUnder != "" && id != o.SealedUnder {
		return Result{}, &MissingError{ID: o.SealedUnder, Found: id, From: from}
	}
	return res, nil
}

// Look is Load without a change: where Load would create a key it returns fs.ErrNotExist.
func Look(o Options) (Result, error) {
	if o.Env == "" && o.SealedUnder == "" {
		return read(o.File)
	}
	return Load(o) // creates a key only while no value is sealed
}

func find(o Options) (res Result, from string, err error) {
	if o.Env != "" {
		res.Key, err = parse([]byte(o.Env))
		if err != nil {
			return res, variable, fmt.Errorf("%s: %w", variable, err)
		}
		return res, variable, nil
	}
	res, err = read(o.File)
	if !errors.Is(err, fs.ErrNotExist) {
		return res, o.File, err
	}
	if o.SealedUnder != "" {
		return res, o.File, &MissingError{ID: o.SealedUnder, From: o.File}
	}
	rand.Read(res.Key[:]) // never fails
	res.Created = true
	return res, o.File, write(o.File, res.Key)
}

// read reads a key file. A key that every user can read is refused; access of a group may be intended, for
// example for a mounted volume, and gives a warning.
func read(path string) (Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Result{}, err
	}
	if info.IsDir() {
		return Result{}, fmt.Errorf("%w: %s is a directory, a file was expected: move it away and put the key back as it was, mode 0600", ErrMalformed, path)
	}
	var res Result
	switch mode := info.Mode().Perm(); {
	case mode&0o007 != 0:
		return Result{}, fmt.Errorf("%w: %s has mode %04o; chmod 600 it", ErrExposed, path, mode)
	case mode&0o070 != 0:
		res.Warnings = append(res.Warnings, fmt.Sprintf("root key file %s is open to its group (mode %04o), 0600 is meant", path, mode))
	}
	if info.Size() > maxFile {
		return Result{}, fmt.Errorf("%s: %w", path, ErrMalformed)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Result{}, err
	}
	if res.Key, err = parse(text); err != nil {
		return Result{}, fmt.Errorf("%s: %w", path, err)
	}
	return res, nil
}

// parse accepts 32 bytes, or their base64 with or without padding and surrounding space.
func parse(text []byte) (k Key, err error) {
	if len(text) == Size {
		return Key(text), nil
	}
	text = bytes.TrimRight(bytes.TrimSpace(text), "=")
	raw, err := base64.RawStdEncoding.Strict().DecodeString(string(text))
	if err != nil || len(raw) != Size {
		return Key{}, ErrMalformed // without err: its text could show a part of the key
	}
	return Key(raw), nil
}

// write writes the key atomically: after a power cut it is complete or absent. The lock of the data directory is
// held, so that no other process can create one meanwhile.
func write(path string, k Key) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".root.key-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreGone(os.Remove(f.Name()))) }()
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(k[:]) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// syncDir makes the directory's entries durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
