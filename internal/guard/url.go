package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxURL is the longest URL in bytes.
const maxURL = 2048

// CheckURL parses the URL of a destination with one of the schemes. Errors say what is wrong and do not repeat the URL, which
// may hold a password. The host is checked for its form alone: where it leads is judged when a connection is made.
func CheckURL(text string, schemes ...string) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, fmt.Errorf("must have at most %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil, strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return nil, errors.New("must be a URL, with characters other than those of ASCII in their encoded form")
	case !slices.Contains(schemes, u.Scheme) || u.Opaque != "":
		return nil, fmt.Errorf("must be an absolute URL that begins with %s", strings.Join(slashed(schemes), " or "))
	case u.User != nil:
		return nil, errors.New("must not hold a user name or password")
	case strings.Contains(text, "#"):
		return nil, errors.New("must not have a fragment")
	}
	if err := checkHost(u.Hostname()); err != nil {
		return nil, err
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("must have a port from 1 to 65535 behind the colon, or none")
		}
	}
	return u, nil
}

func slashed(schemes []string) (out []string) {
	for _, s := range schemes {
		out = append(out, s+"://")
	}
	return out
}

// CheckHost refuses what is neither an address without a zone nor a name as the DNS has them.
func CheckHost(host string) error {
	if host == "" {
		return errors.New("must name a host")
	}
	return checkHost(host)
}

// checkHost refuses what is neither an address without a zone nor a name as the DNS has them.
func checkHost(host string) error {
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return errors.New("must not name an address with a zone")
		}
		return nil
	}
	labels := strings.SplitSeq(strings.TrimSuffix(host, "."), ".")
	for label := range labels {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, notInName) {
			return errors.New("must name a host: letters, digits and hyphens between points, or an address")
		}
	}
	if len(host) > 254 {
		return errors.New("must name a host of at most 254 bytes")
	}
	return nil
}

func notInName(r rune) bool {
	return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// CheckHostPort parses a destination host:port, for protocols in which a path has no meaning.
func CheckHostPort(text string) (host string, port uint16, err error) {
	u, err := CheckURL("tcp://"+text, "tcp")
	switch {
	case err != nil:
		return "", 0, err
	case u.Host != text || u.Port() == "":
		return "", 0, errors.New("must be a host and a port, such as broker.example.com:9092")
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Hostname(), uint16(n), err
}
