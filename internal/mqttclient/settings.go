package mqttclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSFiles are the keys of a connection over TLS to a broker that the operator names. The files are read at each connect.
type TLSFiles struct {
	CA         string `yaml:"ca_file" doc:"Certificates of the authorities that the broker's certificate is verified against, PEM; empty: those of the system."`
	Cert       string `yaml:"cert_file" doc:"Client certificate and its chain, PEM; needs key_file."`
	Key        string `yaml:"key_file" doc:"Private key of the client certificate, PEM."`
	ServerName string `yaml:"server_name" doc:"Name that the broker's certificate must have; empty: the host of the URL."`
	Insecure   bool   `yaml:"insecure_skip_verify" doc:"Whether any certificate of the broker is accepted. For tests only."`
}

// Used reports whether a key is set that only a connection over TLS needs.
func (f TLSFiles) Used() bool { return f != TLSFiles{} }

// Load reads the files. The errors name the file.
func (f TLSFiles) Load() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName, InsecureSkipVerify: f.Insecure}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("a client certificate needs cert_file and key_file")
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%s with %s: %w", f.Cert, f.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
