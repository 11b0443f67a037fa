package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"weir/internal/test/testweir"
)

// An instance goes on when the reader of what it prints and logs leaves, and a stop is clean, whatever has started it: a shell, a pipe, or a
// service manager that gives it no input and the variables that Kubernetes and Docker put beside a service called weir.
func TestAnInstanceOutlivesItsReaders(t *testing.T) {
	t.Parallel()
	binary := testweir.Binary(t)
	for _, c := range []struct {
		how, command string
		environ      []string
	}{
		{"a shell", `exec weir run --data data >out 2>err`, nil},
		{"a pipe whose reader leaves", `mkfifo pipe; head -n 1 <pipe >first & exec weir run --data data >pipe 2>&1`, nil},
		{"a service manager", `exec weir run --data data </dev/null >out 2>err`, []string{"WEIR_PORT=tcp://10.0.0.11:8080", "WEIR_SERVICE_HOST=10.0.0.11", "WEIR_SERVICE_PORT=8080",
			"WEIR_PORT_8080_TCP_ADDR=10.0.0.11", "WEIR_TOKEN=of-a-script", "JOURNAL_STREAM=9:1"}},
	} {
		t.Run(c.how, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.Command("sh", "-c", c.command)
			cmd.Dir = dir
			cmd.Env = append([]string{"PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH"), "WEIR_CONFIG=", "WEIR_LISTENERS_API=127.0.0.1:0", "WEIR_LISTENERS_INGEST=127.0.0.1:0",
				"WEIR_LISTENERS_MQTT=127.0.0.1:0", "WEIR_LISTENERS_METRICS=127.0.0.1:0"}, c.environ...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			weir := func(args ...string) (string, error) {
				ask := exec.Command(binary, append(args, "--data", "data")...)
				ask.Dir, ask.Env = dir, cmd.Env
				var out bytes.Buffer
				ask.Stdout, ask.Stderr = &out, &out
				err := ask.Run()
				return out.String(), err
			}
			if out, err := weir("health", "--wait", "60s"); err != nil {
				_ = cmd.Process.Kill()
				t.Fatalf("%v: %s", err, out)
			}
			if out, err := weir("tenant", "create", "acme"); err != nil { // and what it logs of it is lost, or not
				t.Errorf("%v: %s", err, out)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(time.Minute):
				_ = cmd.Process.Kill()
				t.Fatal("it does not stop")
			}
		})
	}
}
