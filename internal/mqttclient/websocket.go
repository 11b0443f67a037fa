package mqttclient

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"github.com/coder/websocket"
)

// openWebSocket makes a connection in which MQTT is spoken in the binary frames of WebSocket. No redirect is followed and no proxy asked.
func openWebSocket(ctx context.Context, o *Options, security *tls.Config) (net.Conn, error) {
	client := &http.Client{
		Transport:     &http.Transport{DialContext: o.Dial, TLSClientConfig: security, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ws, resp, err := websocket.Dial(ctx, o.URL, &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{"mqtt"}, CompressionMode: websocket.CompressionDisabled})
	switch {
	case err != nil && resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, &NoWebSocket{resp.StatusCode}
	case err != nil:
		return nil, err
	}
	ws.SetReadLimit(maxFrame)
	// The connection lives longer than the connecting.
	return websocket.NetConn(context.WithoutCancel(ctx), ws, websocket.MessageBinary), nil
}

// maxFrame is the largest frame: a broker may put several packets into one.
const maxFrame = 4 * maxPacket

// NoWebSocket says that a server answered with a status of HTTP instead of WebSocket.
type NoWebSocket struct{ Status int }

func (e *NoWebSocket) Error() string { return fmt.Sprintf("HTTP %d instead of WebSocket", e.Status) }
