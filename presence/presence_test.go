package presence

import (
	"testing"

	"pgregory.net/rapid"

	"weir/model"
)

func claim(st model.PresenceState, session uint64, at model.Micros) Claim {
	return Claim{Presence: model.Presence{State: st, Session: session, Occurred: at.Nanos()}, Source: "mqtt1"}
}

func expecting(c Claim, session uint64) Claim {
	c.Expected = session
	return c
}

func TestFoldOrdersClaims(t *testing.T) {
	up := State{Active: true, Asserted: true, Source: "mqtt1", Session: 10, PresenceTime: 100, LastConnect: 100}
	down := State{Asserted: true, Source: "mqtt1", Session: 10, PresenceTime: 100, LastDisconnect: 100}
	inferred := State{Active: true, Source: "mqtt1", Session: 10, PresenceTime: 100}
	for _, tc := range []struct {
		name  string
		state State
		claim Claim
		want  State
		wins  bool
	}{
		{"first transition makes an unknown device asserted", State{}, claim(model.Connected, 1, 5),
			State{Active: true, Asserted: true, Source: "mqtt1", Session: 1, PresenceTime: 5, LastConnect: 5}, true},
		{"first transition may be a disconnect", State{}, claim(model.Disconnected, 1, 5),
			State{Asserted: true, Source: "mqtt1", Session: 1, PresenceTime: 5, LastDisconnect: 5}, true},
		{"first transition ends inference", inferred, claim(model.Disconnected, 11, 101),
			State{Asserted: true, Source: "mqtt1", Session: 11, PresenceTime: 101, LastDisconnect: 101}, true},
		{"higher session wins even when its time is earlier", up, claim(model.Disconnected, 11, 50),
			State{Asserted: true, Source: "mqtt1", Session: 11, PresenceTime: 50, LastConnect: 100, LastDisconnect: 50}, true},
		{"same session, later time wins", up, claim(model.Disconnected, 10, 101),
			State{Asserted: true, Source: "mqtt1", Session: 10, PresenceTime: 101, LastConnect: 100, LastDisconnect: 101}, true},
		{"same session, later connect wins", up, claim(model.Connected, 10, 101),
			State{Active: true, Asserted: true, Source: "mqtt1", Session: 10, PresenceTime: 101, LastConnect: 101}, true},
		{"same session, earlier time loses", up, claim(model.Disconnected, 10, 99), up, false},
		{"equal times, disconnect over connected", up, claim(model.Disconnected, 10, 100),
			State{Asserted: true, Source: "mqtt1", Session: 10, PresenceTime: 100, LastConnect: 100, LastDisconnect: 100}, true},
		{"equal times, connect over disconnected loses", down, claim(model.Connected, 10, 100), down, false},
		{"equal times, the same connect again loses", up, claim(model.Connected, 10, 100), up, false},
		{"equal times, the same disconnect again loses", down, claim(model.Disconnected, 10, 100), down, false},
		{"lower session loses", up, claim(model.Connected, 9, 200), up, false},
		{"lower session, disconnect loses even when expected", up, expecting(claim(model.Disconnected, 9, 200), 10), up, false},
		{"lower session, expected and later, wins", up, expecting(claim(model.Connected, 9, 200), 10),
			State{Active: true, Asserted: true, Source: "mqtt1", Session: 9, PresenceTime: 200, LastConnect: 200}, true},
		{"lower session, expected at the same time, loses", up, expecting(claim(model.Connected, 9, 100), 10), up, false},
		{"lower session, other session expected, loses", up, expecting(claim(model.Connected, 8, 200), 9), up, false},
		{"demotion keeps flag and times", up, claim(model.Demoted, 10, 101),
			State{Active: true, Source: "mqtt1", Session: 10, PresenceTime: 100, LastConnect: 100}, true},
		{"demotion at the same time loses", up, claim(model.Demoted, 10, 100), up, false},
		{"demotion of another session loses", up, claim(model.Demoted, 11, 101), up, false},
		{"demotion of an inferred device does nothing", inferred, claim(model.Demoted, 10, 101), inferred, false},
		{"unknown state does nothing", up, claim(model.PresenceState(9), 11, 101), up, false},
		{"time is ordered in the stored precision", up,
			Claim{Presence: model.Presence{State: model.Connected, Session: 10, Occurred: 100_999}}, up, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, changed := Fold(tc.state, tc.claim)
			if got != tc.want || changed != tc.wins {
				t.Errorf("Fold = %+v, %v\nwant   %+v, %v", got, changed, tc.want, tc.wins)
			}
		})
	}
}

func genClaim() *rapid.Generator[Claim] {
	return rapid.Custom(func(t *rapid.T) Claim {
		return Claim{Source: rapid.SampledFrom([]string{"mqtt1", "sparkplug1"}).Draw(t, "source"), Presence: model.Presence{
			State:    rapid.SampledFrom([]model.PresenceState{model.Connected, model.Disconnected, model.Demoted}).Draw(t, "state"),
			Session:  rapid.Uint64Range(0, 6).Draw(t, "session"),
			Expected: rapid.Uint64Range(0, 6).Draw(t, "expected"),
			Occurred: model.Micros(rapid.Int64Range(-3, 12).Draw(t, "at")).Nanos(),
		}}
	})
}

// What the applier relies on: a claim applied again changes nothing, a refused one changes nothing, and without claims
// that follow a session by name the session number never falls.
func TestFoldProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		for _, c := range rapid.SliceOfN(genClaim(), 1, 40).Draw(t, "claims") {
			next, changed := Fold(s, c)
			if changed != (next != s) {
				t.Fatalf("changed = %v from %+v to %+v", changed, s, next)
			}
			if again, moved := Fold(next, c); moved && c.Expected != next.Session {
				t.Fatalf("%+v applied twice moves %+v to %+v", c, next, again)
			}
			if next.Session < s.Session && c.Expected != s.Session {
				t.Fatalf("session fell from %d to %d by %+v", s.Session, next.Session, c)
			}
			if s.Asserted && !next.Asserted && c.State != model.Demoted {
				t.Fatalf("%+v returned the device to inference", c)
			}
			if next.Session == s.Session && next.PresenceTime < s.PresenceTime {
				t.Fatalf("time fell within session %d by %+v", s.Session, c)
			}
			s = next
		}
	})
}

// Claims of rising sessions give the same end state in whatever order they arrive, as long as each session sends one
// connect and one later disconnect: that is what lets a transport report without waiting for the others.
func TestLateClaimsOfOldSessionsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "sessions")
		var claims []Claim
		for i := range n {
			base := model.Micros(10 * i)
			claims = append(claims, claim(model.Connected, uint64(i+1), base+1), claim(model.Disconnected, uint64(i+1), base+2))
		}
		fold := func(cs []Claim) State {
			var s State
			for _, c := range cs {
				s, _ = Fold(s, c)
			}
			s.LastConnect, s.LastDisconnect = 0, 0 // history of what was seen on the way, not of the end
			return s
		}
		if got, want := fold(rapid.Permutation(claims).Draw(t, "order")), fold(claims); got != want {
			t.Fatalf("in another order %+v, in order %+v", got, want)
		}
	})
}
