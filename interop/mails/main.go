// Mails sends messages with package notify/channel to a mail server, and prints what became of them.
//
//	mails GALLERY HOST:PORT SECURITY USER PASSWORD CA
//
// GALLERY has the messages, as the tests of the package write them with -gallery. SECURITY is that of the channel; an empty USER signs in nowhere. Every
// message is sent in its order; the first failure ends it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"crypto/x509"

	"weir/internal/delivery"
	"weir/notify/channel"
)

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: mails GALLERY HOST:PORT SECURITY USER PASSWORD CA")
		os.Exit(2)
	}
	sent, err := send(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	fmt.Printf("%d sent\n", sent)
	if err == nil {
		return
	}
	if f := delivery.Of(err); f != nil {
		fmt.Printf("%s: %v\n", f.Outcome, err)
	}
	if u, ok := errors.AsType[*channel.Undelivered](err); ok {
		fmt.Printf("not to %q\n", u.Recipients)
	}
	os.Exit(1)
}

func send(gallery, address, security, user, password, ca string) (sent int, err error) {
	text, err := os.ReadFile(gallery)
	if err != nil {
		return 0, err
	}
	var samples []struct{ Message channel.Message }
	if err := json.Unmarshal(text, &samples); err != nil {
		return 0, err
	}
	authorities, err := os.ReadFile(ca)
	if err != nil {
		return 0, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return 0, err
	}
	config := map[string]any{"host": host, "port": number, "security": security, "from": "Wärme <weir@example.com>"}
	if user != "" {
		config["username"] = user
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return 0, err
	}
	if err := channel.Check("smtp", string(encoded), password != "", true); err != nil {
		return 0, err
	}
	env := channel.Env{Dial: (&net.Dialer{}).DialContext, Roots: roots, Instance: "weir", Now: time.Now}
	for _, s := range samples {
		if err := channel.Send(context.Background(), env, channel.Channel{Type: "smtp", Config: string(encoded), Secret: password}, s.Message); err != nil {
			return sent, err
		}
		sent++
	}
	return sent, nil
}
