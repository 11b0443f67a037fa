package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
)

// Bounds of what is read of an archive before its sums are known.
const (
	maxHead     = 64 << 10
	maxManifest = 16 << 20
	maxKey      = 4 << 10
	maxFiles    = 100_000
)

// Receiver takes an archive as it is read. What it was handed is only known to be whole once Read has returned.
type Receiver interface {
	// Head is called first.
	Head(Header) error
	// File is called for each file but head and manifest; name is one that Read knows.
	File(name string, bytes int64, r io.Reader) error
}

// Read reads a whole archive, compressed or not. Errors: ErrForeign, ErrVersion, ErrDamaged, those of the reader and of the
// receiver.
func Read(r io.Reader, to Receiver) (*Manifest, error) {
	in := &input{r: bufio.NewReaderSize(r, 64<<10)}
	plain, err := in.plain()
	if err != nil {
		return nil, err
	}
	a := &reading{in: in, tar: tar.NewReader(plain), to: to, have: map[string]bool{}}
	m, err := a.all()
	if err != nil {
		return nil, err
	}
	return m, a.ends(plain)
}

// input remembers what the medium itself said, so that a disk that cannot be read is not called a damaged archive.
type input struct {
	r       *bufio.Reader
	err     error
	remains bool // the first block looks like that of a backup
}

func (in *input) Read(b []byte) (int, error) {
	n, err := in.r.Read(b)
	if err != nil && err != io.EOF {
		in.err = err
	}
	return n, err
}

// ReadByte keeps gzip from reading through a buffer of its own.
func (in *input) ReadByte() (byte, error) {
	b, err := in.r.ReadByte()
	if err != nil && err != io.EOF {
		in.err = err
	}
	return b, err
}

// plain is the tar, whether or not it is compressed.
func (in *input) plain() (io.Reader, error) {
	begin, err := in.r.Peek(blockSize)
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case len(begin) == 0:
		return nil, &DamageError{Reason: "it is empty", Head: true}
	case !bytes.HasPrefix(begin, gzipMagic):
		in.remains = remains(begin)
		return in, nil
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, in.damage("", err)
	}
	return z, nil
}

// blockSize is that of a tar (POSIX.1 ustar); gzipMagic begins a compressed file (RFC 1952 §2.3.1), with the method deflate.
const blockSize = 512

var gzipMagic = []byte{0x1f, 0x8b}

// remains reports whether a first block that does not read was once that of a backup: it has the name of the head, or the
// magic of a tar (both are far enough apart), or all but one byte of that of gzip.
func remains(block []byte) bool {
	same := 0
	for i, b := range append(gzipMagic[:2:2], 8) {
		if i < len(block) && block[i] == b {
			same++
		}
	}
	return same == 2 || bytes.HasPrefix(block, []byte(headName)) || len(block) == blockSize && bytes.HasPrefix(block[257:], []byte("ustar"))
}

// damage is what err means for an archive: those of the medium and of the receiver pass as they are.
func (in *input) damage(file string, err error) error {
	if in.err != nil {
		return in.err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return &DamageError{File: file, Reason: "it is cut off"}
	}
	return &DamageError{File: file, Reason: err.Error()}
}

// reading is an archive on its way.
type reading struct {
	in    *input
	tar   *tar.Reader
	to    Receiver
	head  Header
	files []File
	have  map[string]bool
}

// all reads the files up to the manifest, and holds them against it.
func (a *reading) all() (*Manifest, error) {
	if err := a.first(); err != nil {
		return nil, err
	}
	for {
		h, err := a.tar.Next()
		switch {
		case err == io.EOF:
			return nil, &DamageError{Reason: "it is cut off: the table of contents is missing"}
		case err != nil:
			return nil, a.in.damage("", err)
		}
		if h.Name == manifestName {
			return a.manifest(h)
		}
		if err := a.file(h); err != nil {
			return nil, err
		}
	}
}

// first reads the head. Until it is read nothing says that this is a backup at all.
func (a *reading) first() error {
	h, err := a.tar.Next()
	switch {
	case a.in.err != nil:
		return a.in.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return a.in.damage("", err)
	case err != nil && a.in.remains:
		return &DamageError{File: headName, Reason: "it does not read", Head: true}
	case err != nil || h.Name != headName || h.Typeflag != tar.TypeReg:
		return ErrForeign
	}
	text, err := a.small(h, maxHead)
	if err != nil {
		return err
	}
	if a.head, err = parseHead(text); err != nil {
		return err
	}
	return a.to.Head(a.head)
}

// logFile is the name of a file of the log.
var logFile = regexp.MustCompile(`^spool/[0-9a-f]{16}\.span$`)

// file hands one file on.
func (a *reading) file(h *tar.Header) error {
	known := h.Name == storeName || logFile.MatchString(h.Name) || h.Name == keyName && a.head.RootKey.Included && h.Size <= maxKey
	switch {
	case h.Typeflag != tar.TypeReg || !known:
		return &DamageError{File: printable(h.Name), Reason: "no such file belongs into a backup"}
	case a.have[h.Name]:
		return &DamageError{File: h.Name, Reason: "it is there twice"}
	case len(a.files) >= maxFiles:
		return &DamageError{Reason: "it has too many files"}
	}
	a.have[h.Name] = true
	sum := sha256.New()
	body := &body{in: a.in, name: h.Name, r: io.TeeReader(a.tar, sum)}
	if err := a.to.File(h.Name, h.Size, body); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, body); err != nil { // what the receiver has left
		return err
	}
	a.files = append(a.files, File{Name: h.Name, Bytes: h.Size, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return nil
}

// body is the content of a file; where it breaks off the error says so.
type body struct {
	in   *input
	name string
	r    io.Reader
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF {
		err = b.in.damage(b.name, err)
	}
	return n, err
}

// small reads a file that is kept in memory.
func (a *reading) small(h *tar.Header, limit int64) ([]byte, error) {
	if h.Size > limit {
		return nil, &DamageError{File: h.Name, Reason: "it is too large"}
	}
	sum := sha256.New()
	text, err := io.ReadAll(io.TeeReader(a.tar, sum))
	if err != nil {
		return nil, a.in.damage(h.Name, err)
	}
	a.files = append(a.files, File{Name: h.Name, Bytes: h.Size, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return text, nil
}

// manifest reads the last file and holds the others against it.
func (a *reading) manifest(h *tar.Header) (*Manifest, error) {
	files := a.files
	text, err := a.small(h, maxManifest)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(text)
	if err != nil {
		return nil, err
	}
	if len(m.Files) != len(files) {
		return nil, &DamageError{File: manifestName, Reason: fmt.Sprintf("it names %d files, %d are there", len(m.Files), len(files))}
	}
	for i, f := range files {
		if f != m.Files[i] {
			return nil, &DamageError{File: f.Name, Reason: "it is not what was written: size or sum differ"}
		}
	}
	if m.Header != a.head {
		return nil, &DamageError{File: manifestName, Reason: "it belongs to another backup"}
	}
	return m, nil
}

// ends checks that only the end of the tar follows the manifest.
func (a *reading) ends(plain io.Reader) error {
	if _, err := a.tar.Next(); err != io.EOF {
		if err == nil {
			err = errors.New("data follows the table of contents")
		}
		return a.in.damage("", err)
	}
	for buf := make([]byte, 4096); ; {
		n, err := plain.Read(buf)
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return &DamageError{Reason: "data follows the end of the archive"}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return a.in.damage("", err)
		}
	}
}

// parseHead reads the head. A newer format is reported before any other field is checked.
func parseHead(text []byte) (Header, error) {
	var v struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(text, &v); err != nil || v.Format < 1 {
		return Header{}, &DamageError{File: headName, Reason: "it does not read", Head: true}
	}
	if v.Format > Format {
		return Header{}, fmt.Errorf("%w: the backup has format %d, this Weir reads %d", ErrVersion, v.Format, Format)
	}
	var h Header
	if err := strict(headName, text, &h); err != nil {
		return Header{}, err
	}
	return h, h.check(headName)
}

func parseManifest(text []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := strict(manifestName, text, m); err != nil {
		return nil, err
	}
	if m.Log.First > m.Log.Last+1 {
		return nil, &DamageError{File: manifestName, Reason: "the log ends before it begins"}
	}
	for _, f := range m.Files {
		if sum, err := hex.DecodeString(f.SHA256); err != nil || len(sum) != sha256.Size || f.Bytes < 0 {
			return nil, &DamageError{File: manifestName, Reason: "a sum or size does not read"}
		}
	}
	return m, m.check(manifestName)
}

// check refuses what Write never writes.
func (h Header) check(file string) error {
	pair, err := hex.DecodeString(h.PairID)
	switch {
	case h.Format != Format:
		return &DamageError{File: file, Reason: "the format is another one"}
	case err != nil || len(pair) != 0 && len(pair) != 16:
		return &DamageError{File: file, Reason: "the pair id does not read"}
	case h.Created.IsZero():
		return &DamageError{File: file, Reason: "it was made at no time"}
	case h.RootKey.Included && h.RootKey.ID == "":
		return &DamageError{File: file, Reason: "it holds a root key that nothing is sealed under"}
	}
	return nil
}

// strict reads JSON without unknown members and without data after it.
func strict(file string, text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("data follows it")
		}
	}
	if err != nil {
		return &DamageError{File: file, Reason: err.Error()}
	}
	return nil
}

// printable is a name that is not ours, as a message may show it.
func printable(name string) string { return fmt.Sprintf("%.100q", name) }
