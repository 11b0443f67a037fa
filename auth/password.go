package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"weir/model"
)

// Bounds of a password. The upper one bounds what an unauthenticated client can have hashed.
const (
	MinPasswordRunes = 8
	MaxPasswordBytes = 1024
)

// errHash: a stored hash is none that Weir wrote.
var errHash = errors.New("auth: unreadable password hash")

// Params are the cost of argon2id. They travel inside each hash, so they may change: a hash of other parameters still
// verifies and is renewed at the next sign-in.
type Params struct {
	MemoryKiB uint32
	Passes    uint32
	Lanes     uint8
}

// DefaultParams are 19 MiB and two passes: two hashes at a time take 38 MiB, which a gateway of 512 MB can spare.
var defaultParams = Params{MemoryKiB: 19 * 1024, Passes: 2, Lanes: 1}

const (
	saltBytes = 16
	keyBytes  = 32
)

// CheckPassword returns an INVALID_INPUT error when a person may not choose p. The error never holds p.
func CheckPassword(p string) error {
	switch {
	case !utf8.ValidString(p):
		return model.Invalid("password", "must be valid UTF-8")
	case utf8.RuneCountInString(p) < MinPasswordRunes:
		return model.Invalid("password", "must have at least %d characters", MinPasswordRunes)
	case len(p) > MaxPasswordBytes:
		return model.Invalid("password", "must have at most %d bytes", MaxPasswordBytes)
	}
	return nil
}

// hash returns p as a PHC string: $argon2id$v=19$m=…,t=…,p=…$salt$key.
func (pm Params) hash(p string) string {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails: crypto/rand ends the process instead
	key := argon2.IDKey([]byte(p), salt, pm.Passes, pm.MemoryKiB, pm.Lanes, keyBytes)
	return phc{Params: pm, salt: salt, key: key}.String()
}

// phc is a parsed hash.
type phc struct {
	Params
	salt, key []byte
}

func (h phc) String() string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.MemoryKiB, h.Passes, h.Lanes,
		b64.EncodeToString(h.salt), b64.EncodeToString(h.key))
}

func (h phc) matches(p string) bool {
	key := argon2.IDKey([]byte(p), h.salt, h.Passes, h.MemoryKiB, h.Lanes, uint32(len(h.key)))
	return subtle.ConstantTimeCompare(key, h.key) == 1
}

// parsePHC reads a hash. Its costs are bounded, so that a damaged or a foreign row cannot take the machine's memory.
func parsePHC(s string) (phc, error) {
	var h phc
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return h, errHash
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.MemoryKiB, &h.Passes, &h.Lanes); err != nil {
		return h, errHash
	}
	var err error
	if h.salt, err = base64.RawStdEncoding.Strict().DecodeString(parts[4]); err != nil {
		return h, errHash
	}
	if h.key, err = base64.RawStdEncoding.Strict().DecodeString(parts[5]); err != nil {
		return h, errHash
	}
	if !h.isSane() || h.String() != s {
		return h, errHash
	}
	return h, nil
}

func (h phc) isSane() bool {
	return h.MemoryKiB >= 8*uint32(h.Lanes) && h.MemoryKiB <= 256*1024 && h.Passes >= 1 && h.Passes <= 16 &&
		h.Lanes >= 1 && h.Lanes <= 16 && len(h.salt) >= 8 && len(h.salt) <= 64 && len(h.key) >= 16 && len(h.key) <= 64
}

// HashSecret returns the stored form of a secret that Weir minted (256 random bits): its SHA-256. It needs no slow hash, for
// nobody can guess it.
func HashSecret(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// MintSecret returns a new secret of 256 random bits as 43 characters of unpadded base64url.
func MintSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// sameSecret compares in a time that depends on neither value.
func sameSecret(a, b string) bool {
	x := sha256.Sum256([]byte(a))
	y := sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
