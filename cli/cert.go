package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/certs"
	"weir/model"
)

const maxCertDays = 3650

func newCert(c *command) *cobra.Command {
	var days int
	cmd := &cobra.Command{
		Use:   "cert [NAME…]",
		Short: "Make a self-signed certificate, so that the TLS listeners open",
		Long: "Make a self-signed certificate and its key for this machine's name, its addresses\n" +
			"and localhost, and for further names and addresses. The files are written where\n" +
			"the instance finds them: next to the configuration file, with a file in conf.d\n" +
			"that names them; without a configuration file into the directory tls, and the\n" +
			"command for the start is shown. No file is overwritten.\n\n" +
			"After the next start mqtts listens, on port 8883. A device gets the certificate as\n" +
			"what to trust; a person compares the fingerprint that the browser shows.",
		Example: "  weir cert\n  weir cert gateway.example.org 10.0.0.7\n  weir cert --config /etc/weir/weir.yaml --days 825",
		Args:    cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if days < 1 || days > maxCertDays {
				return usageError{fmt.Errorf("--days must be within 1..%d", maxCertDays)}
			}
			for _, name := range args {
				if !certName(name) {
					return usageError{fmt.Errorf("%q is neither a host name nor an address", name)}
				}
			}
			return c.makeCert(args, time.Duration(days)*24*time.Hour)
		},
	}
	cmd.Flags().IntVar(&days, "days", maxCertDays, "how long the certificate is valid")
	return cmd
}

// madeCert is the result of weir cert.
type madeCert struct {
	Cert        string    `json:"certFile"`
	Key         string    `json:"keyFile"`
	Config      string    `json:"configFile,omitempty"` // that names both; "" without a configuration file
	Names       []string  `json:"names"`
	NotAfter    time.Time `json:"notAfter"`
	Fingerprint string    `json:"fingerprintSha256"`
}

func (c *command) makeCert(names []string, life time.Duration) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if cfg.TLS.Enabled() {
		return &model.Error{Code: model.CodeConflict, Message: "tls.cert_file is set already, to " + cfg.TLS.Cert,
			Hint: "a certificate that replaces it goes to the same place; the instance serves it without a restart"}
	}
	made := &madeCert{Names: slices.Compact(append(slices.Clone(names), machineNames()...))}
	if err := made.place(c.file()); err != nil {
		return err
	}
	pair, err := certs.NewSelfSigned(made.Names, time.Now(), life)
	if err != nil {
		return err
	}
	made.NotAfter, made.Fingerprint = pair.NotAfter.UTC().Truncate(time.Second), pair.Fingerprint
	if err := made.write(pair, c.file()); err != nil {
		return err
	}
	c.show(made, made.print)
	return nil
}

// place decides where the files go. None of them may be there.
func (m *madeCert) place(config string) error {
	dir := "tls"
	if config != "" {
		base, err := filepath.Abs(config)
		if err != nil {
			return err
		}
		if fi, err := os.Stat(base); err != nil || !fi.IsDir() {
			base = filepath.Dir(base)
		}
		dir, m.Config = filepath.Join(base, "tls"), filepath.Join(base, "conf.d", "tls.yaml")
	}
	m.Cert, m.Key = filepath.Join(dir, "weir.pem"), filepath.Join(dir, "weir.key")
	for _, name := range []string{m.Cert, m.Key, m.Config} {
		if _, err := os.Lstat(name); name != "" && !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return err
			}
			return inTheWay(name, "move it away first: a certificate may be in use")
		}
	}
	return nil
}

// write writes the key first: a configuration never names what is not there. Files that were made stay when a later one
// fails, and are named by the error's next try.
func (m *madeCert) write(pair *certs.SelfSigned, config string) error {
	group := groupOf(config)
	files := []certFile{{m.Key, string(pair.Key), ownFile}, {m.Cert, string(pair.Cert), 0o644}}
	if m.Config != "" {
		files = append(files, certFile{m.Config, fmt.Sprintf("# Made by weir cert.\ntls:\n  cert_file: %s\n  key_file: %s\n", strconv.Quote(m.Cert), strconv.Quote(m.Key)), 0o640})
	}
	for i, f := range files {
		if err := f.write(group); err != nil {
			for _, before := range files[:i] {
				err = errors.Join(err, os.Remove(before.name))
			}
			return err
		}
	}
	return nil
}

type certFile struct {
	name, text string
	mode       fs.FileMode
}

// write makes the file and its directory. Written by root next to a configuration file, they belong to the group of that
// file, which is how the service reads it.
func (f certFile) write(group int) error {
	dir := filepath.Dir(f.name)
	_, err := os.Stat(dir)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if err := writeNew(f.name, f.text, f.mode, false); err != nil || group < 0 {
		return err
	}
	if fresh {
		if err := os.Chown(dir, -1, group); err != nil {
			return err
		}
	}
	if err := os.Chown(f.name, -1, group); err != nil {
		return err
	}
	return os.Chmod(f.name, f.mode|0o040)
}

// groupOf is the group of the configuration file where root runs the command and the group is another than root's, else -1.
func groupOf(config string) int {
	fi, err := os.Stat(config)
	if config == "" || err != nil || os.Geteuid() != 0 {
		return -1
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Gid != 0 {
		return int(st.Gid)
	}
	return -1
}

// machineNames are the names and addresses under which clients reach this machine.
func machineNames() []string {
	var names []string
	if host, err := os.Hostname(); err == nil && certName(host) && host != "localhost" {
		names = append(names, host)
	}
	names = append(names, "localhost", "127.0.0.1", "::1")
	networks, _ := net.InterfaceAddrs() // none where the system does not report them
	for _, n := range networks {
		if p, err := netip.ParsePrefix(n.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			names = append(names, p.Addr().Unmap().String())
		}
	}
	return names
}

// certName reports whether a certificate can be for a name: letters, digits, dots and hyphens, or an address.
func certName(name string) bool {
	if net.ParseIP(name) != nil {
		return true
	}
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}
	return name != "" && len(name) <= 253 && name[0] != '-' && name[0] != '.' && !slices.ContainsFunc([]rune(name), bad)
}

func (m *madeCert) print(w io.Writer) {
	fmt.Fprintf(w, "certificate  %s, valid until %s\nkey          %s\n", m.Cert, m.NotAfter.Format(time.DateOnly), m.Key)
	for i, name := range m.Names {
		label := "for"
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(w, "%-12s %s\n", label, name)
	}
	fmt.Fprintf(w, "SHA-256      %s\n", m.Fingerprint)
	if m.Config != "" {
		fmt.Fprintf(w, "named in     %s: mqtts opens at the next start\n", m.Config)
		return
	}
	fmt.Fprintf(w, "start with   weir run --set tls.cert_file=%s --set tls.key_file=%s\n", m.Cert, m.Key)
}
