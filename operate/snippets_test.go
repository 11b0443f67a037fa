package operate

import (
	"go/format"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestReachableNamesAnAddressThatOneCanDial(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{":1883": "127.0.0.1 1883", "0.0.0.0:1": "127.0.0.1 1", "[::]:2": "127.0.0.1 2", "10.0.0.7:3": "10.0.0.7 3",
		"gateway:4": "gateway 4"} {
		host, port := reachable(addr, "")
		if got := host + " " + port; got != want {
			t.Errorf("%s: %s", addr, got)
		}
	}
}

func TestAFirstReadingHasACommandForEveryOpenDoor(t *testing.T) {
	t.Parallel()
	d := &DeviceAdded{Tenant: "acme", Token: "boiler-1", Secret: "s3cret", Entrances: Entrances{Instance: "weir", MQTT: ":1883", Ingest: "[::]:8081"}}
	titles := func() (all string) {
		for _, s := range FirstReading(d, "gateway.lan") {
			all += s.Title + "/" + s.Language + " "
			if !strings.Contains(s.Text, "gateway.lan") || !strings.Contains(s.Text, "s3cret") {
				t.Errorf("%s does not name host and secret:\n%s", s.Title, s.Text)
			}
		}
		return all
	}
	if got := titles(); got != "mosquitto_pub/sh curl/sh Python/python Go/go " {
		t.Errorf("with both transports %q", got)
	}
	d.MQTT = ""
	if got := titles(); got != "curl/sh Go/go " {
		t.Errorf("with HTTP %q", got)
	}
	d.Ingest = ""
	if got := titles(); got != "" {
		t.Errorf("with none %q", got)
	}
}

func TestAFirstReadingTakesTheDoorThatItsHostCanTrust(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		plain      bool
		secure     *SecureListeners
		host       string
		mqtt, http string
		python     string
	}{
		{"no TLS", true, nil, "gw.lan", "-h gw.lan -p 1883 -q", "curl -i http://gw.lan:8081/", `client.connect("gw.lan", 1883)`},
		{"for the host, of a CA of their own", true, &SecureListeners{Names: []string{"gw.lan"}, CAFile: "/etc/weir/my ca.pem"}, "gw.lan",
			"-h gw.lan -p 8883 --cafile '/etc/weir/my ca.pem' -q", "curl -i --cacert '/etc/weir/my ca.pem' https://gw.lan:8444/", `client.tls_set("/etc/weir/my ca.pem")`},
		{"for the host, of a CA that all know", true, &SecureListeners{Names: []string{"*.lan"}}, "gw.lan", "-h gw.lan -p 8883 --tls-use-os-certs -q", "curl -i https://gw.lan:8444/", "client.tls_set()\n"},
		{"for another host", true, &SecureListeners{Names: []string{"weir.example.org"}}, "gw.lan", "-h gw.lan -p 1883 -q", "curl -i http://gw.lan:8081/", `client.connect("gw.lan", 1883)`},
		{"for another host, and nothing else open", false, &SecureListeners{Names: []string{"weir.example.org"}}, "", "-h weir.example.org -p 8883 --tls", "curl -i https://weir.example.org:8444/", `client.connect("weir.example.org", 8883)`},
		{"for localhost", true, &SecureListeners{Names: []string{"localhost"}, CAFile: "ca.pem"}, "", "-h localhost -p 8883 --cafile ca.pem -q", "curl -i --cacert ca.pem https://localhost:8444/", `client.tls_set("ca.pem")`},
	} {
		d := &DeviceAdded{Tenant: "acme", Token: "boiler-1", Secret: "s3cret", Entrances: Entrances{Instance: "weir", Secure: c.secure}}
		if c.plain {
			d.MQTT, d.Ingest = ":1883", ":8081"
		}
		if c.secure != nil {
			c.secure.MQTT, c.secure.Ingest = ":8883", ":8444"
		}
		all := FirstReading(d, c.host)
		if !strings.Contains(all[0].Text, c.mqtt) || !strings.Contains(all[1].Text, c.http) || !strings.Contains(all[2].Text, c.python) {
			t.Errorf("%s:\n%s\n%s\n%s", c.name, all[0].Text, all[1].Text, all[2].Text)
		}
		if strings.Contains(all[2].Text, "tls_set") != strings.Contains(all[0].Text, "-p 8883") {
			t.Errorf("%s: TLS in one of these only:\n%s\n%s", c.name, all[0].Text, all[2].Text)
		}
		if inGo := all[len(all)-1].Title == "Go"; inGo == strings.Contains(all[1].Text, "--cacert") {
			t.Errorf("%s: a program in Go: %v", c.name, inGo)
		}
	}
}

// The program is what a newcomer saves and runs: nothing but Go is needed for it.
func TestTheGoProgramOfAFirstReadingRunsAsItIs(t *testing.T) {
	t.Parallel()
	statuses, posted := make(chan int, 1), make(chan string, 1)
	ingest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a short body is seen below
		posted <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(body)
		w.WriteHeader(<-statuses)
	}))
	defer ingest.Close()
	d := &DeviceAdded{Tenant: "acme", Token: "boiler-1", Secret: "s3cret", Entrances: Entrances{Instance: "weir", Ingest: strings.TrimPrefix(ingest.URL, "http://")}}
	var program string
	for _, s := range FirstReading(d, "") {
		if s.Title == "Go" {
			program = s.Text
		}
	}
	if formatted, err := format.Source([]byte(program)); err != nil || string(formatted) != program {
		t.Errorf("not as gofmt writes it (%v):\n%s", err, program)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "first.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", "first", "first.go")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(answer int) (string, error) {
		statuses <- answer
		out, err := exec.Command(filepath.Join(dir, "first")).CombinedOutput()
		return string(out), err
	}
	if out, err := run(http.StatusAccepted); err != nil || !strings.Contains(out, "202 Accepted") {
		t.Errorf("%v: %s", err, out)
	}
	want := `POST /weir/acme/devices/boiler-1/telemetry Bearer s3cret {"temp": 21.5}`
	select {
	case got := <-posted:
		if got != want {
			t.Errorf("posted %s", got)
		}
	default:
		t.Error("nothing was posted")
	}
	if out, err := run(http.StatusTooManyRequests); err == nil || !strings.Contains(out, "429") {
		t.Errorf("a refusal passes for an arrival: %s", out)
	}
}
