package operate

import (
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"unicode"
)

// Snippet is a command or a program that sends a device's first reading, as a person would type it.
type Snippet struct {
	Title    string `json:"title"`    // what it needs: mosquitto_pub, curl, Go
	Language string `json:"language"` // what it is written in: sh or go
	Text     string `json:"text"`     // may hold several lines
}

// FirstReading returns the ways in which a device can send its first reading, by every listener that is open: over TLS where
// its certificate is for the host in the command. host stands for a listener on every interface; "" is this machine.
func FirstReading(d *DeviceAdded, host string) []Snippet {
	var all []Snippet
	secure := d.Secure
	if secure == nil {
		secure = &SecureListeners{}
	}
	if h, port, tls := secure.choose(d.MQTT, secure.MQTT, host); port != "" {
		trust := ""
		switch {
		case tls && secure.CAFile == "":
			trust = " --tls-use-os-certs"
		case tls:
			trust = " --cafile " + quoted(secure.CAFile)
		}
		all = append(all, Snippet{"mosquitto_pub", "sh", strings.Join([]string{
			fmt.Sprintf("mosquitto_pub -h %s -p %s%s -q 1 -i %s:%s:%s -u '%s:%s' \\", h, port, trust, d.Instance, d.Tenant, d.Token, d.Tenant, d.Secret),
			fmt.Sprintf("  -t %s/%s/devices/%s/events \\", d.Instance, d.Tenant, d.Token),
			fmt.Sprintf("  -m '%s'", firstReading(""))}, "\n")})
	}
	if h, port, tls := secure.choose(d.Ingest, secure.Ingest, host); port != "" {
		url, trust := fmt.Sprintf("http://%s/%s/%s/events", net.JoinHostPort(h, port), d.Instance, d.Tenant), ""
		if tls {
			url = "https" + strings.TrimPrefix(url, "http")
			if secure.CAFile != "" {
				trust = " --cacert " + quoted(secure.CAFile)
			}
		}
		event := firstReading(fmt.Sprintf(`"credentialType":"ACCESS_TOKEN","credentialId":%q,`, d.Secret))
		all = append(all, Snippet{"curl", "sh", fmt.Sprintf("curl -i%s %s \\\n  -d '%s'", trust, url, event)})
		if trust == "" { // the program trusts whom its system does
			all = append(all, Snippet{"Go", "go", fmt.Sprintf(goProgram, event, url)})
		}
	}
	return all
}

// choose returns the listener that a client at host should use: over TLS when the certificate is for that host or nothing
// else is open, and the name under which it is reached. Without a listener the port is "".
func (s *SecureListeners) choose(plain, secure, host string) (h, port string, tls bool) {
	if secure != "" {
		h, port = reachable(secure, host)
		for _, name := range []string{h, "localhost"} {
			if ip := net.ParseIP(h); s.covers(name) && (name == h || ip != nil && ip.IsLoopback()) {
				return name, port, true
			}
		}
	}
	switch {
	case plain != "":
		h, port = reachable(plain, host)
		return h, port, false
	case secure != "" && len(s.Names) > 0 && !strings.HasPrefix(s.Names[0], "*"):
		h = s.Names[0]
	}
	return h, port, secure != ""
}

// covers reports whether the certificate is for a host.
func (s *SecureListeners) covers(host string) bool {
	c := x509.Certificate{}
	for _, name := range s.Names {
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, name)
		}
	}
	return c.VerifyHostname(host) == nil
}

// quoted is a path as a shell wants it.
func quoted(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+@%:,", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// goProgram sends an event to a URL. It needs no module.
const goProgram = `package main

import (
	"fmt"
	"log"
	"net/http"
	"strings"
)

func main() {
	const event = ` + "`%s`" + `
	resp, err := http.Post(%q, "application/json", strings.NewReader(event))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		log.Fatal("refused: ", resp.Status)
	}
	fmt.Println("the reading is kept:", resp.Status)
}
`

// IngestURL is where a tenant's events are posted to, for FirstReading's host.
func IngestURL(addr, host, instance, tenant string) string {
	h, port := reachable(addr, host)
	return fmt.Sprintf("http://%s/%s/%s/events", net.JoinHostPort(h, port), instance, tenant)
}

func firstReading(credential string) string {
	return `{` + credential + `"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"21.5"}}]}}`
}

// reachable is an address at which a listener can be reached: host, or this machine, where it listens on every interface.
func reachable(addr, host string) (string, string) {
	at, port, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(at); at != "" && (ip == nil || !ip.IsUnspecified()) {
		return at, port
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return host, port
}

// Reachable is an address of this machine at which a listener can be dialled.
func Reachable(addr string) string { return net.JoinHostPort(reachable(addr, "")) }
