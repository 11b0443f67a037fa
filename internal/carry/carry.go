// Package carry is the file in which messages are carried by hand from an edge to a Weir above: numbered, in frames, with counts and a
// checksum at its end, and sealed to the carry key of the Weir above unless it is plain.
//
// Format 1. Numbers of a fixed size are big-endian, a part is four bytes with its length and the bytes:
//
//	8   "WEIRCARY"
//	1   format: 1
//	    part: the header, JSON, readable by anybody
//	    part: the encapsulated key, of a sealed file only
//	    parts: the frames. Plain: four bytes CRC-32C of the body, and the body. Sealed: the body under HPKE, bound to the header and
//	    to the place of the frame
//
// A body begins with its kind. 'm': uvarint epoch, uvarint count, and for each message uvarint of how far its number lies behind the one before (behind
// 0 for the first of the file), varint receive time in nanoseconds since 1970, topic and payload, each with its length as an uvarint. 'e', the last frame: uvarint messages, uvarint frames, and
// the SHA-256 of what came before: magic, header, encapsulated key and bodies, each with its length. Nothing follows it.
package carry

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strings"
	"time"

	"weir/internal/wire"
)

const (
	magic  = "WEIRCARY"
	format = 1
)

// Bounds of a file. A reader holds one frame.
const (
	MaxPayload = 1<<20 + 128<<10
	MaxTopic   = 1024
	maxHeader  = 64 << 10
	maxEnc     = 4 << 10
	frameBytes = 256 << 10 // a writer begins another frame behind it
	maxFrame   = frameBytes + MaxPayload + MaxTopic + 1<<10
	maxText    = 256
	maxCount   = 16 << 10 // messages of a frame
)

// Kinds of bodies.
const (
	kindMessages = 'm'
	kindEnd      = 'e'
)

// ErrFile says that a file is none of this package, was altered, or is not whole. The text says where.
var ErrFile = errors.New("carry: not a whole file of an edge")

// ErrKey says that a file is sealed to another key.
var ErrKey = errors.New("carry: sealed to another key")

// Header says what a file is. Anybody can read it.
type Header struct {
	Instance string `json:"instance"`
	// Tenant and Edge are the tenant and the device as which the edge signs in above, "" for an edge that has none.
	Tenant  string    `json:"tenant,omitempty"`
	Edge    string    `json:"edge,omitempty"`
	Install string    `json:"installId"`
	Machine string    `json:"machineId,omitempty"` // as in a hello
	Version string    `json:"version"`
	Made    time.Time `json:"madeAt"`
	// Key is the id of the carry key to which the file is sealed, "" for a plain one.
	Key string `json:"key,omitempty"`
}

// Message is a message as an edge hands it over.
type Message struct {
	Epoch    uint32
	Number   uint64
	Received int64 // nanoseconds since 1970
	Topic    string
	Payload  []byte
}

// Totals are what a file holds. Sum identifies it.
type Totals struct {
	Messages uint64 `json:"messages"`
	Frames   uint64 `json:"frames"`
	Sum      string `json:"sha256"`
}

// The suite: X25519, HKDF-SHA256, ChaCha20-Poly1305.
func kem() hpke.KEM   { return hpke.DHKEM(ecdh.X25519()) }
func kdf() hpke.KDF   { return hpke.HKDFSHA256() }
func aead() hpke.AEAD { return hpke.ChaCha20Poly1305() }

// PublicKey is a key to which files are sealed, as it is told: base64 for URLs.
type PublicKey string

// PrivateKey opens what is sealed to its public key.
type PrivateKey struct{ key hpke.PrivateKey }

// NewPrivateKey makes a key.
func NewPrivateKey() (*PrivateKey, error) {
	k, err := kem().GenerateKey()
	if err != nil {
		return nil, err
	}
	return &PrivateKey{k}, nil
}

// ParsePrivateKey reads what Bytes has returned.
func ParsePrivateKey(b []byte) (*PrivateKey, error) {
	k, err := kem().NewPrivateKey(b)
	if err != nil {
		return nil, err
	}
	return &PrivateKey{k}, nil
}

// Bytes is the secret form of the key.
func (k *PrivateKey) Bytes() ([]byte, error) { return k.key.Bytes() }

// Public is the key to which files are sealed.
func (k *PrivateKey) Public() PublicKey {
	return PublicKey(base64.RawURLEncoding.EncodeToString(k.key.PublicKey().Bytes()))
}

// Check returns an error where the key is none.
func (k PublicKey) Check() error {
	_, err := k.parse()
	return err
}

func (k PublicKey) parse() (hpke.PublicKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(string(k))
	if err != nil {
		return nil, err
	}
	return kem().NewPublicKey(b)
}

// ID is a name of the key.
func (k PublicKey) ID() string {
	sum := sha256.Sum256([]byte(k))
	return hex.EncodeToString(sum[:8])
}

// check returns what is wrong with a header.
func (h *Header) check() string {
	for _, text := range []string{h.Instance, h.Tenant, h.Edge, h.Machine, h.Version, h.Key} {
		if len(text) > maxText || strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0 {
			return "a text of the header has control characters or more than 256 bytes"
		}
	}
	if b, err := hex.DecodeString(h.Install); err != nil || len(b) != 16 || strings.ToLower(h.Install) != h.Install {
		return "the installation is not 32 lower-case hexadecimal digits"
	}
	return ""
}

// bound is what the frames of a sealed file are bound to.
func bound(header []byte) []byte {
	sum := sha256.Sum256(header)
	return append([]byte("weir edge export\x00"), sum[:]...)
}

// digest is the running checksum of a file.
type digest struct{ hash.Hash }

func newDigest() digest {
	d := digest{sha256.New()}
	d.Write([]byte(magic))
	d.Write([]byte{format})
	return d
}

func (d digest) add(b []byte) {
	d.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
	d.Write(b)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Writer writes a file.
type Writer struct {
	w      io.Writer
	seal   *hpke.Sender // nil: plain
	digest digest
	body   []byte // messages of the frame that is begun, without its head
	count  uint64 // of them
	epoch  uint32
	last   uint64 // number
	totals Totals
}

// NewWriter begins a file, sealed to a key; "" leaves it plain. It sets h.Key.
func NewWriter(w io.Writer, h Header, to PublicKey) (*Writer, error) {
	out := &Writer{w: w, digest: newDigest()}
	if h.Key = ""; to != "" {
		h.Key = to.ID()
	}
	if why := h.check(); why != "" {
		return nil, fmt.Errorf("%w: %s", ErrFile, why)
	}
	header, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	head := append([]byte(magic), format)
	head = appendPart(head, header)
	out.digest.add(header)
	if to != "" {
		key, err := to.parse()
		if err != nil {
			return nil, err
		}
		var enc []byte
		if enc, out.seal, err = hpke.NewSender(key, kdf(), aead(), bound(header)); err != nil {
			return nil, err
		}
		head = appendPart(head, enc)
		out.digest.add(enc)
	}
	_, err = w.Write(head)
	return out, err
}

func appendPart(b, part []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
}

// Add adds a message. Numbers grow, and epochs do not fall.
func (w *Writer) Add(m Message) error {
	switch {
	case m.Number <= w.last || m.Epoch < w.epoch || m.Epoch == 0:
		return fmt.Errorf("%w: number %d of epoch %d after %d of %d", ErrFile, m.Number, m.Epoch, w.last, w.epoch)
	case len(m.Payload) > MaxPayload || len(m.Topic) > MaxTopic:
		return fmt.Errorf("%w: number %d is larger than a message may be", ErrFile, m.Number)
	}
	if w.count > 0 && (m.Epoch != w.epoch || len(w.body) >= frameBytes || w.count >= maxCount) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.body = binary.AppendUvarint(w.body, m.Number-w.last)
	w.body = binary.AppendVarint(w.body, m.Received)
	w.body = wire.AppendBytes(wire.AppendString(w.body, m.Topic), m.Payload)
	w.epoch, w.last = m.Epoch, m.Number
	w.count++
	return nil
}

func (w *Writer) flush() error {
	if w.count == 0 {
		return nil
	}
	body := binary.AppendUvarint(append(make([]byte, 0, len(w.body)+32), kindMessages), uint64(w.epoch))
	body = append(binary.AppendUvarint(body, w.count), w.body...)
	w.totals.Messages += w.count
	w.totals.Frames++
	w.body, w.count = w.body[:0], 0
	w.digest.add(body)
	return w.frame(body)
}

func (w *Writer) frame(body []byte) error {
	frame := append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli)), body...)
	if w.seal != nil {
		var err error
		if frame, err = w.seal.Seal(nil, body); err != nil {
			return err
		}
	}
	_, err := w.w.Write(appendPart(nil, frame))
	return err
}

// Close writes the end of the file. Without it the file is not whole.
func (w *Writer) Close() (Totals, error) {
	if err := w.flush(); err != nil {
		return w.totals, err
	}
	sum := w.digest.Sum(nil)
	w.totals.Sum = hex.EncodeToString(sum)
	end := binary.AppendUvarint([]byte{kindEnd}, w.totals.Messages)
	end = binary.AppendUvarint(end, w.totals.Frames)
	return w.totals, w.frame(append(end, sum...))
}

// Reader reads a file. It trusts nothing of it, and holds one frame at a time.
type Reader struct {
	r      io.Reader
	open   *hpke.Recipient // nil: plain
	header Header
	head   string // SHA-256 of what is before the frames
	digest digest
	last   uint64
	epoch  uint32
	totals Totals
	ended  bool
}

// NewReader reads the header of a file. key returns the key of an id; its error is returned as it is. Other errors are ErrFile, ErrKey, and those of r.
func NewReader(r io.Reader, key func(id string) (*PrivateKey, error)) (*Reader, error) {
	in := &Reader{r: r, digest: newDigest()}
	start := make([]byte, len(magic)+1)
	switch _, err := io.ReadFull(r, start); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err == nil && string(start[:len(magic)]) != magic:
		return nil, fmt.Errorf("%w: it does not begin as one", ErrFile)
	case err != nil:
		return nil, err
	case start[len(magic)] != format:
		return nil, fmt.Errorf("%w: format %d, this Weir reads %d", ErrFile, start[len(magic)], format)
	}
	header, err := in.part(maxHeader, "the header")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(header, &in.header); err != nil {
		return nil, fmt.Errorf("%w: the header: %w", ErrFile, err)
	}
	if why := in.header.check(); why != "" {
		return nil, fmt.Errorf("%w: %s", ErrFile, why)
	}
	in.digest.add(header)
	if in.header.Key != "" {
		enc, err := in.part(maxEnc, "the encapsulated key")
		if err != nil {
			return nil, err
		}
		in.digest.add(enc)
		k, err := key(in.header.Key)
		if err != nil {
			return nil, err
		}
		if k == nil || k.Public().ID() != in.header.Key {
			return nil, fmt.Errorf("%w: %s", ErrKey, in.header.Key)
		}
		if in.open, err = hpke.NewRecipient(enc, k.key, kdf(), aead(), bound(header)); err != nil {
			return nil, fmt.Errorf("%w: the encapsulated key: %w", ErrFile, err)
		}
	}
	in.head = hex.EncodeToString(in.digest.Sum(nil))
	return in, nil
}

// Header is the header of the file.
func (r *Reader) Header() Header { return r.header }

// Head identifies the file by what stands before its frames: of a sealed one no other file has the same.
func (r *Reader) Head() string { return r.head }

// part reads a part of at most limit bytes.
func (r *Reader) part(limit uint32, what string) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r.r, length[:]); err != nil {
		return nil, short(err, what)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n == 0 || n > limit {
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrFile, what, n)
	}
	var b bytes.Buffer // it grows with what is there: a length alone takes no memory
	if _, err := io.CopyN(&b, r.r, int64(n)); err != nil {
		return nil, short(err, what)
	}
	return b.Bytes(), nil
}

func short(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends in %s", ErrFile, what)
	}
	return err
}

// Next returns the messages of the next frame, which are the caller's. io.EOF says that the file was read to its end and is whole; other errors
// are ErrFile and those of the reader.
func (r *Reader) Next() ([]Message, error) {
	if r.ended {
		return nil, io.EOF
	}
	what := fmt.Sprintf("frame %d", r.totals.Frames+1)
	frame, err := r.part(maxFrame, what)
	if err != nil {
		return nil, err
	}
	body, err := r.body(frame)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, what, err)
	}
	switch body[0] {
	case kindMessages:
		messages, err := r.messages(body)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrFile, what, err)
		}
		return messages, nil
	case kindEnd:
		if err := r.end(body); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}
	return nil, fmt.Errorf("%w: %s is of a kind that is not known", ErrFile, what)
}

var errChecksum = errors.New("its checksum is another one")

func (r *Reader) body(frame []byte) ([]byte, error) {
	if r.open != nil {
		body, err := r.open.Open(nil, frame)
		if err == nil && len(body) == 0 {
			err = wire.ErrShort
		}
		return body, err
	}
	const sum = 4
	if len(frame) <= sum {
		return nil, wire.ErrShort
	}
	if binary.BigEndian.Uint32(frame) != crc32.Checksum(frame[sum:], castagnoli) {
		return nil, errChecksum
	}
	return frame[sum:], nil
}

// leastMessage is how many bytes a message has at least.
const leastMessage = 4

var errOrder = errors.New("numbers or epochs are not in order")

func (r *Reader) messages(body []byte) ([]Message, error) {
	c := wire.NewReader(body[1:])
	epoch := c.Uvarint()
	n := c.Count(leastMessage)
	if c.Err() != nil {
		return nil, c.Err()
	}
	if n == 0 || n > maxCount || epoch < uint64(r.epoch) || epoch == 0 || epoch > 1<<32-1 {
		return nil, errOrder
	}
	out := make([]Message, 0, n)
	last := r.last
	for range n {
		step := c.Uvarint()
		m := Message{Epoch: uint32(epoch), Number: last + step, Received: c.Varint(), Topic: c.String(), Payload: c.Bytes()}
		switch {
		case c.Err() != nil:
			return nil, c.Err()
		case step == 0 || m.Number < last || len(m.Topic) > MaxTopic || len(m.Payload) > MaxPayload:
			return nil, errOrder
		}
		last = m.Number
		out = append(out, m)
	}
	if err := c.End(); err != nil {
		return nil, err
	}
	r.last, r.epoch = last, uint32(epoch)
	r.totals.Messages += uint64(n)
	r.totals.Frames++
	r.digest.add(body)
	return out, nil
}

func (r *Reader) end(body []byte) error {
	c := wire.NewReader(body[1:])
	messages, frames := c.Uvarint(), c.Uvarint()
	sum := r.digest.Sum(nil)
	if c.Err() != nil || c.Len() != len(sum) || !bytes.HasSuffix(body, sum) || messages != r.totals.Messages || frames != r.totals.Frames {
		return fmt.Errorf("%w: counts or checksum at its end are other ones", ErrFile)
	}
	var more [1]byte
	switch _, err := io.ReadFull(r.r, more[:]); {
	case err == nil:
		return fmt.Errorf("%w: something follows its end", ErrFile)
	case !errors.Is(err, io.EOF):
		return err
	}
	r.totals.Sum, r.ended = hex.EncodeToString(sum), true
	return nil
}

// Totals are what was read; Sum is "" before the end.
func (r *Reader) Totals() Totals { return r.totals }
