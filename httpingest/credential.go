package httpingest

import (
	"net/http"
	"strings"

	"weir/ingest"
)

// Credentials that a header can hold.
const (
	accessToken = "ACCESS_TOKEN" // possession of the id is the proof
	mqttBasic   = "MQTT_BASIC"   // id and password

	maxHeaderCredential = 1024 // bytes of an id or a password
)

const wrongAuthorization = "the header Authorization must be once: Bearer ACCESS_TOKEN, or Basic with the id and the password of an MQTT_BASIC credential"

// credentialOf returns the credential of the header Authorization, none when there is no such header. fault says what is wrong
// with the header.
func credentialOf(head http.Header) (c ingest.Credential, fault string) {
	all := head.Values("Authorization")
	if len(all) == 0 {
		return c, ""
	}
	scheme, rest, _ := strings.Cut(all[0], " ")
	switch {
	case len(all) > 1:
	case strings.EqualFold(scheme, "Bearer"):
		c = ingest.Credential{Type: accessToken, ID: strings.TrimSpace(rest)}
	case strings.EqualFold(scheme, "Basic"):
		id, password, _ := (&http.Request{Header: head}).BasicAuth()
		c = ingest.Credential{Type: mqttBasic, ID: id, Secret: password}
	}
	if c.ID == "" || len(c.ID) > maxHeaderCredential || len(c.Secret) > maxHeaderCredential {
		return ingest.Credential{}, wrongAuthorization
	}
	return c, ""
}
