// Package lwm2mpeer is a small LwM2M client for tests: it shakes hands, registers, answers the server from a table of resources, and
// notifies. It has its own few lines of CoAP, so that a mistake of the server's codec is not made twice.
package lwm2mpeer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/pion/dtls/v3"
)

// Message is a CoAP message.
type Message struct {
	Type    byte // 0 confirmable, 1 non-confirmable, 2 acknowledgement, 3 reset
	Code    byte // class<<5 | detail
	ID      uint16
	Token   string
	Options []Option
	Payload []byte
}

// Option is an option of a message.
type Option struct {
	Number int
	Value  []byte
}

// Code2 makes a code of class and detail: Code2(2, 5) is 2.05.
func Code2(class, detail byte) byte { return class<<5 | detail }

// Path is the Uri-Path or, in answers, the Location-Path.
func (m *Message) Path(number int) string {
	var all []string
	for _, o := range m.Options {
		if o.Number == number {
			all = append(all, string(o.Value))
		}
	}
	return "/" + strings.Join(all, "/")
}

// Uint is the first option with a number, -1 for none.
func (m *Message) Uint(number int) int {
	for _, o := range m.Options {
		if o.Number == number {
			v := 0
			for _, c := range o.Value {
				v = v<<8 | int(c)
			}
			return v
		}
	}
	return -1
}

// Queries are the Uri-Query options.
func (m *Message) Queries() (all []string) {
	for _, o := range m.Options {
		if o.Number == 15 {
			all = append(all, string(o.Value))
		}
	}
	return all
}

func number(v int) []byte {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(v))
	i := 0
	for i < 4 && b[i] == 0 {
		i++
	}
	return b[i:]
}

func (m *Message) bytes() []byte {
	b := []byte{0x40 | m.Type<<4 | byte(len(m.Token)), m.Code, byte(m.ID >> 8), byte(m.ID)}
	b = append(b, m.Token...)
	last := 0
	for _, o := range m.Options { // in the order of their numbers
		part := func(n int) (byte, []byte) {
			switch {
			case n < 13:
				return byte(n), nil
			case n < 269:
				return 13, []byte{byte(n - 13)}
			}
			return 14, []byte{byte((n - 269) >> 8), byte(n - 269)}
		}
		d, dx := part(o.Number - last)
		l, lx := part(len(o.Value))
		b = append(append(append(b, d<<4|l), dx...), lx...)
		b = append(b, o.Value...)
		last = o.Number
	}
	if len(m.Payload) > 0 {
		b = append(append(b, 0xff), m.Payload...)
	}
	return b
}

func parse(b []byte) (*Message, error) {
	if len(b) < 4 {
		return nil, errors.New("short")
	}
	n := int(b[0] & 15)
	m := &Message{Type: b[0] >> 4 & 3, Code: b[1], ID: binary.BigEndian.Uint16(b[2:]), Token: string(b[4 : 4+n])}
	b = b[4+n:]
	last := 0
	for len(b) > 0 {
		if b[0] == 0xff {
			m.Payload = b[1:]
			return m, nil
		}
		d, l := int(b[0]>>4), int(b[0]&15)
		b = b[1:]
		for _, v := range []*int{&d, &l} {
			switch *v {
			case 13:
				*v, b = int(b[0])+13, b[1:]
			case 14:
				*v, b = int(binary.BigEndian.Uint16(b))+269, b[2:]
			}
		}
		last += d
		m.Options = append(m.Options, Option{last, b[:l]})
		b = b[l:]
	}
	return m, nil
}

// Options configure a client.
type Options struct {
	Server   string // host:port
	Identity string
	Key      []byte
	Local    string        // address; "" is any
	Timeout  time.Duration // of the handshake; 10 s
	// Handle answers a request of the server; nil: 4.04. Its answer needs a code, options and a payload only; nil says nothing.
	Handle func(m *Message) *Message
	// NoConnectionID leaves the extension out.
	NoConnectionID bool
	// Certificate proves the client instead of a key; an empty one is not shown.
	Certificate *tls.Certificate
	// Trusts is called with the certificate of the server; nil: any is good.
	Trusts func(der []byte) error
	// Suites are the cipher suites; nil: one with CCM_8.
	Suites []dtls.CipherSuiteID
}

// security are the options of how the client proves itself.
func (o *Options) security() []dtls.ClientOption {
	suites := o.Suites
	if o.Certificate == nil {
		if suites == nil {
			suites = []dtls.CipherSuiteID{dtls.TLS_PSK_WITH_AES_128_CCM_8}
		}
		return []dtls.ClientOption{dtls.WithPSK(func([]byte) ([]byte, error) { return o.Key, nil }), dtls.WithPSKIdentityHint([]byte(o.Identity)), dtls.WithCipherSuites(suites...)}
	}
	if suites == nil {
		suites = []dtls.CipherSuiteID{dtls.TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8}
	}
	options := []dtls.ClientOption{dtls.WithCipherSuites(suites...), dtls.WithInsecureSkipVerify(true)}
	if len(o.Certificate.Certificate) > 0 {
		options = append(options, dtls.WithCertificates(*o.Certificate))
	}
	return append(options,
		dtls.WithVerifyPeerCertificate(func(chain [][]byte, _ [][]*x509.Certificate) error {
			if o.Trusts == nil {
				return nil
			}
			return o.Trusts(chain[0])
		}))
}

// Client is a connected client.
type Client struct {
	conn   *dtls.Conn
	opt    Options
	mu     sync.Mutex
	id     uint16
	waits  map[uint16]chan *Message
	tokens map[string]string // path → token of the observation
	counts map[string]int
	resets chan uint16
	ended  chan struct{}
	Seen   chan *Message // requests of the server, as far as they fit
}

// Dial shakes hands.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	local := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	if o.Local != "" {
		var err error
		if local, err = net.ResolveUDPAddr("udp", o.Local); err != nil {
			return nil, err
		}
	}
	to, err := net.ResolveUDPAddr("udp", o.Server)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUDP("udp", local)
	if err != nil {
		return nil, err
	}
	options := append(o.security(), dtls.WithFlightInterval(200*time.Millisecond))
	if !o.NoConnectionID {
		options = append(options, dtls.WithConnectionIDGenerator(dtls.OnlySendCIDGenerator()))
	}
	conn, err := dtls.ClientWithOptions(socket, to, options...)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	c := &Client{conn: conn, opt: o, waits: map[uint16]chan *Message{}, tokens: map[string]string{}, counts: map[string]int{}, resets: make(chan uint16, 16), ended: make(chan struct{}),
		Seen: make(chan *Message, 256)}
	go c.run()
	return c, nil
}

// Close ends the session.
func (c *Client) Close() error { return c.conn.Close() }

// Ended is closed when the session is over.
func (c *Client) Ended() <-chan struct{} { return c.ended }

// Resets are the message ids that the server has reset.
func (c *Client) Resets() <-chan uint16 { return c.resets }

func (c *Client) run() {
	defer close(c.ended)
	buf := make([]byte, 16<<10)
	for {
		n, err := c.conn.Read(buf)
		if err != nil {
			return
		}
		m, err := parse(append([]byte(nil), buf[:n]...))
		if err != nil {
			continue
		}
		if m.Code > 0 && m.Code < 32 {
			c.serve(m)
			continue
		}
		c.mu.Lock()
		w := c.waits[m.ID]
		c.mu.Unlock()
		if m.Type == 3 {
			select {
			case c.resets <- m.ID:
			default:
			}
		}
		if w != nil {
			select {
			case w <- m:
			default:
			}
		}
	}
}

// serve answers a request of the server. It notes observations.
func (c *Client) serve(m *Message) {
	select {
	case c.Seen <- m:
	default:
	}
	answer := &Message{Code: Code2(4, 4)}
	if c.opt.Handle != nil {
		answer = c.opt.Handle(m)
	}
	if answer == nil {
		return
	}
	if observe := m.Uint(6); answer.Code>>5 == 2 && (m.Code == 1 || m.Code == 5) {
		c.mu.Lock()
		switch observe {
		case 0:
			c.tokens[m.Path(11)] = m.Token
			answer.Options = append([]Option{{6, number(c.next(m.Path(11)))}}, answer.Options...)
		case 1:
			delete(c.tokens, m.Path(11))
		}
		c.mu.Unlock()
	}
	answer.Type, answer.ID, answer.Token = 2, m.ID, m.Token
	_, _ = c.conn.Write(answer.bytes())
}

// next is the next Observe number of a path. The lock is held.
func (c *Client) next(path string) int {
	c.counts[path]++
	return c.counts[path]
}

// Observed reports whether the server observes a path.
func (c *Client) Observed(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tokens[path] != ""
}

// errTimeout says that the server has not answered.
var errTimeout = errors.New("no answer of the server")

// Ask sends a confirmable message, again after a second while there is no answer, and returns the answer.
func (c *Client) Ask(ctx context.Context, m *Message) (*Message, error) {
	c.mu.Lock()
	c.id++
	m.ID = c.id
	w := make(chan *Message, 4)
	c.waits[m.ID] = w
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waits, m.ID)
		c.mu.Unlock()
	}()
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		if _, err := c.conn.Write(m.bytes()); err != nil {
			return nil, err
		}
		select {
		case answer := <-w:
			return answer, nil
		case <-t.C:
		case <-ctx.Done():
			return nil, errTimeout
		case <-c.ended:
			return nil, net.ErrClosed
		}
	}
}

// Request sends a request of a code to a path with queries.
func (c *Client) Request(ctx context.Context, code byte, path string, queries []string, format int, body []byte) (*Message, error) {
	m := &Message{Code: code, Token: "t"}
	for s := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		m.Options = append(m.Options, Option{11, []byte(s)})
	}
	if format >= 0 {
		m.Options = append(m.Options, Option{12, number(format)})
	}
	for _, q := range queries {
		m.Options = append(m.Options, Option{15, []byte(q)})
	}
	m.Payload = body
	return c.Ask(ctx, m)
}

// Register registers and returns the location.
func (c *Client) Register(ctx context.Context, queries []string, links string) (string, error) {
	answer, err := c.Request(ctx, 2, "/rd", queries, 40, []byte(links))
	if err != nil {
		return "", err
	}
	if answer.Code != Code2(2, 1) {
		return "", fmt.Errorf("the registration is answered %d.%02d", answer.Code>>5, answer.Code&31)
	}
	return answer.Path(8), nil
}

// Notify sends a confirmable notification of a path that is observed, and returns once it is acknowledged.
func (c *Client) Notify(ctx context.Context, path string, format int, body []byte) (*Message, error) {
	return c.Ask(ctx, c.Notification(path, format, body))
}

// Notification makes one.
func (c *Client) Notification(path string, format int, body []byte) *Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Message{Code: Code2(2, 5), Token: c.tokens[path], Options: []Option{{6, number(c.next(path))}, {12, number(format)}}, Payload: body}
}
