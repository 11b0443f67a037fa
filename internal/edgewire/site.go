package edgewire

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
)

// Kinds of documents about what a platform at a site is to follow: devices, types, published profiles, geofences.
const (
	KindAskSite = "site"     // up: asks for it
	KindSite    = "sitePart" // down: answers that
)

// Bounds of what a platform at a site is to follow.
const (
	maxSiteParts = 256
	sitePart     = MaxDocument / 2 // deflated bytes of a part; base64 makes them 4/3 of that
	// MaxSite is how many bytes it has before it is deflated.
	MaxSite = 32 << 20
)

// AskSite asks for what the site is to follow: for a part of it, from 0 on. Have is the digest of what it follows, "" for nothing.
type AskSite struct {
	Kind  string `json:"kind"`
	Nonce string `json:"nonce"`
	Have  string `json:"have,omitempty"`
	Part  int    `json:"part,omitempty"`
}

// Site is a part of it. With Digest equal to Have there are no parts: nothing has changed. Refused says why there is none to be had.
type Site struct {
	Kind    string `json:"kind"`
	Nonce   string `json:"nonce"`
	Digest  string `json:"digest,omitempty"` // SHA-256 of the whole, hexadecimal
	Part    int    `json:"part,omitempty"`
	Parts   int    `json:"parts,omitempty"`
	Body    []byte `json:"body,omitempty"` // base64
	Refused string `json:"refused,omitempty"`
}

// SiteDocument is what a site is to follow, deflated and divided.
type SiteDocument struct {
	Digest string
	parts  [][]byte
}

// DivideSite deflates and divides what a site is to follow. It returns an error for more than MaxSite bytes.
func DivideSite(body []byte) (*SiteDocument, error) {
	if len(body) > MaxSite {
		return nil, fmt.Errorf("edgewire: %d bytes, at most %d", len(body), MaxSite)
	}
	sum := sha256.Sum256(body)
	d := &SiteDocument{Digest: hex.EncodeToString(sum[:])}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	for rest := b.Bytes(); len(rest) > 0; {
		n := min(len(rest), sitePart)
		d.parts, rest = append(d.parts, rest[:n]), rest[n:]
	}
	if len(d.parts) > maxSiteParts {
		return nil, fmt.Errorf("edgewire: %d parts, at most %d", len(d.parts), maxSiteParts)
	}
	return d, nil
}

// Answer is the answer to a question.
func (d *SiteDocument) Answer(a *AskSite) *Site {
	s := &Site{Kind: KindSite, Nonce: a.Nonce, Digest: d.Digest}
	if a.Part == 0 && a.Have == d.Digest || a.Part >= len(d.parts) {
		return s
	}
	s.Part, s.Parts, s.Body = a.Part, len(d.parts), d.parts[a.Part]
	return s
}

// JoinSite inflates the parts of what a site is to follow. Errors wrap ErrDocument: it is not what the digest says.
func JoinSite(digest string, parts [][]byte) ([]byte, error) {
	r := flate.NewReader(bytes.NewReader(bytes.Join(parts, nil)))
	body, err := io.ReadAll(io.LimitReader(r, MaxSite+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if sum := sha256.Sum256(body); len(body) > MaxSite || hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("%w: the parts are not those of the digest", ErrDocument)
	}
	return body, nil
}

func parseAskSite(b []byte) (*AskSite, error) {
	a := &AskSite{}
	if err := json.Unmarshal(b, a); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if !validText(a.Nonce) || !validText(a.Have) || a.Part < 0 || a.Part >= maxSiteParts {
		return nil, fmt.Errorf("%w: nonce, have or part", ErrDocument)
	}
	return a, nil
}

func parseSite(b []byte) (*Site, error) {
	s := &Site{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if !validText(s.Nonce) || !validText(s.Digest) || !validText(s.Refused) || s.Part < 0 || s.Parts < 0 || s.Parts > maxSiteParts || s.Part > s.Parts || len(s.Body) > sitePart {
		return nil, fmt.Errorf("%w: nonce, digest, refused or parts", ErrDocument)
	}
	return s, nil
}
