package broker

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // RFC 6455 names it; it protects nothing
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// websocketPath is where MQTT is served; websocketProtocol is what a client must offer (MQTT-6.0.0-3).
const (
	websocketPath     = "/mqtt"
	websocketProtocol = "mqtt"
)

// maxUpgrade bounds the request of an unauthenticated client, in bytes.
const maxUpgrade = 8 << 10

var errUpgrade = errors.New("broker: no WebSocket was opened")

// upgrade reads the opening handshake of RFC 6455, section 4.2, and answers it. A refusal has a status, and the
// connection cannot be used any more.
func upgrade(conn net.Conn) (*wsConn, error) {
	bounded := &boundedReader{r: conn, left: maxUpgrade}
	in := bufio.NewReaderSize(bounded, readBuffer)
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUpgrade, err)
	}
	if status, why := judgeUpgrade(r); status != http.StatusSwitchingProtocols {
		more := ""
		if status == http.StatusUpgradeRequired {
			more = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n%sConnection: close\r\n\r\n%s\n",
			status, http.StatusText(status), len(why)+1, more, why); err == nil {
			linger(conn)
		}
		return nil, fmt.Errorf("%w: %s", errUpgrade, why)
	}
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n", acceptKey(r.Header.Get("Sec-WebSocket-Key")), websocketProtocol)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUpgrade, err)
	}
	bounded.left = -1
	return &wsConn{Conn: conn, in: in}, nil
}

// judgeUpgrade returns 101, or the status of the refusal and its reason. The origin does not matter: what a client
// may do follows from the credential in its CONNECT, which no browser adds by itself.
func judgeUpgrade(r *http.Request) (status int, why string) {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	switch {
	case r.URL.Path != websocketPath:
		return http.StatusNotFound, "MQTT over WebSocket is at " + websocketPath
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, "a WebSocket begins with GET"
	case !r.ProtoAtLeast(1, 1) || !hasToken(r.Header["Connection"], "upgrade") || !hasToken(r.Header["Upgrade"], "websocket"):
		return http.StatusUpgradeRequired, "only MQTT over WebSocket is spoken here"
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return http.StatusUpgradeRequired, "the version of WebSocket must be 13"
	case err != nil || len(key) != 16 || r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return http.StatusBadRequest, "this is no opening of a WebSocket"
	case !hasToken(r.Header["Sec-Websocket-Protocol"], websocketProtocol):
		return http.StatusBadRequest, "the subprotocol must be " + websocketProtocol
	}
	return http.StatusSwitchingProtocols, ""
}

// hasToken reports whether a header that is a list has a token, in whatever case.
func hasToken(lines []string, token string) bool {
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(one), token) {
				return true
			}
		}
	}
	return false
}

// acceptKey answers the key of a client, RFC 6455, section 4.2.2.
func acceptKey(key string) string {
	h := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	return base64.StdEncoding.EncodeToString(h[:])
}

// boundedReader reads so many bytes and no more; -1: as many as there are.
type boundedReader struct {
	r    io.Reader
	left int
}

func (b *boundedReader) Read(p []byte) (int, error) {
	switch {
	case b.left < 0:
		return b.r.Read(p)
	case b.left == 0:
		return 0, errUpgrade
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
