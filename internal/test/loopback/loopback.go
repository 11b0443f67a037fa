// Package loopback connects from any of the sixteen million addresses of the local machine, so that a test can play as many
// senders as it needs, and chooses ports that no other test takes meanwhile.
package loopback

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
)

// Address is the address with that number, 0 the first after 127.0.0.1.
func Address(n int) string { n += 2; return fmt.Sprintf("127.%d.%d.%d", n>>16&0xff, n>>8&0xff, n&0xff) }

// DialContext connects from one of the loopback addresses.
func DialContext(ctx context.Context, source, to string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	return d.DialContext(ctx, "tcp", to)
}

// Dial is DialContext for a connection that ends with the test at the latest.
func Dial(t testing.TB, source, to string) net.Conn {
	t.Helper()
	c, err := DialContext(t.Context(), source, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Refusing is an address that refuses connections for as long as the test lasts: its port is taken, so that no other process
// is given it, and nobody listens.
func Refusing(t testing.TB) string {
	t.Helper()
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(s)
	t.Cleanup(func() { _ = syscall.Close(s) })
	if err := syscall.Bind(s, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}

// The ports that Free chooses from lie below those that a system gives to whoever asks for any port (from 32768 on Linux), so
// that no other test is given one between its choice and its use.
const firstFree, endFree = 20_000, 32_768

// Free is an address of 127.0.0.1 whose port is free, for a server that must be told its port. No two calls of one process
// return the same.
func Free(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := firstFree + rand.IntN(endFree-firstFree)
		if _, chosen := given.LoadOrStore(port, true); chosen {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue // somebody else's
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return address
	}
	t.Fatal("no port is free")
	return ""
}

var given sync.Map
