package cli

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/test/testweir"
)

// hearer is an init system that is notified of a service's state.
type hearer struct {
	t    *testing.T
	conn *net.UnixConn
}

func hear(t *testing.T, name string) *hearer {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &hearer{t, conn}
}

func (h *hearer) next() string {
	h.t.Helper()
	b := make([]byte, 4096)
	n, err := h.conn.Read(b)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b[:n])
}

// socketPath is a path that is short enough for a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "notify")
}

func TestTheInitSystemIsNotifiedOfReadinessAndOfTheStop(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	h := hear(t, path)
	p := testweir.Start(t, testweir.Options{Env: []string{"NOTIFY_SOCKET=" + path}})
	if got := h.next(); got != "READY=1\nSTATUS=Ready" {
		t.Errorf("first %q", got)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if got := h.next(); got != "STOPPING=1\nSTATUS=Stopping" {
		t.Errorf("then %q", got)
	}
}

// To the init system an instance is ready when devices are served; what a start or a stop waits for extends its timeouts.
func TestTheInitSystemDoesNotWaitForWhatIsApplied(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	h := hear(t, path)
	ctx, stop := context.WithCancel(t.Context())
	s := newInitSystem(ctx, notifier{path}, slog.New(slog.DiscardHandler))
	for _, c := range []struct {
		what func()
		want string
	}{
		{s.serving, "READY=1\nSTATUS=Serving devices; queries wait for what was acknowledged before the start"},
		{func() { s.waits("starting: 3 of 5", 30*time.Second) }, "STATUS=starting: 3 of 5\nEXTEND_TIMEOUT_USEC=30000000"},
		{s.ready, "READY=1\nSTATUS=Ready"},
		{stop, "STOPPING=1\nSTATUS=Stopping"},
		{func() { s.waits("stopping: waiting for applier", 30*time.Second) }, "STATUS=stopping: waiting for applier\nEXTEND_TIMEOUT_USEC=30000000"},
	} {
		c.what()
		if got := h.next(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestAnInitSystemThatDoesNotListenStopsNothing(t *testing.T) {
	t.Parallel()
	p := testweir.Start(t, testweir.Options{Env: []string{"NOTIFY_SOCKET=" + socketPath(t)}})
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(p.Stderr(), "the init system could not be notified") {
		t.Error(p.Stderr())
	}
}

func TestNotifySocketsOfEachSort(t *testing.T) {
	t.Parallel()
	abstract := "@weir-test-" + filepath.Base(filepath.Dir(socketPath(t)))
	h := hear(t, abstract)
	if err := (notifier{abstract}).notify("READY=1"); err != nil || h.next() != "READY=1" {
		t.Errorf("abstract: %v", err)
	}
	if err := (notifier{}).notify("READY=1"); err != nil {
		t.Errorf("none: %v", err)
	}
	if err := (notifier{"vsock:2:1"}).notify("READY=1"); err == nil {
		t.Error("a socket that is no unix socket is taken")
	}
}
