package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
)

// Limits of the first run.
const (
	// SetupLife is how long a link of the first run is valid.
	SetupLife      = 30 * time.Minute
	wrongLinksAMin = 10
)

// Setup keeps the one-time link of the first run: a secret of 256 random bits with which its holder makes
// the first administrator in a browser. There is one link at a time, known by its SHA-256 and in memory only: a restart
// drops it. It is consumed when the administrator exists; the page that made the administrator continues with a secret of
// its own until the link expires. All methods are safe for concurrent use.
type Setup struct {
	done func() bool
	now  func() time.Time
	m    setupMetrics

	using sync.Mutex // held while a link is being used: it makes one administrator

	mu    sync.Mutex
	link  oneTime
	page  oneTime
	wrong secretTries
}

// oneTime is a secret that ends. The zero value is none. Its end is measured on the clock that runs evenly where there
// is one: a gateway whose date is set meanwhile neither loses its link nor keeps it.
type oneTime struct {
	hash  [sha256.Size]byte
	until time.Time
}

func (o oneTime) is(secret string, now time.Time) bool {
	hash := HashSecret(secret)
	same := subtle.ConstantTimeCompare(o.hash[:], hash[:]) == 1
	return same && now.Before(o.until)
}

// NewSetup makes the first run of an instance. done says whether an administrator exists, with whom no link is good any
// more; clock is time.Now when nil.
func NewSetup(done func() bool, clock func() time.Time, reg prometheus.Registerer) *Setup {
	if clock == nil {
		clock = time.Now
	}
	return &Setup{done: done, now: clock, m: newSetupMetrics(reg)}
}

// Mint makes a new link, which ends the one before, and says until when it is good. It is refused once an administrator
// exists.
func (s *Setup) Mint() (secret string, until time.Time, err error) {
	if s.done() {
		return "", until, &model.Error{Code: model.CodeConflict, Message: "an administrator exists already: no setup link is made",
			Hint: "make another one with weir admin create, or give one a new password with weir admin passwd"}
	}
	secret, until = MintSecret(), s.now().Add(SetupLife)
	s.mu.Lock()
	s.link = oneTime{HashSecret(secret), until}
	s.mu.Unlock()
	s.m.links.WithLabelValues("made").Inc()
	return secret, until, nil
}

// errNoLink is the one answer for a link that is wrong, expired or used: a guess reveals nothing.
func errNoLink() error {
	return &model.Error{Code: model.CodeUnauthenticated, Message: "this link is no longer valid; print a new one with: weir admin link"}
}

// Open reports whether the link is valid, and until when. The right link is accepted whatever other clients have tried: no one
// guesses 256 bits, so a throttle on it would only let them lock out the operator. After 10 wrong links a minute, from
// any client, further wrong links are answered with a delay.
func (s *Setup) Open(link string) (until time.Time, err error) {
	over := s.done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if good := s.link.is(link, s.now()); good && !over {
		return s.link.until, nil
	}
	if err := s.throttled(); err != nil {
		return until, err
	}
	return until, s.failed()
}

// Redeem has create make the first administrator and consumes the link, unless create fails: then the link stays valid. page
// is the secret with which the same browser continues.
func (s *Setup) Redeem(link string, create func() error) (page string, err error) {
	if _, err := s.Open(link); err != nil {
		return "", err
	}
	s.using.Lock()
	defer s.using.Unlock()
	if _, err := s.Open(link); err != nil { // another request was faster
		return "", err
	}
	if err := create(); err != nil {
		return "", err
	}
	page = MintSecret()
	s.mu.Lock()
	s.page, s.link = oneTime{HashSecret(page), s.link.until}, oneTime{}
	s.mu.Unlock()
	s.m.links.WithLabelValues("used").Inc()
	return page, nil
}

// Continue reports whether this is the secret of the page that consumed the link. The right secret is accepted whatever
// other clients have tried: they cannot interrupt a setup.
func (s *Setup) Continue(page string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.page.is(page, s.now()) {
		return nil
	}
	if err := s.throttled(); err != nil {
		return err
	}
	return s.failed()
}

func (s *Setup) throttled() error {
	wait := s.wrong.begun.Add(time.Minute).Sub(s.now())
	if s.wrong.n < wrongLinksAMin || wait <= 0 {
		return nil
	}
	s.m.links.WithLabelValues("throttled").Inc()
	return errThrottled(wait)
}

func (s *Setup) failed() error {
	if now := s.now(); now.Sub(s.wrong.begun) >= time.Minute {
		s.wrong = secretTries{begun: now}
	}
	s.wrong.n++
	s.m.links.WithLabelValues("refused").Inc()
	return errNoLink()
}

type setupMetrics struct{ links *prometheus.CounterVec }

func newSetupMetrics(reg prometheus.Registerer) setupMetrics {
	m := setupMetrics{prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_auth_setup_links_total",
		Help: "Setup links by outcome (made, used, refused, throttled)."}, []string{"outcome"})}
	create(m.links, "made")
	register(reg, m.links)
	return m
}
