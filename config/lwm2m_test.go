package config

import (
	"strings"
	"testing"
)

// TestTheKeysOfLwM2M are held against each other: what is wrong is named at its key.
func TestTheKeysOfLwM2M(t *testing.T) {
	t.Parallel()
	const good = `{identity: a, psk: MDEyMzQ1Njc4OWFiY2RlZg==, tenant: acme, external_id: "1"}`
	for yaml, want := range map[string]string{
		"lwm2m: {identities: [" + good + "]}\n":                                                         "",
		"lwm2m: {cipher_suites: [TLS_PSK_WITH_AES_128_CCM_8, TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8]}\n":    "",
		"lwm2m: {identities: [" + good + ", " + good + "]}\n":                                           "lwm2m.identities[1].identity: is there twice",
		"lwm2m: {identities: [" + strings.Replace(good, "MDEyMzQ1Njc4OWFiY2RlZg==", "MDEy", 1) + "]}\n": "lwm2m.identities[0].psk: must be a key of 16 to 64 bytes",
		"lwm2m: {identities: [" + strings.Replace(good, "acme", "a b", 1) + "]}\n":                      "lwm2m.identities[0].tenant",
		"lwm2m: {identities: [" + strings.Replace(good, `"1"`, `""`, 1) + "]}\n":                        "lwm2m.identities[0].external_id",
		"lwm2m: {identities: [" + strings.TrimSuffix(good, "}") + ", auto_register: true}]}\n":          "lwm2m.identities[0].auto_register: needs device_type_token",
		"lwm2m: {cipher_suites: [TLS_PSK_WITH_NULL_SHA]}\n":                                             "lwm2m.cipher_suites",
		"lwm2m: {cert_file: own.pem}\n":                                                                 "lwm2m.cert_file: must be given with lwm2m.key_file",
		"lwm2m: {notification_format: xml}\n":                                                           "lwm2m.notification_format: must be one of",
	} {
		_, err := load(yaml)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", yaml, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", yaml, err, want)
		case err != nil && strings.Contains(err.Error(), "MDEy"):
			t.Errorf("the key is shown: %v", err)
		}
	}
}
