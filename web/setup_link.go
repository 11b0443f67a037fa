package web

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"weir/auth"
	"weir/model"
)

// SetupLink is a new one-time link, at every address where the page may be reached.
type SetupLink struct {
	URLs    []string  `json:"urls"`
	Expires time.Time `json:"expires"`
	// Hint says how to reach the page from another machine, "" where the link does.
	Hint string `json:"hint,omitempty"`
}

// Link makes a new link, which ends the one before. It is refused once an administrator exists.
func (s *Setup) Link() (*SetupLink, error) {
	scheme, listen := s.cfg.Listener()
	if listen == "" {
		return nil, &model.Error{Code: model.CodeUnsupported, Message: "the API listener is closed: there is no setup page",
			Hint: "open it with listeners.api, or make the administrator with weir admin create"}
	}
	secret, until, err := s.links.Mint()
	if err != nil {
		return nil, err
	}
	l := &SetupLink{Expires: until.UTC().Truncate(time.Second), Hint: setupHint(s.cfg.BaseURL, listen)}
	for _, at := range setupURLs(s.cfg.BaseURL, listen, hostName(), ownAddresses()) {
		if s.cfg.BaseURL == "" {
			at = scheme + strings.TrimPrefix(at, "http")
		}
		l.URLs = append(l.URLs, at+setupPath+"#"+secret)
	}
	return l, nil
}

// Print prints the link of a first start. The log says that it waits, and never the link itself.
func (s *Setup) Print(out io.Writer) {
	if _, listen := s.cfg.Listener(); out == io.Discard || listen == "" {
		return
	}
	l, err := s.Link()
	if err != nil { // an administrator was made this very moment
		return
	}
	fmt.Fprintf(out, "or in a browser, with this link: it is good once, for %d minutes (a new one: weir admin link --data %s)\n",
		int(auth.SetupLife.Minutes()), s.cfg.DataDir)
	for _, u := range l.URLs {
		fmt.Fprintf(out, "  %s\n", u)
	}
	if l.Hint != "" {
		fmt.Fprintf(out, "  (%s)\n", l.Hint)
	}
	s.cfg.Log.Info("no account can sign in yet: the setup page waits for the link that was printed", "until", l.Expires)
}

// maxSetupURLs bounds the addresses of a machine with many networks.
const maxSetupURLs = 8

// setupURLs returns where the API can be reached: at base, when it is set, else at the address that it listens on. For
// a listener on every interface these are the machine's name and its own addresses; one with neither is reached by itself.
func setupURLs(base, listen, name string, own []netip.Addr) []string {
	if base != "" {
		return []string{strings.TrimRight(base, "/")}
	}
	at, err := netip.ParseAddrPort(listen)
	if err != nil || !at.Addr().IsUnspecified() {
		return []string{"http://" + listen}
	}
	port := strconv.Itoa(int(at.Port()))
	var urls []string
	if name != "" && name != "localhost" {
		urls = append(urls, "http://"+net.JoinHostPort(name, port))
	}
	for _, a := range own {
		// A browser cannot name the interface that a link-local address of IPv6 needs.
		if a.IsLoopback() || a.Is6() && (at.Addr().Is4() || a.IsLinkLocalUnicast()) || len(urls) == maxSetupURLs {
			continue
		}
		urls = append(urls, "http://"+net.JoinHostPort(a.String(), port))
	}
	if len(urls) == 0 {
		urls = append(urls, "http://"+net.JoinHostPort("127.0.0.1", port))
	}
	return urls
}

// setupHint says how a page that only the machine itself reaches is opened on another one.
func setupHint(base, listen string) string {
	at, err := netip.ParseAddrPort(listen)
	if base != "" || err != nil || !at.Addr().IsLoopback() {
		return ""
	}
	return fmt.Sprintf("only this machine reaches it; from another one first: ssh -L %d:%s %s", at.Port(), listen, cmp.Or(hostName(), "this-machine"))
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return PlainHost(name)
}

// ownAddresses are the addresses of this machine, none where the system does not report them.
func ownAddresses() []netip.Addr {
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var own []netip.Addr
	for _, n := range networks {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			own = append(own, p.Addr().Unmap())
		}
	}
	return own
}

// PlainHost is the host of a Host header, "" when it has a character that no name or address has: it becomes part of a
// command that a person types.
func PlainHost(hostPort string) string {
	host := (&url.URL{Host: hostPort}).Hostname()
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_:", r)
	}
	if len(host) > 253 || strings.HasPrefix(host, "-") || strings.ContainsFunc(host, func(r rune) bool { return !plain(r) }) {
		return ""
	}
	return host
}
