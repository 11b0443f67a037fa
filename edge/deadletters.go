package edge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"weir/internal/smallfile"
)

// Names and bounds of the dead letters: two files, of which the older one goes when the newer one is full.
const (
	lettersName     = "dead-letters.jsonl"
	olderSuffix     = ".1"
	maxLettersBytes = 8 << 20
)

// DeadLetter is a message that the broker above has refused for good.
type DeadLetter struct {
	Time     time.Time `json:"time"`
	Received time.Time `json:"receivedTime"`
	Number   string    `json:"number"`
	Topic    string    `json:"topic"`
	Reason   string    `json:"reason"`
	Payload  []byte    `json:"payload"`
}

// letters keeps the newest dead letters.
type letters struct {
	path string

	mu    sync.Mutex
	file  *os.File
	bytes int64
}

func openLetters(dir string) (*letters, error) {
	l := &letters{path: filepath.Join(dir, lettersName)}
	return l, l.open()
}

func (l *letters) open() (err error) {
	if err := os.MkdirAll(filepath.Dir(l.path), dirMode); err != nil {
		return err
	}
	if l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, fileMode); err != nil {
		return err
	}
	fi, err := l.file.Stat()
	if err == nil {
		l.bytes = fi.Size()
	}
	return err
}

// add keeps a dead letter. It is on disk when add returns.
func (l *letters) add(d *DeadLetter) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes > 0 && l.bytes+int64(len(b)) > maxLettersBytes {
		if err := errors.Join(l.file.Close(), os.Rename(l.path, l.path+olderSuffix), l.open()); err != nil {
			return err
		}
	}
	n, err := l.file.Write(append(b, '\n'))
	l.bytes += int64(n)
	return errors.Join(err, l.file.Sync())
}

// newest returns the newest dead letters, the newest first. A line that a power cut has torn is left out.
func (l *letters) newest(limit int) (out []DeadLetter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, path := range []string{l.path + olderSuffix, l.path} {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, maxLettersBytes)
		for lines.Scan() {
			var d DeadLetter
			if json.Unmarshal(lines.Bytes(), &d) != nil {
				continue
			}
			if out = append(out, d); len(out) > limit {
				out = out[1:]
			}
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			return nil, err
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, nil
}

// erase removes the dead letters of a tenant. Each file is replaced whole; one without such a letter stays as it is.
func (l *letters) erase(instance, tenant string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := instance + "/" + tenant + "/"
	for _, path := range []string{l.path + olderSuffix, l.path} {
		b, err := smallfile.Read(path, 2*maxLettersBytes) // a letter that is larger than the bound stands alone
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		kept := make([]byte, 0, len(b))
		for line := range bytes.Lines(b) {
			var d DeadLetter
			if err := json.Unmarshal(line, &d); err == nil && !strings.HasPrefix(d.Topic, mine) {
				kept = append(kept, line...)
			}
		}
		if len(kept) == len(b) {
			continue
		}
		if err := replaceFile(path, kept); err != nil {
			return err
		}
	}
	return errors.Join(l.file.Close(), l.open())
}

// EraseTenant removes what is kept of a tenant of a platform beside its log, of which nothing of the tenant is left: dead letters, and the lines of the ledger.
func (e *Edge) EraseTenant(token string) error {
	if err := e.letters.erase(e.cfg.InstanceID, token); err != nil {
		return err
	}
	e.book.erase(token)
	return e.keep()
}

func (l *letters) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
