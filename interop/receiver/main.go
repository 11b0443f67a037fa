// Receiver is a number of HTTPS servers that misbehave as the path of a request says, and one of half a record of TLS. It prints their ports, the one
// of the latter last, then each request as a line of JSON.
package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

type request struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Key    string `json:"key"`
	Body   string `json:"body"`
}

func main() {
	servers := 0
	if len(os.Args) == 4 {
		servers, _ = strconv.Atoi(os.Args[3]) // 0: the usage is shown
	}
	if servers < 1 {
		fmt.Fprintln(os.Stderr, "usage: receiver CERTIFICATE KEY SERVERS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], servers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(cert, key string, servers int) error {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	listeners := make([]net.Listener, servers+1)
	ports := make([]any, len(listeners))
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		ports[i] = listeners[i].Addr().(*net.TCPAddr).Port
	}
	fmt.Println(ports...)
	var out sync.Mutex
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		out.Lock()
		_ = json.NewEncoder(os.Stdout).Encode(request{r.Method, r.URL.Path, r.Header.Get("X-Weir-Idempotency-Key"), string(body)})
		out.Unlock()
		answer(w, r)
	})
	ended := make(chan error)
	for _, ln := range listeners[:servers] {
		go func() {
			ended <- http.Serve(tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{pair}}), handler)
		}()
	}
	go halfRecords(listeners[servers])
	return <-ended
}

// answer does what the path says: a status, or one of a few names.
func answer(w http.ResponseWriter, r *http.Request) {
	switch name := strings.TrimPrefix(r.URL.Path, "/"); name {
	case "redirect":
		http.Redirect(w, r, "/redirected", http.StatusTemporaryRedirect)
	case "reset":
		panic(http.ErrAbortHandler)
	case "slow":
		<-r.Context().Done()
	case "huge":
		w.WriteHeader(http.StatusInternalServerError)
		for range 1 << 14 {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	case "429":
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		status, err := strconv.Atoi(name)
		if err != nil {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
	}
}

// halfRecords answers every connection with half a record of TLS.
func halfRecords(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.WriteString(conn, "\x16\x03\x03\x40\x00half")
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}()
	}
}
