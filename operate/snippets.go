package operate

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"unicode"
)

// Snippet is a command or a program that sends a device's first reading, as a person would type it.
type Snippet struct {
	Title    string `json:"title"`    // what it needs: mosquitto_pub, curl, Python, Go
	Language string `json:"language"` // what it is written in: sh, python or go
	Text     string `json:"text"`     // may hold several lines
}

// firstReading is the flat body that all of them send.
const firstReading = `{"temp": 21.5}`

// FirstReading returns the ways in which a device can send its first reading, by every listener that is open: over TLS where
// its certificate is for the host in the command. host stands for a listener on every interface; "" is this machine.
func FirstReading(d *DeviceAdded, host string) (all []Snippet) {
	secure := d.Secure
	if secure == nil {
		secure = &SecureListeners{}
	}
	python := ""
	if h, port, tls := secure.choose(d.MQTT, secure.MQTT, host); port != "" {
		trust, trusts := "", ""
		if tls && secure.CAFile == "" {
			trust, trusts = " --tls-use-os-certs", "client.tls_set()\n"
		} else if tls {
			trust, trusts = " --cafile "+quoted(secure.CAFile), fmt.Sprintf("client.tls_set(%q)\n", secure.CAFile)
		}
		topic := fmt.Sprintf("%s/%s/devices/%s/telemetry", d.Instance, d.Tenant, d.Token)
		all = append(all, Snippet{"mosquitto_pub", "sh", fmt.Sprintf("mosquitto_pub -h %s -p %s%s -q 1 -V 5 -u '%s:%s' \\\n  -t %s -m '%s'",
			h, port, trust, d.Tenant, d.Secret, topic, firstReading)})
		python = fmt.Sprintf(pythonProgram, d.Tenant, d.Secret, trusts, h, port, topic, firstReading)
	}
	golang := ""
	if h, port, tls := secure.choose(d.Ingest, secure.Ingest, host); port != "" {
		scheme, trust := "http", ""
		if tls {
			scheme = "https"
			if secure.CAFile != "" {
				trust = " --cacert " + quoted(secure.CAFile)
			}
		}
		url := fmt.Sprintf("%s://%s/%s/%s/devices/%s/telemetry", scheme, net.JoinHostPort(h, port), d.Instance, d.Tenant, d.Token)
		all = append(all, Snippet{"curl", "sh", fmt.Sprintf("curl -i%s %s \\\n  -H 'Authorization: Bearer %s' -d '%s'", trust, url, d.Secret, firstReading)})
		if trust == "" { // the program trusts what its system does
			golang = fmt.Sprintf(goProgram, firstReading, url, "Bearer "+d.Secret)
		}
	}
	for _, s := range []Snippet{{"Python", "python", python}, {"Go", "go", golang}} {
		if s.Text != "" {
			all = append(all, s)
		}
	}
	return all
}

// Snippets are those of FirstReading for a device that has a secret already. Where nothing listens there are none.
func (e *Entities) Snippets(tenant, device, secret, host string) ([]Snippet, error) {
	at, err := e.entrances(context.Background(), None{})
	if err != nil {
		return nil, err
	}
	return FirstReading(&DeviceAdded{Tenant: tenant, Token: device, Secret: secret, Entrances: *at}, host), nil
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

// pythonProgram publishes a reading. It needs paho-mqtt, 2.0 or later.
const pythonProgram = `# needs: pip install paho-mqtt
import paho.mqtt.client as mqtt

client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
client.username_pw_set("%s:%s")
%sclient.on_connect = lambda client, data, flags, reason, properties: print("CONNACK", reason)
client.on_publish = lambda client, data, mid, reason, properties: print("PUBACK", reason)
client.connect("%s", %s)
client.loop_start()
client.publish("%s", '%s', qos=1).wait_for_publish(10)
client.disconnect()
client.loop_stop()
`

// goProgram posts a reading to a URL. It needs no module.
const goProgram = `package main

import (
	"fmt"
	"log"
	"net/http"
	"strings"
)

func main() {
	const reading = ` + "`%s`" + `
	r, err := http.NewRequest("POST", %q, strings.NewReader(reading))
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set("Authorization", %q)
	resp, err := http.DefaultClient.Do(r)
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
