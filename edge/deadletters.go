package edge

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
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

func (l *letters) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
