package auth

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/fixture"
	"weir/model"
)

// firstRun is a Setup with a clock that the test turns and no administrator.
type firstRun struct {
	*Setup
	clock *fixture.Clock
	admin atomic.Bool
}

func newFirstRun() *firstRun {
	f := &firstRun{clock: newClock()}
	f.Setup = NewSetup(f.admin.Load, f.clock.Now, nil)
	return f
}

func (f *firstRun) mint(t *testing.T) string {
	t.Helper()
	link, until, err := f.Mint()
	if err != nil || !until.Equal(f.clock.Now().Add(30*time.Minute)) {
		t.Fatalf("minted until %s: %v", until, err)
	}
	return link
}

// made stands for the making of the administrator.
func (f *firstRun) made() error {
	f.admin.Store(true)
	return nil
}

func refusedLink(t *testing.T, what string, err error) {
	t.Helper()
	if model.CodeOf(err) != model.CodeUnauthenticated || err.Error() != "this link is no longer valid; print a new one with: weir admin link" {
		t.Errorf("%s: %v", what, err)
	}
}

func TestSetupLinkIsGoodForThirtyMinutes(t *testing.T) {
	t.Parallel()
	f := newFirstRun()
	link := f.mint(t)
	if len(link) != 43 || strings.ContainsAny(link, "+/=") {
		t.Errorf("%q is not 256 bits in base64url", link)
	}
	f.clock.Step(30*time.Minute - 1)
	if until, err := f.Open(link); err != nil || until.Sub(f.clock.Now()) != 1 {
		t.Errorf("in time: until %s, %v", until, err)
	}
	f.clock.Step(1)
	_, err := f.Open(link)
	refusedLink(t, "after its time", err)
	_, err = f.Redeem(link, f.made)
	refusedLink(t, "used after its time", err)
	if f.admin.Load() {
		t.Error("an administrator was made after the link's time")
	}
}

func TestSetupLinkThatWasReprintedEndsTheOlder(t *testing.T) {
	t.Parallel()
	f := newFirstRun()
	older, newer := f.mint(t), f.mint(t)
	_, err := f.Open(older)
	refusedLink(t, "the older", err)
	if _, err := f.Open(newer); err != nil {
		t.Errorf("the newer: %v", err)
	}
}

func TestSetupLinkIsUsedOnceAndItsPageGoesOn(t *testing.T) {
	t.Parallel()
	f := newFirstRun()
	link := f.mint(t)
	refusedLink(t, "the link as the page's secret", f.Continue(link))
	f.clock.Step(20 * time.Minute)
	page, err := f.Redeem(link, f.made)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Redeem(link, func() error { t.Error("a second administrator"); return nil })
	refusedLink(t, "the second use", err)
	_, err = f.Open(page)
	refusedLink(t, "the page's secret as a link", err)
	if err := f.Continue(page); err != nil {
		t.Errorf("the page goes on: %v", err)
	}
	f.clock.Step(10*time.Minute - 1)
	if err := f.Continue(page); err != nil {
		t.Errorf("until the link's time is over: %v", err)
	}
	f.clock.Step(1)
	refusedLink(t, "the page after the link's time", f.Continue(page))
}

func TestSetupLinkStaysGoodWhenTheAdministratorIsNotMade(t *testing.T) {
	t.Parallel()
	f := newFirstRun()
	link, no := f.mint(t), errors.New("the email is none")
	if _, err := f.Redeem(link, func() error { return no }); !errors.Is(err, no) {
		t.Fatal(err)
	}
	if _, err := f.Redeem(link, f.made); err != nil {
		t.Errorf("once corrected: %v", err)
	}
}

// The second page has found the link good before the first is done with it.
func TestSetupLinkThatTwoPagesUseAtOnceMakesOneAdministrator(t *testing.T) {
	t.Parallel()
	looked := make(chan struct{}, 100) // the clock was asked, which Open does with the link in its hands
	s := NewSetup(func() bool { return false }, func() time.Time { looked <- struct{}{}; return time.Now() }, nil)
	link, _, err := s.Mint()
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	_, err = s.Redeem(link, func() error {
		for len(looked) > 0 {
			<-looked
		}
		go func() {
			_, err := s.Redeem(link, func() error { t.Error("a second administrator"); return nil })
			second <- err
		}()
		<-looked
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	refusedLink(t, "the second page", <-second)
}

func TestSetupEndsWhenAnAdministratorExists(t *testing.T) {
	t.Parallel()
	f := newFirstRun()
	link := f.mint(t)
	f.admin.Store(true) // with weir admin create
	_, err := f.Open(link)
	refusedLink(t, "a link that was not used", err)
	_, _, err = f.Mint()
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code != model.CodeConflict || !strings.Contains(e.Hint, "weir admin create") || !strings.Contains(e.Hint, "weir admin passwd") {
		t.Errorf("a new link: %v", err)
	}
}

func TestSetupAfterTenWrongLinksAMinuteLetsInTheRightOneOnly(t *testing.T) {
	t.Parallel()
	f := newFirstRun()
	reg := prometheus.NewRegistry()
	f.Setup = NewSetup(f.admin.Load, f.clock.Now, reg)
	link := f.mint(t)
	for i := range 10 {
		_, err := f.Open(fmt.Sprintf("guess %d", i))
		refusedLink(t, "a guess", err)
		f.clock.Step(time.Second)
	}
	_, err := f.Open("guess 10")
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeThrottled || e.Ext["retryAfterSeconds"] != 50 {
		t.Errorf("the eleventh: %v", err)
	}
	if _, err := f.Open(link); err != nil {
		t.Errorf("strangers have locked the right one out: %v", err)
	}
	if err := f.Continue("guess 11"); model.CodeOf(err) != model.CodeThrottled {
		t.Errorf("a guessed page: %v", err)
	}
	f.clock.Step(50 * time.Second)
	_, err = f.Open("guess 12")
	refusedLink(t, "a minute after the first", err)
	const want = `
# HELP weir_auth_setup_links_total Setup links by outcome (made, used, refused, throttled).
# TYPE weir_auth_setup_links_total counter
weir_auth_setup_links_total{outcome="made"} 1
weir_auth_setup_links_total{outcome="refused"} 11
weir_auth_setup_links_total{outcome="throttled"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "weir_auth_setup_links_total"); err != nil {
		t.Error(err)
	}
}

func TestSetupPageWithstandsUnauthenticatedAttempts(t *testing.T) {
	t.Parallel()
	f := newFirstRun()
	page, err := f.Redeem(f.mint(t), f.made)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		_, _ = f.Open("guess") // refused or throttled, it does not matter
	}
	if err := f.Continue(page); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestSetupKeepsNoLinkInTheClear(t *testing.T) {
	t.Parallel()
	f := newFirstRun()
	link := f.mint(t)
	if s := fmt.Sprintf("%+v %q", f.Setup.link, f.Setup.link.hash[:]); strings.Contains(s, link) {
		t.Error("the link itself is in memory")
	}
}
