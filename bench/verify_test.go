package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/config"
	"weir/operate"
)

// double stands for an instance: it says what its fields say.
type double struct {
	total, count, fired, missing int64
	sum                          float64
}

func (d double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	doc, _ := io.ReadAll(r.Body) // a document that is cut short matches nothing below
	switch {
	case r.URL.Path == "/v1/status":
		fmt.Fprint(w, `{"log":{"last":7,"applied":7}}`)
	case r.URL.Path == "/v1/ledger":
		fmt.Fprintf(w, `{"hours":[{"received":3,"missing":%d}]}`, d.missing)
	case strings.Contains(string(doc), "ruleHealth"):
		fmt.Fprintf(w, `{"data":{"ruleHealth":[{"ruleToken":"r0","fireCount":%d},{"ruleToken":"r1","fireCount":0}]}}`, d.fired)
	default:
		fmt.Fprintf(w, `{"data":{"measurementEvents":{"pagination":{"totalRecords":%d}},"buckets":[{"sum":%g,"count":%d},{"sum":1,"count":1}]}}`, d.total, d.sum, d.count)
	}
}

func (d double) instance(t *testing.T) *instance {
	t.Helper()
	dir, err := os.MkdirTemp("", "b") // a socket's path has about 100 characters at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "weir.sock"))
	if err != nil {
		t.Fatal(err)
	}
	socket := &httptest.Server{Listener: l, Config: &http.Server{Handler: d}}
	socket.Start()
	t.Cleanup(socket.Close)
	api := httptest.NewServer(d)
	t.Cleanup(api.Close)
	c, err := operate.Dial(t.Context(), config.Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &instance{api: api.URL, client: c}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	want := kept{readings: 1000, sum: 21_500.25, edges: 4, rules: true}
	whole := double{total: 1000, count: 999, sum: 21_499.25, fired: 4}
	for _, c := range []struct {
		name string
		do   func(*double)
		want string
	}{
		{"nothing", func(*double) {}, ""},
		{"a reading", func(d *double) { d.total-- }, "LOSS: 1000 readings were acknowledged, 999 are there"},
		{"a reading of the buckets", func(d *double) { d.count-- }, "LOSS"},
		{"a value", func(d *double) { d.sum -= 0.01 }, "LOSS"},
		{"a reading too many", func(d *double) { d.total++ }, "LOSS"},
		{"an edge", func(d *double) { d.fired-- }, "rule r0 fired 3 times, 4 expected"},
		{"a line of the ledger", func(d *double) { d.missing = 1 }, "ledger"},
	} {
		d := whole
		c.do(&d)
		err := d.instance(t).verify(t.Context(), want)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}
