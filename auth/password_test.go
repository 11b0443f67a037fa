package auth

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
)

func TestAHashVerifiesItsPasswordOnly(t *testing.T) {
	h := NewHasher(weak, nil)
	encoded, err := h.Hash(t.Context(), password)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(encoded, "$argon2id$v=19$m=8,t=1,p=1$") || strings.Contains(encoded, password) {
		t.Errorf("hash %q", encoded)
	}
	for _, c := range []struct {
		encoded, password string
		ok                bool
	}{{encoded, password, true}, {encoded, password + " ", false}, {encoded, "", false}, {"", password, false}, {"", "", false},
		{encoded, strings.Repeat("x", MaxPasswordBytes+1), false}} {
		ok, _, err := h.Verify(t.Context(), LaneTransport, c.encoded, c.password)
		if ok != c.ok || err != nil {
			t.Errorf("Verify(%q, %q) = %v, %v", c.encoded, c.password, ok, err)
		}
	}
	if again, _ := h.Hash(t.Context(), password); again == encoded {
		t.Error("two hashes share a salt")
	}
}

func TestAHashOfOtherParametersVerifiesAndAsksToBeRenewed(t *testing.T) {
	old, err := NewHasher(weak, nil).Hash(t.Context(), password)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHasher(Params{MemoryKiB: 16, Passes: 1, Lanes: 1}, nil)
	if ok, renew, err := h.Verify(t.Context(), LaneAPI, old, password); !ok || !renew || err != nil {
		t.Errorf("%v, %v, %v", ok, renew, err)
	}
	fresh, err := h.Hash(t.Context(), password)
	if err != nil {
		t.Fatal(err)
	}
	if ok, renew, err := h.Verify(t.Context(), LaneAPI, fresh, password); !ok || renew || err != nil {
		t.Errorf("%v, %v, %v", ok, renew, err)
	}
}

var phcSeeds = []string{
	"$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"$argon2id$v=19$m=4294967295,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"$argon2i$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"$argon2id$v=16$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"$argon2id$v=19$m=8,t=0,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"$argon2id$v=19$m=8,t=1,p=1$AA$AA", "$argon2id$v=19$m=08,t=1,p=1$x$y", "", "$", "plain",
}

func TestAForeignHashIsAnErrorNotAMatch(t *testing.T) {
	for i, s := range phcSeeds {
		if _, err := parsePHC(s); (err == nil) != (i == 0) {
			t.Errorf("%q: %v", s, err)
		}
	}
	if _, _, err := NewHasher(weak, nil).Verify(t.Context(), LaneAPI, "plain", password); !errors.Is(err, errHash) {
		t.Errorf("%v", err)
	}
}

func FuzzParsePHC(f *testing.F) {
	for _, s := range phcSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := parsePHC(s)
		if err == nil && (h.String() != s || h.MemoryKiB > 256*1024 || h.Passes > 16) {
			t.Errorf("%q was read as %+v", s, h)
		}
	})
}

func TestPasswordsThatMayNotBeChosen(t *testing.T) {
	for p, ok := range map[string]bool{"1234567": false, "12345678": true, "äöüäöüä": false, "äöüäöüäö": true,
		strings.Repeat("x", MaxPasswordBytes): true, strings.Repeat("x", MaxPasswordBytes+1): false, "12345678\xff": false} {
		err := CheckPassword(p)
		if (err == nil) != ok {
			t.Errorf("%q: %v", p, err)
		}
		if err != nil && strings.Contains(err.Error(), p) {
			t.Errorf("the refusal shows the password: %v", err)
		}
	}
}

func TestOneOfTwoHashSlotsBelongsToTheTransports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(weak, nil)
		hold := func(l Lane) func() {
			t.Helper()
			release, err := h.hold(t.Context(), l)
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		refused := func(l Lane) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := h.hold(ctx, l); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("lane %s: %v", l, err)
			}
		}
		api := hold(LaneAPI)
		refused(LaneAPI) // the doors' place is not the API's
		door := hold(LaneTransport)
		refused(LaneTransport) // and there are two in all
		api()
		second := hold(LaneTransport) // idle, so a door may use it
		refused(LaneAPI)
		door()
		refused(LaneAPI)
		second()
		hold(LaneAPI)()
	})
}

// A flood of wrong passwords must leave processor time to all else: two slots are as many as the cores of a small machine.
func TestAWrongPasswordKeepsItsSlotForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(weak, nil)
		encoded, err := h.Hash(t.Context(), "right")
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		attempt := func(password string, want bool, after time.Duration) {
			t.Helper()
			ok, err := h.attempt(t.Context(), LaneTransport, func() error { return nil }, encoded, password)
			if ok != want || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
			if got := time.Since(begun); got != after {
				t.Errorf("%q was checked after %v, want %v", password, got, after)
			}
		}
		for range 10 {
			attempt("right", true, 0)
		}
		attempt("wrong", false, 0)
		attempt("wrong", false, 0) // in the other slot
		attempt("right", true, coolDown*time.Millisecond)
		time.Sleep(time.Second)
		release, err := h.hold(t.Context(), LaneAPI)
		if err != nil {
			t.Fatal(err)
		}
		release()
	})
}

func TestTooManyWaitingForAHashAreTurnedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(weak, nil)
		release, err := h.hold(t.Context(), LaneAPI)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range maxWaitingAPI {
			wg.Go(func() {
				if _, err := h.hold(ctx, LaneAPI); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait()
		if _, err := h.hold(ctx, LaneAPI); !errors.Is(err, ErrBusy) {
			t.Errorf("%v", err)
		}
		fixture.Refused(t, unavailable(ErrBusy), model.CodeUnavailable, "")
		cancel()
		wg.Wait()
		release()
	})
}

func TestMintedSecretsHave256Bits(t *testing.T) {
	a, b := MintSecret(), MintSecret()
	if a == b || len(a) != 43 {
		t.Errorf("%q, %q", a, b)
	}
	if HashSecret(a) == HashSecret(b) || !sameSecret(a, a) || sameSecret(a, b) {
		t.Error("comparison")
	}
}

func BenchmarkHash(b *testing.B) {
	h := NewHasher(Params{}, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Hash(b.Context(), password); err != nil {
			b.Fatal(err)
		}
	}
}
