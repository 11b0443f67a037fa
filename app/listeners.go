package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"weir/config"
	"weir/internal/certs"
	"weir/model"
	"weir/operate"
)

// listenersOf are all listeners that an instance with these transports has, in the order in which they are shown: those of
// the API, of the transports, the last one first, and of the operator. One that speaks TLS stays closed without a
// certificate.
func listenersOf(cfg config.Config, kinds []Transport) operate.Listeners {
	all := apiListeners(cfg)
	for _, k := range slices.Backward(kinds) {
		if k.Listeners == nil {
			continue
		}
		all = append(all, k.Listeners(cfg)...)
	}
	all = append(all, metricsListener(cfg), operate.Listener{Name: operate.SocketListener, Access: "the operator; file mode 0600"})
	for i := range all {
		if all[i].TLS && !cfg.TLS.Enabled() {
			all[i].Configured = ""
		}
	}
	return all
}

// listeners are those of the instance, with what of them is open.
type listeners struct {
	mu  sync.Mutex
	all operate.Listeners
}

func (l *listeners) list() operate.Listeners {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// opened notes where a listener really listens.
func (l *listeners) opened(name, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.all {
		if l.all[i].Name == name {
			l.all[i].Address = address
		}
	}
}

// OpenSocket is a listener that is open. Its user closes it.
type OpenSocket struct {
	net.Listener
	About operate.Listener
	TLS   *tls.Config // nil: without TLS
}

// open opens those of the listeners that the configuration does not keep closed: all of them or, with an error, none.
func (b *base) open(pair *certs.Reloader, these []operate.Listener) (open []OpenSocket, err error) {
	for _, l := range b.listeners.list() {
		// Datagram listeners are opened by their transport.
		if l.Configured == "" || l.Datagrams || !slices.ContainsFunc(these, func(t operate.Listener) bool { return t.Name == l.Name }) {
			continue
		}
		socket := OpenSocket{About: l}
		if socket.Listener, err = b.listen(l); err != nil {
			return nil, errors.Join(err, closeAll(open))
		}
		if l.TLS {
			socket.TLS = pair.Server(l.ClientCertificate)
		}
		open = append(open, socket)
	}
	// Note the addresses only once all are open: none is shown of a start that fails.
	for i, s := range open {
		open[i].About.Address = s.Addr().String()
		b.listeners.opened(s.About.Name, s.Addr().String())
	}
	return open, nil
}

// closeAll closes sockets at which no client was accepted.
func closeAll(open []OpenSocket) (err error) {
	for _, s := range open {
		err = errors.Join(err, s.Close())
	}
	return err
}

// listen opens a listener, with AnyPort on a free port where its own is taken.
func (b *base) listen(l operate.Listener) (net.Listener, error) {
	socket, err := net.Listen("tcp", l.Configured)
	// The demonstration takes any port rather than fail.
	if b.opt.AnyPort && errors.Is(err, syscall.EADDRINUSE) {
		if host, _, split := net.SplitHostPort(l.Configured); split == nil {
			socket, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
		}
	}
	if err != nil {
		return nil, notListening(l.Key, l.Configured, err)
	}
	return socket, nil
}

// datagrams opens the UDP socket of a listener, as listen does.
func (b *base) datagrams(l operate.Listener) (net.PacketConn, error) {
	socket, err := net.ListenPacket("udp", l.Configured)
	if b.opt.AnyPort && errors.Is(err, syscall.EADDRINUSE) {
		if host, _, split := net.SplitHostPort(l.Configured); split == nil {
			socket, err = net.ListenPacket("udp", net.JoinHostPort(host, "0"))
		}
	}
	if err != nil {
		return nil, notListening(l.Key, l.Configured, err)
	}
	b.listeners.opened(l.Name, socket.LocalAddr().String())
	return socket, nil
}

// notListening says which listener did not open, and what to do.
func notListening(key, addr string, err error) error {
	variable := "WEIR_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
	e := &model.Error{Message: fmt.Sprintf("%s: %s cannot be opened: %v", key, addr, err), Err: err,
		Hint: fmt.Sprintf("choose another address with %s or %s", key, variable)}
	// The frequent causes have a hint of their own.
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e.Message = fmt.Sprintf("%s: %s is in use by another process", key, addr)
		e.Hint = fmt.Sprintf("stop what has the port (ss -ltnp shows it), or choose another one with %s or %s", key, variable)
	case errors.Is(err, os.ErrPermission):
		e.Hint = fmt.Sprintf("ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one with %s or %s", key, variable)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		e.Hint = fmt.Sprintf("no interface of this machine has the address; choose another one with %s or %s", key, variable)
	}
	return e
}
