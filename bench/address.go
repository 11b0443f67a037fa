package main

import (
	"context"
	"net"
	"os"
)

type address struct{ host, port string }

func (a address) String() string { return net.JoinHostPort(a.host, a.port) }

// freeAddress returns an address on loopback whose port is free at the moment.
func freeAddress(ctx context.Context) (address, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return address{}, err
	}
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return address{}, err
	}
	return address{host, port}, l.Close()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
