package lwm2m

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"net"

	"github.com/pion/dtls/v3"
)

// stateForm is the version of the form in which dtlsState is stored. It changes with the fields that the library exports: rows of another form are
// dropped, and their devices shake hands again.
const stateForm = 1

// dtlsState is what the library exports of an established connection (dtls.State.MarshalBinary), field by field: the numbers of its records can
// be read and set in no other way.
type dtlsState struct {
	RemoteSequenceNumber  uint64 // records of the peer below it are not taken any more
	HandshakeComplete     bool
	LocalEpoch            uint16
	RemoteEpoch           uint16
	LocalRandom           [32]byte
	RemoteRandom          [32]byte
	CipherSuiteID         uint16
	MasterSecret          []byte
	SequenceNumber        uint64 // of the next record
	SRTPProtectionProfile uint16
	PeerCertificates      [][]byte
	IdentityHint          []byte
	SessionID             []byte
	LocalConnectionID     []byte
	RemoteConnectionID    []byte
	IsClient              bool
	NegotiatedProtocol    string
}

// errNoState says that a connection has no state that can be exported.
var errNoState = errors.New("lwm2m: the connection is not established")

// exportState returns the state of a connection as of now.
func exportState(conn *dtls.Conn) (d dtlsState, err error) {
	state, ok := conn.ConnectionState()
	if !ok {
		return d, errNoState
	}
	b, err := state.MarshalBinary()
	if err != nil {
		return d, err
	}
	return d, gob.NewDecoder(bytes.NewReader(b)).Decode(&d)
}

// resumeState returns a connection that goes on with a state. Nothing else may go on with it: its first record has the number SequenceNumber.
func resumeState(ctx context.Context, d *dtlsState, conn net.PacketConn, to net.Addr, options ...dtls.Option) (*dtls.Conn, error) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(d); err != nil {
		return nil, err
	}
	var state dtls.State
	if err := state.UnmarshalBinary(b.Bytes()); err != nil {
		return nil, err
	}
	c, err := dtls.ResumeWithOptions(&state, conn, to, options...)
	if err != nil {
		return nil, err
	}
	return c, c.HandshakeContext(ctx)
}

// receivedBy returns the number below which records of the peer are not taken any more: the first field of the exported state, for which the whole
// of it need not be decoded.
func receivedBy(conn *dtls.Conn) (uint64, bool) {
	state, ok := conn.ConnectionState()
	if !ok {
		return 0, false
	}
	b, err := state.MarshalBinary()
	if err != nil {
		return 0, false
	}
	return firstField(b)
}

// firstField returns the first field of the struct in a gob stream, an unsigned number: 0 where it is left out.
func firstField(b []byte) (uint64, bool) {
	for len(b) > 0 {
		size, rest, ok := gobUint(b)
		if !ok || size > uint64(len(rest)) {
			return 0, false
		}
		message := rest[:size]
		b = rest[size:]
		id, message, ok := gobUint(message)
		switch {
		case !ok:
			return 0, false
		case id&1 != 0: // negative: it describes a type
			continue
		}
		field, message, ok := gobUint(message)
		if !ok || field != 1 {
			return 0, ok
		}
		n, _, ok := gobUint(message)
		return n, ok
	}
	return 0, false
}

// gobUint reads an unsigned number as package gob writes it.
func gobUint(b []byte) (n uint64, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	if b[0] < 0x80 {
		return uint64(b[0]), b[1:], true
	}
	size := -int(int8(b[0]))
	if size > 8 || len(b) <= size {
		return 0, nil, false
	}
	for _, c := range b[1 : 1+size] {
		n = n<<8 | uint64(c)
	}
	return n, b[1+size:], true
}

// lastRecord returns the highest number of the records with keys in a datagram of ours, of which those with a connection id have one of idLength bytes.
func lastRecord(b []byte, idLength int) (number uint64, found bool) {
	for len(b) >= recordHeader {
		header := recordHeader
		if b[0] == recordWithID {
			header += idLength
		}
		if len(b) < header {
			break
		}
		if b[3] != 0 || b[4] != 0 {
			n := uint64(0)
			for _, c := range b[5:11] {
				n = n<<8 | uint64(c)
			}
			number, found = max(number, n), true
		}
		size := header + int(b[header-2])<<8 + int(b[header-1])
		if size > len(b) {
			break
		}
		b = b[size:]
	}
	return number, found
}
