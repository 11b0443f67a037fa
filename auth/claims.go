package auth

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/model"
)

// Kind is what a token is good for, its claim typ.
type Kind string

// The kinds of tokens.
const (
	KindIdentity Kind = "identity" // identity plane; argument of selectTenant and identityMemberships
	KindAccess   Kind = "access"   // tenant plane
	KindRefresh  Kind = "refresh"  // argument of refresh
	KindService  Kind = "service"  // tenant plane over HTTP, tenant from a header
)

// audience is the aud of every token.
const audience = "weir"

// claims are the payload of a token (RFC 7519, section 4.1, and Weir's own).
type claims struct {
	Issuer      string            `json:"iss"`
	Subject     string            `json:"sub"`
	Audience    jwt.ClaimStrings  `json:"aud"`
	Expires     numericDate       `json:"exp"`
	IssuedAt    numericDate       `json:"iat"` // with microseconds: revocation compares it
	NotBefore   numericDate       `json:"nbf"`
	ID          string            `json:"jti"`
	Kind        Kind              `json:"typ"`
	Tenant      string            `json:"tenant,omitempty"`
	Username    string            `json:"username,omitempty"`
	Email       string            `json:"email,omitempty"`
	Sudo        bool              `json:"sudo"`
	Roles       []string          `json:"roles"`
	Authorities []model.Authority `json:"authorities"`
	Scope       string            `json:"scope,omitempty"`
	ClientID    string            `json:"client_id,omitempty"`
}

var _ jwt.Claims = (*claims)(nil)

// The methods by which the JWT library reads the registered claims.

func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return c.Expires.date(), nil }
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error)       { return c.IssuedAt.date(), nil }
func (c *claims) GetNotBefore() (*jwt.NumericDate, error)      { return c.NotBefore.date(), nil }
func (c *claims) GetIssuer() (string, error)                   { return c.Issuer, nil }
func (c *claims) GetSubject() (string, error)                  { return c.Subject, nil }
func (c *claims) GetAudience() (jwt.ClaimStrings, error)       { return c.Audience, nil }

func (c *claims) has(a model.Authority) bool { return slices.Contains(c.Authorities, a) }

// numericDate is seconds since the epoch (RFC 7519, section 2), read and written without a detour over float64, so
// that microseconds survive. 0 means that the claim is absent.
type numericDate model.Micros

// maxNumericDate is the year 9999; Weir writes no later time.
const maxNumericDate = 253402300799

var errNumericDate = errors.New("auth: not a numeric date")

func (d numericDate) date() *jwt.NumericDate {
	if d == 0 {
		return nil
	}
	return &jwt.NumericDate{Time: model.Micros(d).Time()}
}

// MarshalJSON writes whole seconds without a fraction, others with six digits.
func (d numericDate) MarshalJSON() ([]byte, error) {
	if d < 0 {
		return nil, fmt.Errorf("%w: %d", errNumericDate, d)
	}
	sec := d / 1e6
	frac := d % 1e6
	if frac == 0 {
		return strconv.AppendInt(nil, int64(sec), 10), nil
	}
	return fmt.Appendf(nil, "%d.%06d", sec, frac), nil
}

// UnmarshalJSON reads a decimal number without sign and exponent; digits below microseconds are cut off.
func (d *numericDate) UnmarshalJSON(b []byte) error {
	whole, frac, _ := strings.Cut(string(b), ".")
	sec, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || sec > maxNumericDate {
		return errNumericDate
	}
	// Without float64, which would lose microseconds.
	micros := int64(sec) * 1e6
	if len(frac) > 6 {
		frac = frac[:6]
	}
	if frac != "" {
		f, err := strconv.ParseUint((frac + "00000")[:6], 10, 63)
		if err != nil {
			return errNumericDate
		}
		micros += int64(f)
	}
	*d = numericDate(micros)
	return nil
}

// floorSecond cuts the fraction off.
func floorSecond(m model.Micros) numericDate { return numericDate(m - m%1e6) }

func after(m model.Micros, life time.Duration) model.Micros {
	return m + model.Micros(life.Microseconds())
}
