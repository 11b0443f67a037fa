package auth

import (
	"time"

	"weir/internal/setting"
)

// Settings are the keys of sign-in, in the section auth.
type Settings struct {
	SuperuserEmail    string         `yaml:"superuser_email" doc:"With a password: this superuser is made at the first start."`
	SuperuserPassword setting.Secret `yaml:"superuser_password" doc:"No default exists; without one, make an administrator with: weir admin create."`
	AccessTokenTTL    time.Duration  `yaml:"access_token_ttl" default:"15m" min:"1m" doc:"Life of an access or identity token." reload:"yes"`
	RefreshTokenTTL   time.Duration  `yaml:"refresh_token_ttl" default:"168h" doc:"Life of a refresh token." reload:"yes"`
	SigningKeyMaxAge  time.Duration  `yaml:"signing_key_max_age" doc:"A signing key older than this is replaced; 0s: never." reload:"yes"`
	ServiceSecret     setting.Secret `yaml:"service_secret" doc:"At least 32 bytes; empty: no service tokens are minted." reload:"yes"`
}
