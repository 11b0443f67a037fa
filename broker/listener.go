package broker

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"

	"weir/internal/handshake"
	"weir/internal/pipe"
	"weir/model"
)

// Listener is what is spoken on a listening socket.
type Listener struct {
	Name string // in the metrics; "mqtt"
	// TLS is spoken with this; nil: none. A client certificate that it has verified is a credential.
	TLS *tls.Config
	// WebSocket carries MQTT in binary frames, section 6 of both versions, at the path /mqtt.
	WebSocket bool
	// Open serves the open topics of Config.Open, and no device.
	Open bool
	// local is set for connections of the program itself to the open topics: they need no credential.
	local bool
}

// localBuffer is what a direction of a connection within the program holds.
const localBuffer = 64 << 10

// localListener is what metrics call the connections of the program itself.
const localListener = "local"

// ErrNoOpenTopics is returned by DialOpen when Config.Open is not set, or the broker is closing.
var ErrNoOpenTopics = errors.New("broker: there are no open topics")

// DialOpen connects a part of the program to the open topics, without a socket and a credential. What it sends and gets is bounded as for every client.
func (b *Broker) DialOpen() (net.Conn, error) {
	if b.general == nil || b.isClosing() {
		return nil, ErrNoOpenTopics
	}
	ours, theirs := pipe.New(localBuffer)
	b.take(theirs, &Listener{Name: localListener, Open: true, local: true})
	return ours, nil
}

// certificate is the client certificate that TLS has verified. The zero value is none.
type certificate struct {
	hash string // lower-case hex SHA-256
	ends model.Micros
}

func certificateOf(c *x509.Certificate) certificate {
	h := sha256.Sum256(c.Raw)
	return certificate{hex.EncodeToString(h[:]), model.MicrosOf(c.NotAfter)}
}

// open does the handshakes that come before MQTT: TLS and WebSocket. The deadline of the CONNECT holds for both. It returns
// why it failed, as the label of the metric.
func (l *Listener) open(raw net.Conn) (conn net.Conn, in *bufio.Reader, shown certificate, why, detail string) {
	conn = raw
	if l.TLS != nil {
		secure := tls.Server(raw, l.TLS)
		if err := secure.HandshakeContext(context.Background()); err != nil {
			return nil, nil, shown, handshake.Reason, handshake.Text(err)
		}
		if s := secure.ConnectionState(); len(s.VerifiedChains) > 0 {
			shown = certificateOf(s.PeerCertificates[0])
		}
		conn = secure
	}
	if l.WebSocket {
		ws, err := upgrade(conn)
		if err != nil {
			return nil, nil, shown, "websocket", "no WebSocket could be opened: " + err.Error()
		}
		conn = ws
	}
	return conn, bufio.NewReaderSize(conn, readBuffer), shown, "", ""
}
