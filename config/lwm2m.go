package config

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"

	"weir/internal/certs"
	"weir/internal/yamldoc"
	"weir/lwm2m"
	"weir/model"
)

// Bounds of lwm2m.identities.
const (
	maxIdentity   = 1024 // bytes
	minKey        = 16   // bytes
	maxKey        = 64
	maxExternalID = 256 // characters
)

// lwm2m checks the identities of the LwM2M server, its certificate and its cipher suites.
func (l *loader) lwm2m() {
	c := &l.config.LwM2M
	l.lwm2mIdentities(c.Identities)
	l.with("lwm2m.cert_file", "lwm2m.key_file", (c.CertFile == "") == (c.KeyFile == ""))
	if err := lwm2m.CheckCipherSuites(c.CipherSuites); err != nil {
		l.check("lwm2m.cipher_suites", false, err.Error())
	}
	if c.CertFile == "" || c.KeyFile == "" || l.src.ReadFile == nil || l.src.Asking {
		return
	}
	_, err := certs.Load(certs.Files{Cert: c.CertFile, Key: c.KeyFile}, l.src.ReadFile)
	if e, ok := errors.AsType[*certs.Error](err); ok {
		key := "lwm2m.cert_file"
		if e.File == certs.KeyFile {
			key = "lwm2m.key_file"
		}
		l.complain(key, e.Hint, e.Reason)
	}
}

// lwm2mIdentities checks each identity by itself, and that none is there twice.
func (l *loader) lwm2mIdentities(all []lwm2m.Identity) {
	seen := map[string]bool{}
	for i := range all {
		one := &all[i]
		at := func(key string) string { return yamldoc.Join(memberPath("lwm2m.identities", i), key) }
		l.check(at("identity"), one.Identity != "" && len(one.Identity) <= maxIdentity && utf8.ValidString(one.Identity) && !strings.ContainsRune(one.Identity, 0),
			"must be an identity of at most 1024 bytes")
		l.check(at("identity"), !seen[one.Identity], "is there twice: a handshake names nothing but its identity")
		seen[one.Identity] = true
		key, err := base64.StdEncoding.DecodeString(one.PSK.Reveal())
		l.check(at("psk"), err == nil && len(key) >= minKey && len(key) <= maxKey, "must be a key of 16 to 64 bytes in base64")
		l.check(at("tenant"), model.ValidToken(one.Tenant), "must be the token of a tenant")
		n := utf8.RuneCountInString(one.ExternalID)
		l.check(at("external_id"), n > 0 && n <= maxExternalID, "must be an external id of 1 to 256 characters")
		l.check(at("device_type_token"), one.DeviceType == "" || model.ValidToken(one.DeviceType), "must be the token of a device type")
		l.check(at("auto_register"), !one.AutoRegister || one.DeviceType != "", "needs device_type_token, the type of the devices that are made")
	}
}
