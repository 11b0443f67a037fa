package auth

import (
	"time"

	"weir/internal/setting"
)

// ClientSettings are the keys of OAuth clients, in the section limits.
type ClientSettings struct {
	//limit:what OAuth clients of the instance
	//limit:chapter The API and the operator
	//limit:bound {}; 32 redirect URIs of 2,048 characters each
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key; a longer list with INVALID_INPUT
	//limit:cost disk
	OAuthClients int64 `yaml:"oauth_clients" default:"1000" zero:"default" doc:"Maximum number of OAuth clients of the instance." reload:"yes"`
}

// Settings are the keys of sign-in, in the section auth.
type Settings struct {
	SuperuserEmail    string         `yaml:"superuser_email" doc:"Email of the superuser that the first start creates; needs superuser_password."`
	SuperuserPassword setting.Secret `yaml:"superuser_password" doc:"Password of that superuser; without it, create an administrator with: weir admin create."`
	AccessTokenTTL    time.Duration  `yaml:"access_token_ttl" default:"15m" min:"1m" doc:"Lifetime of an access token. An identity token lives 15 minutes; clocks may differ by 30 seconds." reload:"yes"`
	RefreshTokenTTL   time.Duration  `yaml:"refresh_token_ttl" default:"168h" doc:"Lifetime of a refresh token: from auth.access_token_ttl to 8760h." reload:"yes"`
	SigningKeyMaxAge  time.Duration  `yaml:"signing_key_max_age" doc:"A signing key older than this is replaced: at least 1h, or 0s: never." reload:"yes"`
	ServiceSecret     setting.Secret `yaml:"service_secret" doc:"Secret for requesting service tokens, at least 32 bytes; empty: no service tokens are issued." reload:"yes"`
}
