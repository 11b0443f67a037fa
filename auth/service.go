package auth

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/model"
)

// Limits of the service-token route.
const (
	maxServiceBody     = 64 << 10
	wrongSecretsAMin   = 10
	maxSecretSources   = 4096
	minServiceSecret   = 32
	maxServiceSubject  = 128
	headerServiceProof = "X-Weir-Service-Secret"
)

// secretTries counts wrong secrets per source in windows of a minute.
type secretTries struct {
	begun time.Time
	n     int
}

// ServiceToken serves POST /auth/service-token: a caller that knows the configured secret has a service token minted
// with the subject and the authorities it names.
func (a *Auth) ServiceToken() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, body := a.serveService(w, r)
		if status == http.StatusOK {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			_ = json.NewEncoder(w).Encode(body) // the client is gone: the error has no recipient
			return
		}
		a.m.service.WithLabelValues(http.StatusText(status)).Inc()
		http.Error(w, body.(string), status)
	})
}

type serviceReply struct {
	Token     string `json:"token"`
	ExpiresAt int64  `json:"expiresAt"`
}

func (a *Auth) serveService(w http.ResponseWriter, r *http.Request) (status int, body any) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, "method not allowed"
	}
	secret := a.live.Load().ServiceSecret.Reveal()
	if secret == "" {
		return http.StatusServiceUnavailable, "no service secret is configured"
	}
	// A source that has tried too often is refused before its secret is compared.
	source := remoteSource(r)
	if wait := a.serviceTries.blocked(source); wait > 0 {
		setRetryAfter(w, wait)
		return http.StatusTooManyRequests, "too many wrong secrets"
	}
	if !sameSecret(r.Header.Get(headerServiceProof), secret) {
		a.serviceTries.failed(source)
		return http.StatusUnauthorized, "wrong service secret"
	}
	// The body is read only for callers that know the secret.
	req, why := readServiceRequest(http.MaxBytesReader(w, r.Body, maxServiceBody))
	if why != "" {
		return http.StatusBadRequest, why
	}
	c := a.base(KindService, req.Subject, serviceLife, 0)
	c.Authorities = req.Authorities
	token, err := a.sign(c, a.keys.active())
	if err != nil {
		a.log.Error("service token not minted", "error", err)
		return http.StatusInternalServerError, "internal error"
	}
	a.m.service.WithLabelValues("minted").Inc()
	return http.StatusOK, serviceReply{Token: token, ExpiresAt: int64(c.Expires / 1e6)}
}

type serviceRequest struct {
	Subject     string            `json:"subject"`
	Authorities []model.Authority `json:"authorities"`
}

// readServiceRequest returns why a request is refused, "" when it is not.
func readServiceRequest(body io.Reader) (req serviceRequest, why string) {
	dec := json.NewDecoder(body)
	if err := dec.Decode(&req); err != nil {
		return req, "the body is not the expected JSON object"
	}
	// One object and nothing after it.
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return req, "the body is not the expected JSON object"
	}
	req.Subject = strings.TrimSpace(req.Subject)
	switch {
	case req.Subject == "":
		return req, "subject must not be empty"
	case len(req.Subject) > maxServiceSubject:
		return req, "subject is too long"
	case len(req.Authorities) == 0:
		return req, "authorities must not be empty"
	}
	set := map[model.Authority]bool{}
	for _, au := range req.Authorities {
		if model.TierOf(au) == 0 {
			return req, "authorities holds an unknown one"
		}
		set[au] = true
	}
	req.Authorities = sortedAuthorities(set)
	return req, ""
}

// remoteSource is the source of a request by the address of its connection.
func remoteSource(r *http.Request) string { return sourceOf(RemoteAddr(r.RemoteAddr)) }

// RemoteAddr reads the address of an "address:port"; other text gives the zero address, which counts as one source.
func RemoteAddr(hostPort string) netip.Addr {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = hostPort
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// sourceTries counts wrong secrets by source.
type sourceTries struct {
	now func() time.Time

	mu  sync.Mutex
	all *lru[string, secretTries]
}

func newSourceTries(now func() time.Time) *sourceTries {
	return &sourceTries{now: now, all: newLRU[string, secretTries](maxSecretSources, nil)}
}

// blocked returns how long a source must wait, 0 when it need not.
func (s *sourceTries) blocked(source string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.all.get(source)
	if !ok || t.n < wrongSecretsAMin {
		return 0
	}
	return max(0, t.begun.Add(time.Minute).Sub(s.now()))
}

func (s *sourceTries) failed(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.all.get(source)
	if now := s.now(); !ok || now.Sub(t.begun) >= time.Minute {
		t = secretTries{begun: now}
	}
	t.n++
	s.all.put(source, t)
}

// setRetryAfter sets the header in whole seconds, rounded up.
func setRetryAfter(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}
