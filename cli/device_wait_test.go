package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"weir/internal/test/need"
	"weir/internal/test/testweir"
	"weir/operate"
)

// waiter is a weir device add --wait that runs.
type waiter struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr *bufio.Reader
	stdout *bufio.Reader
}

func startWaiter(t *testing.T, p *testweir.Proc, args ...string) *waiter {
	t.Helper()
	w := &waiter{t: t, cmd: exec.Command(testweir.Binary(t), append(args, "--wait=60s", "--config", p.Config)...)}
	w.cmd.Env = testweir.Environ()
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := w.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.cmd.Process.Kill() }) // it may have ended
	w.stdout, w.stderr = bufio.NewReader(out), bufio.NewReader(errs)
	return w
}

// says reads lines until one matches, and returns what its group holds.
func (w *waiter) says(from *bufio.Reader, want string) string {
	w.t.Helper()
	re := regexp.MustCompile(want)
	var read strings.Builder
	for {
		line, err := from.ReadString('\n')
		read.WriteString(line)
		if m := re.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			return m[len(m)-1]
		}
		if err != nil {
			w.t.Fatalf("%v before %s:\n%s", err, want, read.String())
		}
	}
}

// ends waits for the end, which must be a good one.
func (w *waiter) ends() {
	w.t.Helper()
	out, _ := io.ReadAll(w.stdout)
	errs, _ := io.ReadAll(w.stderr)
	if err := w.cmd.Wait(); err != nil {
		w.t.Errorf("%v\n%s\n%s", err, out, errs)
	}
}

func postEvent(t *testing.T, p *testweir.Proc, credential, payload string) {
	t.Helper()
	resp, err := http.Post(p.Ingest+"/weir/acme/events", "application/json", strings.NewReader(`{"credentialType":"ACCESS_TOKEN","credentialId":"`+credential+
		`","device":"boiler-1","eventType":"Measurement","payload":`+payload))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// A user brings a device up: first with a wrong credential, then with a body that does not read, then as it should be.
func TestTheWaitForAFirstReadingShowsWhyItDoesNotComeUntilItDoes(t *testing.T) {
	t.Parallel()
	p := testweir.Start(t, testweir.Options{})
	p.Run("", "tenant", "create", "acme")
	p.Run("", "device", "add", "acme", "other")
	w := startWaiter(t, p, "device", "add", "acme", "boiler-1")
	token := w.says(w.stdout, `^access token \(shown once\): ([0-9a-f]{64})$`)
	w.says(w.stderr, `^waiting 1m0s for the first reading of boiler-1; Ctrl-C ends$`)

	const good = `{"entries":[{"measurements":{"temp":"21.5"}}]}}`
	postEvent(t, p, "not-the-token", good)
	w.says(w.stderr, `^dead letter \(bad-credential\): the credential is wrong, disabled or expired$`)
	w.says(w.stderr, `^  hint: the access token must be whole`)
	if m, code, err := testweir.ConnectMQTT(p.MQTT, "weir:acme:boiler-1", "acme:not-the-token", ""); m != nil || err != nil || code == 0 {
		t.Fatalf("connected with a wrong credential: %v, %v", code, err)
	}
	w.says(w.stderr, `^connection refused \(not-authorized\): no credential of the tenant is the access token in the user name, or it is disabled or has expired$`)
	postEvent(t, p, token, `{"entries":[{"measurements":{"temp":[21.5]}}]}}`)
	w.says(w.stderr, `^refused \(undecodable\): payload: the value of a metric must be a string.* \(it names no device, and may be another's\)$`)
	p.Run("", "send", "acme", "other", "temp=99") // is none of its

	postEvent(t, p, token, good)
	if line := w.says(w.stderr, `^(arrived .*|.*temp=99.*)$`); !strings.HasSuffix(line, " over http: temp=21.5, stored") {
		t.Error(line)
	}
	w.ends()
}

func TestTheWaitSpeaksJSONAndSeesAReadingOverMQTT(t *testing.T) {
	t.Parallel()
	p := testweir.Start(t, testweir.Options{})
	p.Run("", "tenant", "create", "acme")
	w := startWaiter(t, p, "device", "add", "acme", "boiler-1", "--json")
	answer := json.NewDecoder(w.stdout)
	var made operate.DeviceAdded
	if err := answer.Decode(&made); err != nil {
		t.Fatal(err)
	}
	m, err := testweir.DialMQTT(p.MQTT, "weir", "acme", "boiler-1", made.Secret)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Publish("weir/acme/devices/boiler-1/events", 1, false, []byte(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"21.5"}}]}}`)); err != nil {
		t.Fatal(err)
	}
	var seen operate.Seen
	if err := answer.Decode(&seen); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(seen.Outcome, seen.Transport, seen.Values); got != "storedmqtt[temp=21.5]" {
		t.Error(got)
	}
	w.ends()
}

// The commands of a first reading are what the transports take: one is run as it is printed.
func TestThePrintedCurlCommandSendsTheFirstReading(t *testing.T) {
	t.Parallel()
	need.Program(t, "curl")
	p := testweir.Start(t, testweir.Options{})
	p.Run("", "tenant", "create", "acme")
	w := startWaiter(t, p, "device", "add", "acme", "boiler-1", "--print-commands=curl")
	first, _ := w.stdout.ReadString('\n')
	second, _ := w.stdout.ReadString('\n')
	out, err := exec.Command("sh", "-c", first+second).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "202 Accepted") {
		t.Fatalf("%v: %s", err, out)
	}
	w.says(w.stderr, `^arrived after \S+ over http: temp=21.5, stored$`)
	w.ends()
}
