package edge

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"weir/ingest"
	"weir/internal/setting"
	"weir/spool"
	"weir/spool/bolt"
)

// acknowledges is a broker that acknowledges and keeps nothing, with a window of 4,096.
func acknowledges(b *testing.B) (address string, got chan struct{}) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = ln.Close() })
	got = make(chan struct{}, 1<<20)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go acknowledge(c, got)
		}
	}()
	return ln.Addr().String(), got
}

func acknowledge(c net.Conn, got chan<- struct{}) {
	defer c.Close()
	in, out := bufio.NewReaderSize(c, 64<<10), bufio.NewWriterSize(c, 64<<10)
	for {
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
		first, err := in.ReadByte()
		if err != nil {
			return
		}
		n, err := binary.ReadUvarint(in)
		if err != nil {
			return
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		switch first >> 4 {
		case 1:
			_, _ = out.Write([]byte{0x20, 6, 0, 0, 3, 0x21, 0x10, 0x00})
		case 3:
			topic := int(binary.BigEndian.Uint16(body))
			_, _ = out.Write([]byte{0x40, 2, body[2+topic], body[3+topic]})
			got <- struct{}{}
		case 12:
			_, _ = out.Write([]byte{0xd0, 0})
		}
	}
}

// BenchmarkDrain forwards a backlog of one reading each.
func BenchmarkDrain(b *testing.B) {
	address, got := acknowledges(b)
	dir := b.TempDir()
	start := time.Now()
	s := Settings{Uplink: UplinkSettings{BrokerURL: "tcp://" + address}}
	setting.FillDefaults(&s)
	e, err := Open(Config{Settings: s, InstanceID: "weir", Dir: dir + "/edge"}, Deps{Dial: (&net.Dialer{}).DialContext, Now: func() (time.Time, time.Duration) { return time.Now(), time.Since(start) }, Boot: 1,
		Open: func(o OpenLog) (spool.Log, *Began, error) {
			l, err := bolt.Open(dir+"/spool", bolt.Options{Capacity: spool.Capacity{MaxBytes: 1 << 30}, PairID: o.PairID, MinOffset: o.MinOffset, MinEpoch: o.MinEpoch})
			return l, nil, err
		}})
	if err != nil {
		b.Fatal(err)
	}
	stored := make(chan struct{}, b.N)
	for i := range b.N {
		a := &ingest.Arrival{Transport: ingest.TransportMQTT, Tenant: "acme", Topic: "pump-1", ClientID: "c", HoldFor: -1,
			Body: fmt.Appendf(nil, `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"%d.5"}}]}}`, i)}
		e.Intake().Accept(b.Context(), a, func(ingest.Answer) { stored <- struct{}{} })
	}
	for range b.N {
		<-stored
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	b.ResetTimer()
	go func() { ended <- e.Run(ctx) }()
	for range b.N {
		<-got
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
	if err := e.Close(); err != nil {
		b.Error(err)
	}
}
