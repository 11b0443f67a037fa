package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"weir/auth"
	"weir/internal/certs"
	"weir/internal/smallfile"
	"weir/lwm2m"
	"weir/model"
	"weir/store"
)

// Names of the certificate of the LwM2M server: of the row that holds it, sealed, and of the file that shows it.
const (
	metaCertificate  = "lwm2m_certificate"
	sealCertificate  = "instance/lwm2m-certificate"
	certificateFile  = "lwm2m-certificate.pem"
	certificateLife  = 30 * 365 * 24 * time.Hour // devices know it by heart, and last for long
	maxCertificate   = 64 << 10
	certificateNamed = "weir-lwm2m"
)

// certificates are those of handshakes of LwM2M.
type certificates struct {
	verifier *auth.Verifier
	data     *database
	files    *certs.Reloader // nil: the certificate is one of our own

	mu  sync.Mutex
	own *certs.Pair
}

// newCertificates reads the files of the certificate that the operator has, when there is one.
func newCertificates(d TransportDeps) (*certificates, error) {
	c := &certificates{verifier: d.Verifier, data: d.Registrations.store}
	f := certs.Files{Cert: d.Config.LwM2M.CertFile, Key: d.Config.LwM2M.KeyFile}
	if !f.Enabled() {
		return c, nil
	}
	var err error
	c.files, err = certs.New(f)
	return c, err
}

// Own implements lwm2m.Certificates.
func (c *certificates) Own(ctx context.Context) (*tls.Certificate, error) {
	// Files of the operator are looked at with each handshake that asks, so that a renewal needs no restart.
	if c.files != nil {
		switch changed, err := c.files.Look(); {
		case err != nil:
			c.data.log.Error("the certificate of the LwM2M server was not replaced: the one before is served on", "file", c.files.Files().Cert, "error", err)
		case changed:
			c.data.log.Info("the certificate of the LwM2M server was replaced", "file", c.files.Files().Cert)
		}
		return c.files.State().Pair.Certificate(), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own == nil {
		var err error
		if c.own, err = c.made(ctx); err != nil {
			return nil, err
		}
	}
	return c.own.Certificate(), nil
}

// kept is the certificate of our own as it is sealed.
type keptCertificate struct {
	Cert []byte `json:"cert"` // PEM
	Key  []byte `json:"key"`
}

// made reads our own certificate, and makes it where there is none.
func (c *certificates) made(ctx context.Context) (*certs.Pair, error) {
	var sealed []byte
	if err := c.data.db.Read(ctx, func(tx store.Tx) (err error) {
		sealed, err = store.Meta(tx, metaCertificate)
		return err
	}); err != nil {
		return nil, err
	}
	var kept keptCertificate
	if sealed != nil {
		plain, err := c.data.vault.Open(sealCertificate, sealed)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(plain, &kept); err != nil {
			return nil, err
		}
	} else if err := c.make(ctx, &kept); err != nil {
		return nil, err
	}
	// A failure is only reported: handshakes do not need the file.
	if err := c.writePublicFile(kept.Cert); err != nil {
		c.data.log.Warn("the certificate of the LwM2M server could not be written for people to read", "file", certificateFile, "error", err)
	}
	return certs.Load(certs.Files{Cert: "cert", Key: "key"}, func(name string) ([]byte, error) {
		if name == "cert" {
			return kept.Cert, nil
		}
		return kept.Key, nil
	})
}

// make makes our own certificate and seals it.
func (c *certificates) make(ctx context.Context, kept *keptCertificate) error {
	// Devices compare the certificate itself, so the names are only for people.
	names := []string{certificateNamed}
	if host, err := os.Hostname(); err == nil && host != "" {
		names = append(names, host)
	}
	self, err := certs.NewSelfSigned(names, time.Now(), certificateLife)
	if err != nil {
		return err
	}
	*kept = keptCertificate{Cert: self.Cert, Key: self.Key}
	// The private key is stored in sealed form only.
	plain, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	sealed, err := c.data.vault.Seal(sealCertificate, plain)
	if err != nil {
		return err
	}
	return c.data.db.Write(ctx, store.Durable, func(tx store.Tx) error { return store.SetMeta(tx, metaCertificate, sealed) })
}

// writePublicFile writes the certificate beside the database: devices are given it as the one to trust. It holds no secret.
func (c *certificates) writePublicFile(text []byte) error {
	path := filepath.Join(c.data.cfg.DataDir, certificateFile)
	// Do not touch a file that is right.
	if b, err := smallfile.Read(path, maxCertificate); err == nil && bytes.Equal(b, text) {
		return nil
	}
	part := path + ".part"
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// Of implements lwm2m.Certificates.
func (c *certificates) Of(ctx context.Context, fingerprint string) (lwm2m.Key, error) {
	p, err := c.verifier.Certificate(ctx, fingerprint)
	if errors.Is(err, auth.ErrCredentialBad) {
		err = lwm2m.ErrUnknown
	}
	return lwm2m.Key{Binding: model.Binding{
		Tenant:     p.Tenant,
		TenantID:   p.TenantID,
		Device:     p.Device,
		DeviceID:   p.DeviceID,
		Credential: p.CredentialID,
	}, Expires: p.Expires}, err
}
