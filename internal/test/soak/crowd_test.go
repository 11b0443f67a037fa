package soak_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// actor is somebody who acts until the context ends. Its error is a fault of the instance. It does one thing after the other;
// there are several of a kind.
type actor struct {
	kind string
	n    int // how many of them
	act  func(ctx context.Context, p *plant, i int) error
}

// crowd is who behaves well: devices that publish all the time, and those who keep the instance.
func crowd() []actor {
	return []actor{
		{"steady 3.1.1", 6, func(ctx context.Context, p *plant, i int) error {
			return p.steady(ctx, overTCP, v311, device("old", i))
		}},
		{"steady 5", 4, func(ctx context.Context, p *plant, i int) error { return p.steady(ctx, overTCP, v5, device("new", i)) }},
		{"steady tls", 2, func(ctx context.Context, p *plant, i int) error {
			return p.steady(ctx, overTLS, v311, device("tls", i))
		}},
		{"steady websocket", 2, func(ctx context.Context, p *plant, i int) error {
			return p.steady(ctx, overWebSocket, v5, device("ws", i))
		}},
		{"http", 4, func(ctx context.Context, p *plant, i int) error { return p.posts(ctx, device("http", i)) }},
		{"reload", 1, func(ctx context.Context, p *plant, _ int) error { return p.reloads(ctx) }},
		{"backup", 1, func(ctx context.Context, p *plant, _ int) error { return p.backups(ctx) }},
		{"api", 1, func(ctx context.Context, p *plant, _ int) error { return p.changes(ctx) }},
	}
}

// every does something again and again until the context ends, which is no error.
func every(ctx context.Context, pace time.Duration, do func(n int) error) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := do(n); err != nil {
			return err
		}
		counted(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// steady is a device whose connection never ends: one message after the other, now and then a large one.
func (p *plant) steady(ctx context.Context, by carrier, version byte, device string) error {
	c, err := p.join(ctx, by, version, device, 60)
	if err != nil {
		return err
	}
	defer c.Close()
	l := p.ledgers[device]
	return every(ctx, 40*time.Millisecond, func(n int) error {
		size := 1
		if n%50 == 49 {
			size = 256
		}
		if err := c.send(version, topic(device), uint16(n%65535)+1, l.reading(size, "")); err != nil {
			return fmt.Errorf("%s: %w", device, err)
		}
		l.certain.Add(int64(size))
		return nil
	})
}

// posts is a device that uses HTTP and keeps its connection.
func (p *plant) posts(ctx context.Context, device string) error {
	tr := &http.Transport{MaxIdleConnsPerHost: 1}
	defer tr.CloseIdleConnections()
	client, l := &http.Client{Transport: tr, Timeout: patience}, p.ledgers[device]
	more := fmt.Sprintf(`"device":%q,"credentialType":"ACCESS_TOKEN","credentialId":%q,`, device, secret(device))
	return every(ctx, 40*time.Millisecond, func(int) error {
		resp, err := client.Post(p.Ingest+"/weir/"+tenant+"/events", "application/json", bytes.NewReader(l.reading(1, more)))
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusAccepted {
			return fmt.Errorf("%s: %s: %s", device, resp.Status, text)
		}
		l.certain.Add(1)
		return nil
	})
}

func (p *plant) reloads(ctx context.Context) error {
	return every(ctx, 5*time.Second, func(int) error { return syscall.Kill(p.PID(), syscall.SIGHUP) })
}

func (p *plant) backups(ctx context.Context) error {
	file := filepath.Join(p.Dir, "soak.backup")
	return every(ctx, 20*time.Second, func(int) error {
		if out, err := p.TryRun("", "backup", "create", file); err != nil {
			return fmt.Errorf("weir backup create: %w: %s", err, out)
		}
		return os.Remove(file)
	})
}

// changes is a program that changes things and looks at readings.
func (p *plant) changes(ctx context.Context) error {
	token := p.reader
	return every(ctx, 200*time.Millisecond, func(n int) error {
		err := p.TryQuery("device-management", token, `mutation($n:String!){updateDevice(token:"old-0",request:{name:$n}){id}}`,
			map[string]any{"n": fmt.Sprint("name ", n)}, nil)
		if err != nil {
			return err
		}
		return p.TryQuery("event-management", token, `{measurementEvents(criteria:{pageNumber:1,pageSize:100}){results{id value}}
			bucketedMeasurements(criteria:{name:"temp",intervalSeconds:60}){count}}`, nil, nil)
	})
}

// churners is how many connections are in the making at a time, churnPerMinute how many are to be made.
const (
	churners       = 16
	churnPerMinute = 10_000
)

// churn makes one connection after the other, each of another kind.
func churn() actor {
	return actor{"churn", churners, func(ctx context.Context, p *plant, i int) error {
		return every(ctx, churners*time.Minute/churnPerMinute, func(n int) error {
			if err := p.visit(ctx, device("churn", i), n); err != nil && ctx.Err() == nil {
				return fmt.Errorf("visit %d: %w", n, err)
			}
			return nil
		})
	}}
}

// visit is a short connection. How it comes and goes follows from its number.
func (p *plant) visit(ctx context.Context, device string, n int) error {
	by, version := overTCP, byte(v311)
	if n%2 == 1 {
		version = v5
	}
	switch n % 20 {
	case 7:
		by = overTLS
	case 13:
		by = overWebSocket
	case 3, 11:
		return p.stranger(ctx, device, version)
	case 5, 15:
		return p.half(ctx, device, version, n)
	}
	c, err := p.join(ctx, by, version, device, 30)
	if err != nil {
		return err
	}
	defer c.Close()
	if n%20 == 9 { // a second connection ends the first
		d, err := p.join(ctx, overTCP, version, device, 30)
		if err != nil {
			return err
		}
		defer d.Close()
		if _, err := c.ended(patience); err != nil {
			return fmt.Errorf("taken over: %w", err)
		}
		c = d
	}
	l := p.ledgers[device]
	if n%4 == 0 { // gone before the answer: nobody knows whether it is kept
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_, err := c.Write(publish(version, topic(device), 1, 1, l.reading(1, "")))
		return err
	}
	if _, err := c.Write(subscribe(version, "weir/"+tenant+"/device-commands/"+device, 9)); err != nil {
		return err
	}
	if _, err := c.expect(9); err != nil {
		return err
	}
	if err := c.send(version, topic(device), 1, l.reading(1, "")); err != nil {
		return err
	}
	l.certain.Add(1)
	_, err = c.Write([]byte{0xE0, 0})
	return err
}

// stranger shows a credential that is none.
func (p *plant) stranger(ctx context.Context, device string, version byte) error {
	c, err := p.dial(ctx, overTCP)
	if err != nil {
		return err
	}
	defer c.Close()
	code, err := c.login(p.connect(version, device, "nobody's", 30))
	if err == nil && code != 5 && code != 0x87 {
		err = fmt.Errorf("a stranger got CONNACK %#x", code)
	}
	return err
}

// half goes away within its CONNECT.
func (p *plant) half(ctx context.Context, device string, version byte, n int) error {
	c, err := p.dial(ctx, overTCP)
	if err != nil {
		return err
	}
	connect := p.connect(version, device, secret(device), 30)
	_, err = c.Write(connect[:n%len(connect)])
	return errors.Join(err, c.Close())
}
