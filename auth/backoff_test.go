package auth

import (
	"net/netip"
	"testing"
	"time"
)

func TestWaitsDoubleBeyondTheFreeFailures(t *testing.T) {
	for _, c := range []struct {
		rule backoffRule
		n    int
		want time.Duration
	}{
		{signInRule, 5, 0}, {signInRule, 6, time.Second}, {signInRule, 7, 2 * time.Second}, {signInRule, 14, 256 * time.Second},
		{signInRule, 15, 5 * time.Minute}, {signInRule, 100000, 5 * time.Minute},
		{emailRule, 99, 0}, {emailRule, 100, time.Second}, {emailRule, 101, 2 * time.Second},
		{deviceRule, 10, 0}, {deviceRule, 11, time.Second}, {deviceRule, 15, 16 * time.Second}, {deviceRule, 16, 30 * time.Second},
	} {
		if got := c.rule.wait(c.n); got != c.want {
			t.Errorf("after %d failures (%d free): %v, want %v", c.n, c.rule.free, got, c.want)
		}
	}
}

func TestAnEntryLivesTenMinutesWithoutAnAttempt(t *testing.T) {
	clock := newClock()
	b := newBackoff(signInRule, 10, clock.Now)
	k := backoffKeyOf("ada")
	for range 8 {
		b.failed(k, k)
	}
	if w := b.blocked(k); w != 4*time.Second {
		t.Fatalf("wait %v", w)
	}
	clock.Step(9 * time.Minute)
	if w := b.blocked(k); w != 0 {
		t.Fatalf("wait %v after the wait", w)
	}
	clock.Step(9 * time.Minute) // the attempt above kept it alive
	b.failed(k, k)
	if w := b.blocked(k); w != 8*time.Second {
		t.Errorf("wait %v: the failures were forgotten too early", w)
	}
	clock.Step(10 * time.Minute)
	b.failed(k, k)
	if w := b.blocked(k); w != 0 {
		t.Errorf("wait %v: the failures were not forgotten", w)
	}
}

func TestTheTableOfFailuresIsBounded(t *testing.T) {
	b := newBackoff(signInRule, 3, newClock().Now)
	for _, name := range []string{"a", "b", "c", "a", "d", "e"} {
		b.failed(backoffKeyOf(name), backoffKey{})
	}
	if b.size() != 3 {
		t.Errorf("%d entries", b.size())
	}
	if b.alive(backoffKeyOf("a")) == nil || b.alive(backoffKeyOf("b")) != nil {
		t.Error("not the least recently used one made room")
	}
}

func TestKeysDoNotRunTogether(t *testing.T) {
	if backoffKeyOf("ab", "c") == backoffKeyOf("a", "bc") {
		t.Error("two pairs share a key")
	}
}

func TestSources(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.2", false}, {"192.0.2.1", "::ffff:192.0.2.1", true},
		{"2001:db8::1", "2001:db8::ffff:1", true}, {"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::2%eth1", true},
	} {
		if same := sourceOf(netip.MustParseAddr(c.a)) == sourceOf(netip.MustParseAddr(c.b)); same != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, same)
		}
	}
	if sourceOf(netip.Addr{}) == "" {
		t.Error("no address is no source")
	}
}
