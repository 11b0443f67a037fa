package edgewire

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
)

// Bounds of a frame.
const (
	// MaxFrame is how large a frame is at most, inflated: a reader inflates no more.
	MaxFrame = 256 << 10
	// MaxFrameMessages is how many messages a frame holds at most.
	MaxFrameMessages = 2048
)

// KindFramed is down: which messages of a frame were refused. It is sent where some were; the PUBACK of the frame then has the code CodeSomeRefused.
const KindFramed = "framed"

// CodeSomeRefused is the reason code of the PUBACK of a frame of which some messages were refused: a Framed says which.
const CodeSomeRefused = 0x10

// FrameTopic is where an edge publishes frames.
func FrameTopic(instance, tenant, device string) string {
	return instance + "/" + tenant + "/edges/" + device + "/frames"
}

// The kinds of messages in a frame, which give their topics. The numbers are frozen.
const (
	FrameEvents    = 0
	FrameTelemetry = 1
	FrameResponses = 2
	FrameReports   = 3
)

// Frame are messages of devices at a site, sent as one: all of one epoch of an installation.
type Frame struct {
	ID       uint64 // of the connection; a Framed repeats it
	Install  string
	Epoch    uint32
	Messages []FrameMessage
}

// FrameMessage is a message of a frame.
type FrameMessage struct {
	Number  uint64
	Kind    byte
	Device  string // as its topic names it
	Payload []byte // shares memory with the others
}

// Link names the log of the edge.
func (f *Frame) Link() string { return fmt.Sprintf("edge:%s:%d", f.Install, f.Epoch) }

// Framed says which messages of a frame were refused: the edge sends those again whose code asks for it, the others are its dead letters.
type Framed struct {
	Kind  string `json:"kind"`
	Frame uint64 `json:"frame"`
	// Codes has a byte for each message of the frame, in its order: 0 where it was taken, else the reason code that its PUBACK would have had.
	Codes []byte `json:"codes"`
}

// frameFormat is the first byte of a frame. Format 1 is followed by the rest, deflated: uvarint id; 16 bytes installation; uvarint epoch; then for each message, to
// the end: uvarint number, a byte kind, a byte with the length of the device and its name, uvarint length of the payload, and the payload.
const frameFormat = 1

// FrameWriter gathers messages. It is not safe for concurrent use.
type FrameWriter struct {
	b []byte
	n int
}

// Begin begins a frame. install is the id of an installation.
func (w *FrameWriter) Begin(id uint64, install string, epoch uint32) error {
	raw, err := hex.DecodeString(install)
	if err != nil || len(raw) != idBytes {
		return fmt.Errorf("%w: installId", ErrDocument)
	}
	w.b = append(binary.AppendUvarint(w.b[:0], id), raw...)
	w.b, w.n = binary.AppendUvarint(w.b, uint64(epoch)), 0
	return nil
}

// Add adds a message. It reports false where the frame has no room for it, and is unchanged then.
func (w *FrameWriter) Add(m *FrameMessage) bool {
	const head = 10 + 1 + 1 + 10 // of varints at their longest
	if len(w.b)+head+len(m.Device)+len(m.Payload) > MaxFrame || w.n >= MaxFrameMessages {
		return false
	}
	w.b = append(binary.AppendUvarint(w.b, m.Number), m.Kind, byte(len(m.Device)))
	w.b = append(w.b, m.Device...)
	w.b = append(binary.AppendUvarint(w.b, uint64(len(m.Payload))), m.Payload...)
	w.n++
	return true
}

// Bytes is how large the frame is, inflated.
func (w *FrameWriter) Bytes() int { return len(w.b) }

// Frame returns the frame, deflated.
func (w *FrameWriter) Frame() ([]byte, error) {
	out := bytes.NewBuffer([]byte{frameFormat})
	z, err := flate.NewWriter(out, flate.DefaultCompression)
	if err != nil {
		return nil, err
	}
	if _, err = z.Write(w.b); err == nil {
		err = z.Close()
	}
	return out.Bytes(), err
}

// ParseFrame reads a frame, whole or not at all. It inflates no more than MaxFrame. Errors wrap ErrDocument.
func ParseFrame(b []byte) (*Frame, error) {
	bad := func(why string) (*Frame, error) { return nil, fmt.Errorf("%w: a frame %s", ErrDocument, why) }
	if len(b) == 0 || b[0] != frameFormat {
		return bad("of a format that is not known")
	}
	z := flate.NewReader(bytes.NewReader(b[1:]))
	raw, err := io.ReadAll(io.LimitReader(z, MaxFrame+1))
	switch {
	case err != nil || z.Close() != nil:
		return bad("that cannot be inflated")
	case len(raw) > MaxFrame:
		return bad("that is larger than 256 KiB")
	}
	r := frameReader{b: raw}
	f := &Frame{ID: r.uvarint(), Install: hex.EncodeToString(r.take(idBytes))}
	epoch := r.uvarint()
	if f.Epoch = uint32(epoch); r.bad || epoch == 0 || uint64(f.Epoch) != epoch {
		return bad("without an installation and an epoch")
	}
	for len(r.b) > 0 {
		m := FrameMessage{Number: r.uvarint(), Kind: r.byte()}
		m.Device = string(r.take(uint64(r.byte())))
		m.Payload = r.take(r.uvarint())
		switch {
		case r.bad || m.Number == 0 || m.Kind > FrameReports || !validToken(m.Device):
			return bad(fmt.Sprintf("whose message %d is none", len(f.Messages)))
		case len(f.Messages) >= MaxFrameMessages:
			return bad("of more than 2,048 messages")
		}
		f.Messages = append(f.Messages, m)
	}
	if len(f.Messages) == 0 {
		return bad("without messages")
	}
	return f, nil
}

// frameReader reads from an inflated frame.
type frameReader struct {
	b   []byte
	bad bool
}

func (r *frameReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *frameReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *frameReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// parseFramed reads which messages of a frame were refused.
func parseFramed(b []byte) (*Framed, error) {
	f := &Framed{}
	if err := json.Unmarshal(b, f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if len(f.Codes) > MaxFrameMessages {
		return nil, fmt.Errorf("%w: it names more than %d messages", ErrDocument, MaxFrameMessages)
	}
	for _, code := range f.Codes {
		if code != 0 && code < 0x80 {
			return nil, fmt.Errorf("%w: a refusal has the code %#x", ErrDocument, code)
		}
	}
	return f, nil
}
