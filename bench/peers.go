package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// server is a program that takes PUBACK loads, Weir or another one.
type server struct {
	name    string
	pid     int
	connect func(ctx context.Context, n int) ([]*sender, error)
	check   func(ctx context.Context, acked *outcome) error // that what was acknowledged so far is there; nil: it promises nothing
	stop    func()
	broken  error // how a load into another program ended, nil while all went well
}

// natsModule is what is built from the module proxy when NATS is measured; the product does not depend on it.
const natsModule = "github.com/nats-io/nats-server/v2@v2.15.2"

// mosquitto starts Debian's mosquitto, nil when it is not there.
func (b *bench) mosquitto(ctx context.Context) (*server, error) {
	program, err := exec.LookPath("mosquitto")
	if err != nil {
		if program = "/usr/sbin/mosquitto"; !exists(program) {
			return nil, nil
		}
	}
	addr, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	return b.peer(ctx, "mosquitto", program, addr, mosquittoConf(addr))
}

func mosquittoConf(a address) string {
	return fmt.Sprintf("listener %s %s\nallow_anonymous true\npersistence false\n", a.port, a.host)
}

// nats starts NATS server with a log that is synced before each acknowledgement, nil when it cannot be had. A subscriber
// that is away has a session there: without one JetStream would keep nothing.
func (b *bench) nats(ctx context.Context) (*server, error) {
	program := filepath.Join(b.work, "nats-server")
	if !exists(program) {
		cmd := exec.CommandContext(ctx, "go", "install", natsModule)
		cmd.Dir, cmd.Env = b.work, append(os.Environ(), "GOBIN="+b.work, "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.say.Printf("NATS server cannot be built: %v: %.300s", err, out)
			return nil, ctx.Err()
		}
	}
	core, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	mqtt, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.work, "jetstream")
	if err != nil {
		return nil, err
	}
	s, err := b.peer(ctx, "NATS", program, mqtt, natsConf(core, mqtt, dir))
	if err != nil {
		return nil, err
	}
	stop := s.stop
	s.stop = func() { stop(); _ = os.RemoveAll(dir) } // the working directory goes at the end anyway
	if err := subscribeAway(ctx, mqtt.String(), "weir/#"); err != nil {
		s.stop()
		return nil, fmt.Errorf("NATS: %w", err)
	}
	return s, nil
}

func natsConf(core, mqtt address, dir string) string {
	return fmt.Sprintf("server_name: bench\nlisten: %q\njetstream { store_dir: %q, sync_interval: always }\nmqtt { listen: %q, js_api_timeout: \"60s\" }\n", core, dir, mqtt)
}

// peer runs another program on its configuration, which is given with -c.
func (b *bench) peer(ctx context.Context, name, program string, mqtt address, conf string) (*server, error) {
	file := filepath.Join(b.work, name+".conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-c", file)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() {
		_ = cmd.Process.Kill() // it has no clients any more
		_ = cmd.Wait()
	}
	if err := listens(ctx, mqtt.String()); err != nil {
		stop()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &server{name: name, pid: cmd.Process.Pid, stop: stop, connect: func(ctx context.Context, n int) ([]*sender, error) {
		return connectPlain(ctx, mqtt.String(), n)
	}}, nil
}

// listens waits until a server listens on the address.
func listens(ctx context.Context, addr string) error {
	for tries := 0; ; tries++ {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.Close()
		}
		if tries == 200 {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// subscribeAway leaves a session with a subscription behind.
func subscribeAway(ctx context.Context, addr, filter string) (err error) {
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	var answer [9]byte // a CONNACK and a SUBACK
	if _, err := c.Write(connectPacket("away", "", false)); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, answer[:4]); err != nil {
		return err
	}
	if _, err := c.Write(subscribePacket(filter)); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, answer[4:]); err != nil {
		return err
	}
	if answer[3] != 0 || answer[4] != 0x90 || answer[8] != 1 {
		return fmt.Errorf("CONNACK and SUBACK % x", answer)
	}
	return nil
}

// connectPlain opens n connections without a credential.
func connectPlain(ctx context.Context, addr string, n int) ([]*sender, error) {
	var senders []*sender
	for i := range n {
		d := deviceToken(i)
		c, err := dialMQTT(ctx, addr, "weir:"+tenant+":"+d, "", "weir/"+tenant+"/devices/"+d+"/events")
		if err != nil {
			closeAll(senders)
			return nil, err
		}
		senders = append(senders, &sender{client: c, body: newBody(live, uint64(i)), index: i, of: n})
	}
	return senders, nil
}
