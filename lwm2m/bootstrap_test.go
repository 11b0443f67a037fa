package lwm2m

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
	"weir/lwm2m/content"
	"weir/model"
)

// mints makes keys, and remembers which are given back.
type mints struct {
	mu        sync.Mutex
	made      int
	discarded []string
}

func (m *mints) mint(_ context.Context, b model.Binding) (Minted, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	return Minted{TenantID: b.TenantID, Token: "k1", Identity: "acme:meter:0001", Secret: []byte("fedcba9876543210")}, nil
}

func (m *mints) discard(_ context.Context, k Minted) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.discarded = append(m.discarded, k.Token)
	return nil
}

// blank is a device that waits for its accounts.
type blank struct {
	mu      sync.Mutex
	asked   []string
	written map[string][]content.Record
	refuses string // what begins so is answered 4.00
	links   string // its answer to a Bootstrap-Discover; "": it does not know that
	finish  chan struct{}
}

func (d *blank) handle(m *lwm2mpeer.Message) *lwm2mpeer.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := m.Path(11)
	line := []string{"", "GET", "POST", "PUT", "DELETE"}[m.Code] + " " + path
	d.asked = append(d.asked, line)
	if d.refuses != "" && strings.HasPrefix(line, d.refuses) {
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 0)}
	}
	switch {
	case m.Code == 1 && path == "/":
		if d.links == "" {
			return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 5)}
		}
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 5), Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{40}}}, Payload: []byte(d.links)}
	case m.Code == 1:
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 5), Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{110}}}, Payload: []byte(`[{"n":"/1/3/0","v":101},{"n":"/1/3/1","v":60},{"n":"/1/3/2","v":7},{"n":"/1/3/6","vb":false}]`)}
	case m.Code == 3:
		p, _ := content.ParsePath(path)
		records, err := content.Decode(uint16(m.Uint(12)), p, m.Payload, 0)
		if err != nil {
			return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 0)}
		}
		d.written[path] = records
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 4)}
	case m.Code == 4:
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 2)}
	case m.Code == 2 && path == "/bs":
		close(d.finish)
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 4)}
	}
	return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 5)}
}

// text is a value that was written, as text.
func (d *blank) text(path string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, all := range d.written {
		for _, r := range all {
			if r.Path.String() == path {
				if r.Value.Kind == content.Bytes {
					return string(r.Value.Bytes)
				}
				return content.FormatText(r.Value)
			}
		}
	}
	return "none"
}

// booted is a server with a bootstrap server, and the address of that.
func booted(t *testing.T, set Settings, m *mints) (*life, string) {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := live(t, &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}, set, func(deps *Deps) {
		deps.Bootstrap = &BootstrapDeps{Listen: func() (net.PacketConn, error) { return socket, nil }, Keys: keysOf{"boot": []byte("00112233445566778")}, Mint: m.mint, Discard: m.discard}
	})
	return l, socket.LocalAddr().String()
}

func (d *blank) dial(t *testing.T, address string) *lwm2mpeer.Client {
	t.Helper()
	d.written, d.finish = map[string][]content.Record{}, make(chan struct{})
	c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: address, Identity: "boot", Key: []byte("00112233445566778"), Timeout: time.Minute, Handle: d.handle})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var bootSettings = Settings{PublicURI: "coaps://weir.example:5684", Bootstrap: BootstrapSettings{Lifetime: time.Hour, Binding: "U", Extra: []string{"/3/0/15=Europe/Berlin", "/3/0/13=1700000000"}}}

func TestABootstrapGivesADeviceItsAccount(t *testing.T) {
	t.Parallel()
	m := &mints{}
	l, address := booted(t, bootSettings, m)
	finished := 0.0
	for name, d := range map[string]*blank{"1.1": {links: `</>;lwm2m=1.1,</0/0>,</0/1>;ssid=101,</1/3>;ssid=101`}, "1.0": {links: `lwm2m="1.0",</0/1>,</0/0>;ssid=7`}, "without discover": {}} {
		t.Run(name, func(t *testing.T) {
			c := d.dial(t, address)
			if answer, err := c.Request(t.Context(), 1, "/bspack", []string{"ep=meter"}, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(4, 4) {
				t.Errorf("a pack is answered %+v, %v", answer, err)
			}
			if answer, err := c.Request(t.Context(), 2, "/rd", []string{"ep=meter"}, 40, []byte("</1/0>")); err != nil || answer.Code != lwm2mpeer.Code2(4, 4) {
				t.Errorf("a Register is answered %+v, %v", answer, err)
			}
			queries := []string{"ep=meter"}
			if name == "1.1" {
				queries = append(queries, "pct=110")
			}
			if answer, err := c.Request(t.Context(), 2, "/bs", queries, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(2, 4) {
				t.Fatalf("the request is answered %+v, %v", answer, err)
			}
			<-d.finish
			finished++
			poll.True(t, "it is counted", func() bool { return testutil.ToFloat64(l.boot.ended.WithLabelValues(bootFinished)) == finished })
			security := map[string]string{"1.1": "/0/1", "1.0": "/0/0", "without discover": "/0/1"}[name]
			want := map[string]string{security + "/0": "coaps://weir.example:5684", security + "/1": "0", security + "/2": "0", security + "/3": "acme:meter:0001", security + "/5": "fedcba9876543210",
				security + "/10": "101", "/1/0/0": "101", "/1/0/1": "3600", "/1/0/6": "1", "/1/0/7": "U", "/1/0/2": "none", "/1/0/23": "none", "/3/0/15": "Europe/Berlin", "/3/0/13": "1700000000"}
			if name == "1.1" {
				want["/1/0/2"], want["/1/0/6"], want["/1/0/23"] = "7", "0", "0"
			}
			for path, value := range want {
				if got := d.text(path); got != value {
					t.Errorf("%s is %q, want %q", path, got, value)
				}
			}
			order := []string{"GET /", "DELETE /0", "DELETE /1", "PUT " + security, "PUT /1/0", "PUT /3/0/15", "PUT /3/0/13", "POST /bs"}
			if name == "1.1" {
				order = slices.Insert(order, 1, "GET /1")
			}
			d.mu.Lock()
			if !slices.Equal(d.asked, order) {
				t.Errorf("asked: %q", d.asked)
			}
			d.mu.Unlock()
		})
	}
	if m.made != 3 || len(m.discarded) != 0 {
		t.Errorf("made %d, given back %q", m.made, m.discarded)
	}
}

// TestABootstrapThatFails: a key that the device was not given is removed; one that it may have stays.
func TestABootstrapThatFails(t *testing.T) {
	t.Parallel()
	for refuses, discarded := range map[string]int{"DELETE /1": 0, "PUT /0": 0, "POST /bs": 0} {
		m := &mints{}
		l, address := booted(t, bootSettings, m)
		d := &blank{refuses: refuses}
		c := d.dial(t, address)
		if answer, err := c.Request(t.Context(), 2, "/bs", []string{"ep=meter"}, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(2, 4) {
			t.Fatalf("%+v, %v", answer, err)
		}
		poll.True(t, refuses, func() bool { return testutil.ToFloat64(l.boot.ended.WithLabelValues(bootRefused)) == 1 })
		if m.mu.Lock(); len(m.discarded) != discarded {
			t.Errorf("%s: given back %q", refuses, m.discarded)
		}
		m.mu.Unlock()
	}
}

// TestABootstrapKeyOpensNothingElse, and the key of a device does not open the bootstrap server.
func TestABootstrapKeyOpensNothingElse(t *testing.T) {
	t.Parallel()
	l, address := booted(t, bootSettings, &mints{})
	for _, o := range []lwm2mpeer.Options{{Server: l.address, Identity: "boot", Key: []byte("00112233445566778")}, {Server: address, Identity: "meter", Key: []byte("0123456789abcdef")}} {
		o.Timeout = 2 * time.Second
		if c, err := lwm2mpeer.Dial(t.Context(), o); err == nil {
			_ = c.Close()
			t.Errorf("%s is let in at %s", o.Identity, o.Server)
		}
	}
}

func TestExtraResourcesOfBootstrap(t *testing.T) {
	for text, want := range map[string]string{"/3/0/15=a=b": "a=b", "/3/0/13=17": "17", "/5/0/3=x": "", "/0/0/0=x": "", "/1/0/1=5": "", "/3/0=1": "", "x": "", "/3/0/14": ""} {
		r, err := ParseExtra(text)
		if got := content.FormatText(r.Value); err == nil != (want != "") || err == nil && got != want {
			t.Errorf("%s: %q %v", text, got, err)
		}
	}
}

// FuzzDiscovered: no answer to a Bootstrap-Discover makes the reader fail.
func FuzzDiscovered(f *testing.F) {
	f.Add(`</>;lwm2m=1.1,</0/0>,</0/1>;ssid=101,</1/3>;ssid=101`)
	f.Add(`lwm2m="1.0",</0/1>,</0/0>;ssid=7`)
	f.Add(`lwm2m=`)
	f.Add(`,</0/65535>`)
	f.Fuzz(func(t *testing.T, body string) {
		if _, bs := readDiscovered(body); bs != 0 && !strings.Contains(body, "/0/") {
			t.Fatalf("%q names no security object, and /0/%d is one", body, bs)
		}
	})
}
