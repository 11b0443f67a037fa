package gql

import (
	"encoding/json"
	"net/http"
	"strings"
)

// authorizationOf returns the token in the payload of connection_init or ping as the value of an Authorization header, ""
// for none. The subprotocol leaves the name of the key open, and clients differ: Authorization, token, accessToken and
// headers.Authorization are read, in any case, with or without the scheme. ok is false for a payload that is no object, a token
// that is no string, and two different tokens.
func authorizationOf(payload json.RawMessage) (authorization string, ok bool) {
	if len(payload) == 0 {
		return "", true
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil {
		return "", false
	}
	for _, raw := range tokensIn(members) {
		var value string
		if json.Unmarshal(raw, &value) != nil {
			return "", false
		}
		value = withScheme(value)
		if authorization != "" && value != "" && value != authorization {
			return "", false
		}
		if value != "" {
			authorization = value
		}
	}
	return authorization, true
}

// tokensIn are the values of the keys that hold a token.
func tokensIn(members map[string]json.RawMessage) (found []json.RawMessage) {
	for name, raw := range members {
		switch strings.ToLower(name) {
		case "authorization", "token", "accesstoken":
			found = append(found, raw)
		case "headers":
			var headers map[string]json.RawMessage
			if json.Unmarshal(raw, &headers) != nil {
				continue // something else of the client's
			}
			for name, raw := range headers {
				if strings.EqualFold(name, "Authorization") {
					found = append(found, raw)
				}
			}
		}
	}
	return found
}

// withScheme adds the scheme Bearer to a bare token and spells one that is there alike. Another scheme stays, and is refused.
func withScheme(value string) string {
	value = strings.TrimSpace(value)
	scheme, token, found := strings.Cut(value, " ")
	switch {
	case value == "":
		return ""
	case !found && !strings.EqualFold(value, "Bearer"):
		return "Bearer " + value
	case strings.EqualFold(scheme, "Bearer"):
		return strings.TrimSpace("Bearer " + strings.TrimSpace(token))
	}
	return value
}

// upgradeAuthorization returns the Authorization header of the upgrade request. Another scheme than Bearer is for a proxy
// in front and counts as none.
func upgradeAuthorization(r *http.Request) string {
	value := withScheme(r.Header.Get("Authorization"))
	if scheme, _, _ := strings.Cut(value, " "); scheme != "Bearer" {
		return ""
	}
	return value
}
