// Package loopback connects from any of the sixteen million addresses of the local machine, so that a test can play as many
// senders as it needs.
package loopback

import (
	"context"
	"fmt"
	"net"
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
