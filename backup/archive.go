package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"time"

	"weir/internal/rootkey"
)

// archive writes the files of a backup and remembers their sums.
type archive struct {
	tar   *tar.Writer
	at    time.Time
	files []File
}

func newArchive(w io.Writer, at time.Time) *archive { return &archive{tar: tar.NewWriter(w), at: at} }

// add writes a file of so many bytes.
func (a *archive) add(name string, bytes int64, write func(io.Writer) error) error {
	if err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: bytes, ModTime: a.at}); err != nil {
		return err
	}
	sum := sha256.New()
	if err := write(io.MultiWriter(a.tar, sum)); err != nil {
		return err
	}
	if err := a.tar.Flush(); err != nil { // fails when fewer bytes came
		return err
	}
	a.files = append(a.files, File{Name: name, Bytes: bytes, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return nil
}

func (a *archive) bytes(name string, b []byte) error {
	return a.add(name, int64(len(b)), func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

func (a *archive) json(name string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return a.bytes(name, append(b, '\n'))
}

// keyText is the form of the key's file.
func keyText(k rootkey.Key) []byte { return []byte(base64.StdEncoding.EncodeToString(k[:]) + "\n") }

// pacedBytes is how much is written between two looks at the clock.
const pacedBytes = 32 << 10

// paced is a writer that keeps to a rate, and gives up when its context ends or the instance is strained.
type paced struct {
	ctx      context.Context
	w        io.Writer
	rate     int64
	strained func() error

	began   time.Time
	written int64
}

func (p *paced) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		if err := p.wait(); err != nil {
			return done, err
		}
		n, err := p.w.Write(b[done:min(done+pacedBytes, len(b))])
		done, p.written = done+n, p.written+int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// wait returns when more may be written.
func (p *paced) wait() error {
	if p.strained != nil {
		if err := p.strained(); err != nil {
			return err
		}
	}
	if p.rate <= 0 {
		return p.ctx.Err()
	}
	now := time.Now()
	if p.began.IsZero() {
		p.began = now
	}
	due := time.Duration(float64(p.written) / float64(p.rate) * float64(time.Second))
	if early := due - now.Sub(p.began); early > 0 {
		t := time.NewTimer(early)
		defer t.Stop()
		select {
		case <-t.C:
		case <-p.ctx.Done():
		}
	}
	return p.ctx.Err()
}
