package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/trickle"
	"weir/model"
	"weir/store"
)

// anonymous is a message over HTTP that presents a user name and a password.
func anonymous(user string) *Arrival {
	return &Arrival{Transport: TransportHTTP, Source: "http1", Tenant: "acme", Body: []byte(measurement("temp", 1,
		fmt.Sprintf(`,"device":"d1","credentialType":"MQTT_BASIC","credentialId":%q,"credentialSecret":"wrong"`, user)))}
}

// onPaper is an intake before a paper log, with a verifier and a log of its own.
func onPaper(verify VerifyFunc, logged *bytes.Buffer) (*Intake, *paperLog, *testCeiling) {
	in, log, _, ceiling := paperIntake(false)
	in.deps.Verify = verify
	in.deps.Seal = func(_ string, b []byte) ([]byte, error) { return bytes.Clone(b), nil }
	in.deps.Logger = slog.New(slog.NewTextHandler(logged, nil))
	return in, log, ceiling
}

func acceptOne(in *Intake, a *Arrival) (answer Answer) {
	in.Accept(context.Background(), a, func(a Answer) { answer = a })
	return answer
}

// Unreadable bodies cost the sender as much as they want, and Weir no more than some copies of bounded size.
func TestAFloodOfUnreadableBodiesLeavesFewShortCopies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, _, _ := onPaper(nil, new(bytes.Buffer))
		var kept []*store.DeadLetter
		writes := 0
		in.rejected = trickle.NewQueue(copiesPerSecond, copyBurst, func(_ context.Context, ds []*store.DeadLetter) error {
			kept, writes = append(kept, ds...), writes+1
			return nil
		}, in.lostCopies)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- in.Run(ctx) }()
		body := bytes.Repeat([]byte("x"), 100_000)
		for range 5000 {
			a := acceptOne(in, &Arrival{Transport: TransportHTTP, Source: "http1", Tenant: "acme", Body: body})
			if a.Outcome != Refused || a.Reason != ReasonUndecodable {
				t.Fatalf("%+v", a)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(kept) == 0 || len(kept) > copyBurst || writes > 2 {
			t.Errorf("%d copies in %d writes, want some and no more than %d", len(kept), writes, copyBurst)
		}
		for _, d := range kept {
			if len(d.Record) > maxCopy {
				t.Errorf("a copy of %d bytes", len(d.Record))
			}
		}
	})
}

// An array of a thousand events with a thousand user names runs the hashes that strangers may, and no more.
func TestAnArrayOfManyUserNamesEndsWithItsHashes(t *testing.T) {
	t.Parallel()
	hashes := 0
	verify := func(_ context.Context, c Claim) (Proof, model.Verdict, error) {
		if !c.Spend() {
			return Proof{}, model.VerdictBad, ErrSpent
		}
		hashes++
		return Proof{}, model.VerdictBad, nil
	}
	in, log, ceiling := onPaper(verify, new(bytes.Buffer))
	ceiling.hashes, ceiling.unauthenticated = 20, 1000
	as := make([]*Arrival, 1000)
	for i := range as {
		as[i] = anonymous(fmt.Sprint("user-", i))
	}
	var answer Answer
	at := 0
	in.AcceptAll(t.Context(), as, func(a Answer, i int) { answer, at = a, i })
	if answer.Outcome != Refused || answer.Reason != ReasonUnauthenticated || answer.RetryAfter == 0 || at != 20 || hashes != 20 {
		t.Errorf("%+v at %d after %d hashes", answer, at, hashes)
	}
	if n := log.Stats().Last; n != 0 {
		t.Errorf("%d records of a refused array", n)
	}
}

// A sender that proves itself gives its hash back, so that a fleet that comes back is not held up by its own number.
func TestAProvenSenderCostsNoHash(t *testing.T) {
	t.Parallel()
	in, _, ceiling := onPaper(func(_ context.Context, c Claim) (Proof, model.Verdict, error) {
		if !c.Spend() {
			return Proof{}, model.VerdictBad, ErrSpent
		}
		return Proof{Credential: 7, DeviceID: 1, Device: "d1"}, model.VerdictOK, nil
	}, new(bytes.Buffer))
	ceiling.hashes = 1
	for i := range 10 {
		if a := acceptOne(in, anonymous("user-1")); a.Outcome != Stored {
			t.Fatalf("message %d: %+v", i, a)
		}
	}
}

// A credential that was not looked at is not a wrong one: its message is refused, so that the device sends it again.
func TestACredentialThatWasNotJudgedIsNoVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		reason Reason
		after  int
		logged bool
	}{
		{&model.Error{Code: model.CodeThrottled, Ext: map[string]any{"retryAfterSeconds": 7}}, ReasonThrottled, 7, false},
		{&model.Error{Code: model.CodeUnavailable}, ReasonBusy, 1, false},
		{ErrSpent, ReasonUnauthenticated, 1, false},
		{errors.New("disk on fire"), ReasonUnavailable, 0, true},
		{fmt.Errorf("reading: %w", context.Canceled), ReasonUnavailable, 0, false}, // its connection was closed
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			t.Parallel()
			var logged bytes.Buffer
			in, log, _ := onPaper(func(context.Context, Claim) (Proof, model.Verdict, error) { return Proof{}, model.VerdictBad, c.err }, &logged)
			for range 1000 {
				if a := acceptOne(in, anonymous("user-1")); a.Outcome != Refused || a.Reason != c.reason || a.RetryAfter != c.after {
					t.Fatalf("%+v", a)
				}
			}
			if n := log.Stats().Last; n != 0 {
				t.Errorf("%d records", n)
			}
			if lines := strings.Count(logged.String(), "\n"); lines > 1 || (lines == 1) != c.logged {
				t.Errorf("%d lines in the log:\n%s", lines, logged.String())
			}
		})
	}
}

// Messages of unauthenticated senders reach the log ten times a second, whenever they come.
func TestUnauthenticatedMessagesShareCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, _, _ := onPaper(func(context.Context, Claim) (Proof, model.Verdict, error) { return Proof{}, model.VerdictBad, nil }, new(bytes.Buffer))
		begun := time.Now()
		in.deps.Stamp = func() model.Stamp { return model.Stamp{Wall: 1, Mono: int64(time.Since(begun))} }
		stored := map[time.Duration]int{}
		type ended struct {
			Answer
			at time.Duration
		}
		answers := make(chan ended, 50)
		for i := range 50 {
			time.Sleep(5 * time.Millisecond)
			go in.Accept(t.Context(), anonymous(fmt.Sprint("user-", i)), func(a Answer) { answers <- ended{a, time.Since(begun)} })
		}
		for range 50 {
			a := <-answers
			if a.Outcome != Stored {
				t.Errorf("%+v", a)
			}
			stored[a.at]++
		}
		if len(stored) > 4 {
			t.Errorf("messages of 250 ms were stored at %v", stored)
		}
	})
}
