package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Profile is a kind of machine that a configuration is begun for.
type Profile struct {
	Name  string
	About string // one sentence
	set   func(*Config)
}

// Profiles are those that weir init knows.
func Profiles() []Profile {
	return []Profile{
		{"gateway", "A small box at the machines: 512 MB of memory, a flash that is slow and wears, hundreds of devices.", gateway},
		{"site", "A server or VM of a plant, run as a service: thousands of devices.", site},
		{"edge", "A box at a site that takes in what devices send, keeps it while the link is cut, and forwards it to a broker above.", edgeProfile},
		{"dev", "A developer's machine: no other machine reaches it, and the log is readable text.", dev},
	}
}

// ProfileNamed finds a profile.
func ProfileNamed(name string) (Profile, bool) {
	all := Profiles()
	i := slices.IndexFunc(all, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, false
	}
	return all[i], true
}

// gateway keeps memory and the wear of the flash small: what is bounded by memory is bounded lower, and the head is
// written rarely, because the log holds what it would lose.
func gateway(c *Config) {
	c.DataDir = "/var/lib/weir"
	c.Limits.Memory = 192 << 20
	c.Limits.DevicesPerTenant, c.Limits.SeriesPerTenant = 2_000, 20_000
	c.Ingest.Capacity.MaxBytes, c.Ingest.DedupeMaxBytes = 512<<20, 8<<20
	c.Spool.HeadAge, c.Spool.WriteBudget = 6*time.Hour, 20<<30
	c.Governance.IngestMessagesPerSecond, c.Governance.IngestBurst, c.Governance.RegistryBytes = 200, 1000, 16<<20
	c.Broker.MaxConnections = 2_000
	c.Detection.MaxKeys = 50_000
	c.History.DeadLetterRetention = 168 * time.Hour
}

func site(c *Config) {
	c.DataDir = "/var/lib/weir"
	c.Ingest.Capacity.MaxBytes = 8 << 30
	c.Governance.IngestMessagesPerSecond, c.Governance.IngestBurst = 5000, 10_000
	c.Broker.MaxConnections = 20_000
	c.Logging.Format = "json"
}

// edgeProfile is the role edge on a small box. The broker above is an example: each site has its own.
func edgeProfile(c *Config) {
	c.Role, c.DataDir = RoleEdge, "/var/lib/weir"
	c.Limits.Memory = 96 << 20
	c.Broker.MaxConnections = 2_000
	c.Edge.Uplink.BrokerURL = "tls://weir.example.org:8883"
}

func dev(c *Config) {
	c.Listeners = Listeners{API: "127.0.0.1:8080", Ingest: "127.0.0.1:8081", MQTT: "127.0.0.1:1883", Metrics: "127.0.0.1:9090"}
	c.Logging = Logging{Level: "debug", Format: "text"}
	c.Files.Watch = true
}

// Config is the defaults with what the profile sets.
func (p Profile) Config() Config {
	c := Default()
	p.set(&c)
	return c
}

// YAML is a file with every key and what it is for: set where the profile differs from the default, else commented out.
func (p Profile) YAML() string {
	c, d := p.Config(), Default()
	return fmt.Sprintf("# Configuration of Weir, begun with the profile %s.\n# %s\n#\n", p.Name, p.About) +
		"# A line that begins with #key shows the default of that key. Check it with: weir config validate --config FILE\n" +
		"# Files in conf.d next to this one are laid over it, in the order of their names; variables and flags over both.\n" +
		sectionLine.ReplaceAllString(template(c.keys(), d.keys()), "\n$0")
}

var sectionLine = regexp.MustCompile(`(?m)^[a-z0-9_]+:$`)

func template(keys, defaults []key) string {
	i := 0
	return document(keys, func(b *strings.Builder, indent string, k key) {
		if k.section() == "" {
			b.WriteString("\n")
		}
		for _, line := range wrapped(k.doc(), 110-len(indent)) {
			fmt.Fprintf(b, "%s# %s\n", indent, line)
		}
		switch {
		case k.kind == fieldSections:
			fmt.Fprintf(b, "%s#%s: []\n%[1]s# Such as:\n%[1]s#   %[2]s:\n", indent, k.name())
			dash := "- "
			for part := range strings.SplitSeq(k.of.Tag.Get("example"), "; ") {
				fmt.Fprintf(b, "%s#     %s%s\n", indent, dash, part)
				dash = "  "
			}
		case k.secret():
			fmt.Fprintf(b, "%s# A secret; better %s_file: FILE, %[2]s_env: VARIABLE or %[2]s_credential: NAME than its value.\n%[1]s#%[2]s_file: /etc/weir/%[2]s\n", indent, k.name())
		case alike(defaults[i], k):
			fmt.Fprintf(b, "%s#%s: %s\n", indent, k.name(), k.yaml())
		default:
			fmt.Fprintf(b, "%s%s: %s\n", indent, k.name(), k.yaml())
		}
		i++
	})
}

// wrapped breaks a text into lines.
func wrapped(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
