package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/command"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	rows "weir/store/commands"
)

// held is the desk of a service that stands still between a claim and its packet when it is told to, and that is cut off when Weir crashes.
type held struct {
	command.Desk
	mu     sync.Mutex
	hold   bool
	claims []func()
	cut    bool

	straight int // commands that came without a claim
}

func (h *held) Claim(device int64, carrier string, done func(command.Dispatch, bool)) {
	h.Desk.Claim(device, carrier, func(d command.Dispatch, ok bool) {
		h.mu.Lock()
		if h.hold && ok {
			h.claims = append(h.claims, func() { done(d, ok) })
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		done(d, ok)
	})
}

func (h *held) Ended(r command.Receipt) {
	h.mu.Lock()
	cut := h.cut
	h.mu.Unlock()
	if !cut {
		h.Desk.Ended(r)
	}
}

// heldTaker stands still between a commit and its packet where a command leaves with the transaction that makes it.
type heldTaker struct {
	command.Taker
	h *held
}

func (t heldTaker) Take(d command.Dispatch) {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	t.h.straight++
	if t.h.hold {
		t.h.claims = append(t.h.claims, func() { t.Taker.Take(d) })
		return
	}
	t.Taker.Take(d)
}

// release lets what was claimed go on.
func (h *held) release() {
	h.mu.Lock()
	h.hold = false
	claims := h.claims
	h.claims = nil
	h.mu.Unlock()
	for _, c := range claims {
		c()
	}
	synctest.Wait()
}

// journey is the service and the broker together, over a store, with one device.
type journey struct {
	t       *testing.T
	v       byte
	db      store.Store
	service *command.Service
	desk    *held
	x       *bench
	stop    func()
	c       *client // the device; nil while it is away
	other   *client // its second session, likewise
	seen    []downlink

	atOnce bool // the command is a caller's, and may leave with the transaction that makes it
}

// downlink is a command as a session received it.
type downlink struct {
	Token         string
	DispatchNonce string
	id            byte
	by            *client
}

const theTenant = 1

var operator = &model.Principal{Kind: model.AccessCaller, Subject: "ann", Tenant: "acme", TenantID: theTenant}

func (j *journey) start() {
	j.service = command.New(command.Settings{PresenceGated: true}, command.Deps{Store: j.db, Writer: store.Direct{Store: j.db}, Ceiling: func(int64) int64 { return 100 },
		Judge: func(_ store.Tx, _ int64, devices []string, _ string, _ *string) (all []command.Verdict, err error) {
			return []command.Verdict{{Device: devices[0], DeviceID: 1}}, nil
		}})
	j.desk = &held{Desk: j.service}
	j.x = newBenchWith(j.t, Config{}, Deps{Desk: j.desk})
	j.service.Carry(heldTaker{j.x.broker.Commands().(command.Taker), j.desk})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := j.service.Run(ctx); err != nil {
			j.t.Error(err)
		}
	}()
	j.stop = func() {
		cancel()
		<-ended
		j.x.stop()
		j.c, j.other = nil, nil
	}
}

// crash ends Weir without a word about what is on its way, and starts it again.
func (j *journey) crash() {
	j.desk.mu.Lock()
	j.desk.cut = true
	j.desk.mu.Unlock()
	j.stop()
	j.desk.release()
	j.start()
	j.quiet()
}

// listen opens a session of the device that is subscribed to its commands.
func (j *journey) listen(suffix string) *client {
	c := j.x.dial(j.v)
	c.send(connectPacket(j.v, func(h *hello) { h.clientID, h.keepAlive = theClient+suffix, 0 }), subscribePacket(j.v, 1, theCommands))
	synctest.Wait()
	j.look(c)
	return c
}

// look takes what a session has received. What was received by one that is over counts, too.
func (j *journey) look(c *client) {
	j.t.Helper()
	if c == nil {
		return
	}
	for _, p := range c.take() {
		if p[0]>>4 != pktPublish {
			continue
		}
		d := downlink{by: c}
		at := bytes.IndexByte(p, '{')
		if err := json.Unmarshal(p[at:], &d); err != nil {
			j.t.Fatalf("received % x: %v", p, err)
		}
		if d.id = p[at-1]; j.v == mqtt5 {
			d.id = p[at-2]
		}
		j.seen = append(j.seen, d)
	}
}

// quiet waits until nothing happens any more.
func (j *journey) quiet() {
	j.t.Helper()
	synctest.Wait()
	j.look(j.c)
	j.look(j.other)
}

func (j *journey) pass(d time.Duration) {
	time.Sleep(d)
	j.quiet()
}

func (j *journey) order(life time.Duration) {
	j.t.Helper()
	o := command.Order{TenantID: theTenant, Token: "c-1", Device: "dev1", Name: "open", Exact: true, Expires: model.MicrosOf(time.Now().Add(life))}
	if j.atOnce {
		there := j.c != nil
		if _, refused, err := j.service.Order(j.t.Context(), operator, o); err != nil || refused != nil {
			j.t.Fatalf("%v, refused: %+v", err, refused)
		}
		j.quiet()
		j.desk.mu.Lock()
		defer j.desk.mu.Unlock()
		if there != (j.desk.straight == 1) {
			j.t.Fatalf("%d commands left at once; the device is there: %v", j.desk.straight, there)
		}
		return
	}
	if err := j.db.Write(j.t.Context(), store.Durable, func(tx store.Tx) error {
		_, refused, err := j.service.Create(tx, o)
		if refused != nil {
			j.t.Errorf("refused: %+v", refused)
		}
		return err
	}); err != nil {
		j.t.Fatal(err)
	}
	j.quiet()
}

func (j *journey) get() (c *command.Command) {
	j.t.Helper()
	if err := j.db.Read(j.t.Context(), func(tx store.Tx) (err error) {
		c, err = rows.Get(tx, theTenant, "c-1")
		return err
	}); err != nil || c == nil {
		j.t.Fatalf("the command is lost: %v", err)
	}
	return c
}

func (j *journey) cancel() {
	j.t.Helper()
	if _, err := j.service.Cancel(j.t.Context(), operator, "c-1"); err != nil {
		j.t.Fatal(err)
	}
	j.quiet()
}

// acknowledge sends the PUBACK of the newest command that came.
func (j *journey) acknowledge() {
	d := j.seen[len(j.seen)-1]
	d.by.send(puback(d.id))
	j.quiet()
}

// answer is the answer of the device to the newest command that came, as it reaches the service with the log.
func (j *journey) answer() (done command.Answered) {
	j.t.Helper()
	if err := j.db.Write(j.t.Context(), store.Durable, func(tx store.Tx) (err error) {
		done, err = j.service.Answer(tx, command.Response{TenantID: theTenant, DeviceID: 1, Token: "c-1", Nonce: j.seen[len(j.seen)-1].DispatchNonce, Success: true, At: model.NanosOf(time.Now())})
		return err
	}); err != nil {
		j.t.Fatal(err)
	}
	j.quiet()
	return done
}

// The arrows of the life of a command at which something happens to it.
var arrows = []string{"waits", "claimed", "on its way", "acknowledged"}

// What happens, and what the state is then, how many packets the device has received when it is back and has acknowledged and answered all that
// came, and what has become of the command in the end. "" : it is not tried at the arrow.
var happenings = map[string]struct {
	happens func(j *journey)
	life    time.Duration
	at      [4]string // an arrow each: "state packets end"
}{
	"nothing":                {func(*journey) {}, time.Hour, [4]string{"HELD 1 SUCCESSFUL", "SENT 1 SUCCESSFUL", "SENT 1 SUCCESSFUL", "SENT 1 SUCCESSFUL"}},
	"cancel":                 {(*journey).cancel, time.Hour, [4]string{"CANCELLED 0 CANCELLED", "SENT 1 SUCCESSFUL", "SENT 1 SUCCESSFUL", "SENT 1 SUCCESSFUL"}},
	"expiry":                 {func(j *journey) { j.pass(11 * time.Second) }, 10 * time.Second, [4]string{"EXPIRED 0 EXPIRED", "TIMEOUT 0 TIMEOUT", "TIMEOUT 1 TIMEOUT", "TIMEOUT 1 TIMEOUT"}},
	"lost":                   {(*journey).hangUp, time.Hour, [4]string{"", "SENT 1 SUCCESSFUL", "HELD 2 SUCCESSFUL", "SENT 1 SUCCESSFUL"}},
	"lost, then cancel":      {func(j *journey) { j.hangUp(); j.desk.release(); j.cancel() }, time.Hour, [4]string{"", "CANCELLED 0 CANCELLED", "CANCELLED 1 CANCELLED", "SENT 1 SUCCESSFUL"}},
	"lost, then expiry":      {func(j *journey) { j.hangUp(); j.desk.release(); j.pass(11 * time.Second) }, 10 * time.Second, [4]string{"", "EXPIRED 0 EXPIRED", "EXPIRED 1 EXPIRED", "TIMEOUT 1 TIMEOUT"}},
	"takeover":               {func(j *journey) { j.c = j.listen("") }, time.Hour, [4]string{"", "SENT 1 SUCCESSFUL", "SENT 2 SUCCESSFUL", "SENT 1 SUCCESSFUL"}},
	"takeover, then cancel":  {func(j *journey) { j.c = j.listen(""); j.cancel() }, time.Hour, [4]string{"", "SENT 1 SUCCESSFUL", "SENT 2 SUCCESSFUL", "SENT 1 SUCCESSFUL"}},
	"restart":                {(*journey).crash, time.Hour, [4]string{"HELD 1 SUCCESSFUL", "HELD 1 SUCCESSFUL", "HELD 2 SUCCESSFUL", "SENT 1 SUCCESSFUL"}},
	"restart, then cancel":   {func(j *journey) { j.crash(); j.cancel() }, time.Hour, [4]string{"CANCELLED 0 CANCELLED", "CANCELLED 0 CANCELLED", "CANCELLED 1 CANCELLED", "SENT 1 SUCCESSFUL"}},
	"expiry at a restart":    {func(j *journey) { j.crash(); j.pass(11 * time.Second) }, 10 * time.Second, [4]string{"EXPIRED 0 EXPIRED", "EXPIRED 0 EXPIRED", "EXPIRED 1 EXPIRED", "TIMEOUT 1 TIMEOUT"}},
	"silence":                {func(j *journey) { j.pass(200 * time.Second) }, time.Hour, [4]string{"HELD 1 SUCCESSFUL", "", "HELD 2 SUCCESSFUL", "SENT 1 SUCCESSFUL"}},
	"PUBACK from the device": {func(j *journey) { j.acknowledge() }, time.Hour, [4]string{"", "", "SENT 1 SUCCESSFUL", "SENT 1 SUCCESSFUL"}},
}

// hangUp ends the connection of the device.
func (j *journey) hangUp() {
	j.c.conn.Close()
	j.quiet()
	j.c = nil
}

// Whatever happens at an arrow of its life, a command reaches its device or ends in a state that says why: once, where it was acknowledged;
// again under its own token, where that was lost; never after it was cancelled or its life was over.
func TestNoCommandIsLostAtAnyArrow(t *testing.T) {
	t.Parallel()
	for name, h := range happenings {
		for i, arrow := range arrows {
			if h.at[i] == "" {
				continue
			}
			for _, atOnce := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s, at once %v", arrow, name, atOnce), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						j := &journey{t: t, v: bothVersions[(i+len(name))%2], db: fixture.Store(t), atOnce: atOnce}
						j.start()
						defer func() { j.stop() }()
						j.reach(arrow, h.life)
						h.happens(j)
						state := j.get().State
						j.desk.release()
						if j.c == nil {
							j.c = j.listen("")
						}
						j.quiet()
						j.end()
						if got := fmt.Sprintf("%s %d %s", state, len(j.seen), j.get().State); got != h.at[i] {
							t.Errorf("%s, want %s", got, h.at[i])
						}
					})
				})
			}
		}
	}
}

// reach brings a new command to an arrow.
func (j *journey) reach(arrow string, life time.Duration) {
	j.t.Helper()
	if arrow != "waits" {
		j.c = j.listen("")
	}
	j.desk.hold = arrow == "claimed"
	j.order(life)
	want := "HELD 0"
	switch arrow {
	case "claimed":
		want = "SENT 0"
	case "on its way":
		want = "SENT 1"
	case "acknowledged":
		want = "SENT 1"
		j.acknowledge()
	}
	if got := fmt.Sprintf("%s %d", j.get().State, len(j.seen)); got != want {
		j.t.Fatalf("%s: %s, want %s", arrow, got, want)
	}
	if j.get().Delivered != nil != (arrow == "acknowledged") {
		j.t.Fatalf("%s: deliveredTime %v", arrow, j.get().Delivered)
	}
}

// end lets the device acknowledge and answer what came, and checks that all that came was one command, each dispatch by its own nonce.
func (j *journey) end() {
	j.t.Helper()
	if len(j.seen) == 0 {
		return
	}
	j.acknowledge()
	final := j.get().State.Final()
	if got, want := j.answer(), command.Moved; final && got != command.TooLate || !final && got != want {
		j.t.Errorf("the answer: %s; final: %v", got, final)
	}
	var nonces []string
	for _, d := range j.seen {
		if d.Token != "c-1" || slices.Contains(nonces, d.DispatchNonce) {
			j.t.Errorf("received %+v", j.seen)
		}
		nonces = append(nonces, d.DispatchNonce)
	}
	j.pass(10 * time.Minute)
}

// With a second session a command goes to one of the two, and to the other when that one has ended before its acknowledgement: at once, or
// not at all where it was acknowledged, cancelled or has expired.
func TestNoCommandIsLostBetweenTwoSessions(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"claimed/lost":                "SENT 1 SUCCESSFUL",
		"claimed/lost, held":          "SENT 1 SUCCESSFUL",
		"claimed/cancel":              "SENT 1 SUCCESSFUL",
		"claimed/expiry":              "TIMEOUT 0 TIMEOUT",
		"on its way/lost":             "SENT 2 SUCCESSFUL",
		"on its way/cancel, lost":     "SENT 2 SUCCESSFUL",
		"on its way/expiry, lost":     "TIMEOUT 1 TIMEOUT",
		"on its way/both lost":        "HELD 3 SUCCESSFUL",
		"on its way/lost, late":       "SENT 2 SUCCESSFUL",
		"acknowledged/lost":           "SENT 1 SUCCESSFUL",
		"acknowledged/both lost":      "SENT 1 SUCCESSFUL",
		"on its way/restart":          "HELD 2 SUCCESSFUL",
		"acknowledged/restart":        "SENT 1 SUCCESSFUL",
		"on its way/both lost, gone":  "CANCELLED 1 CANCELLED",
		"on its way/the other leaves": "SENT 1 SUCCESSFUL",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journey{t: t, v: bothVersions[len(name)%2], db: fixture.Store(t)}
				j.start()
				defer func() { j.stop() }()
				arrow, what, _ := strings.Cut(name, "/")
				j.other = j.listen(":b")
				life := time.Hour
				if strings.HasPrefix(what, "expiry") {
					life = 10 * time.Second
				}
				j.reach(arrow, life)
				lost := func() { // the session that has the command
					has := j.c
					if len(j.seen) > 0 {
						has = j.seen[len(j.seen)-1].by
					}
					has.conn.Close()
					j.quiet()
					if has == j.c {
						j.c = nil
					} else {
						j.other = nil
					}
				}
				switch what {
				case "lost":
					lost()
					j.desk.release()
				case "lost, held":
					lost()
				case "cancel":
					j.cancel()
				case "expiry":
					j.pass(11 * time.Second)
				case "cancel, lost":
					j.cancel()
					lost()
				case "expiry, lost":
					j.pass(11 * time.Second)
					lost()
				case "both lost":
					lost()
					j.c, j.other = cmp.Or(j.c, j.other), nil
					j.hangUp()
				case "lost, late": // the PUBACK comes on the connection that is over
					late := j.seen[0]
					lost()
					late.by.send(puback(late.id))
					j.quiet()
				case "restart":
					j.crash()
				case "both lost, gone":
					j.other.conn.Close()
					j.other = nil
					j.hangUp()
					j.cancel()
				case "the other leaves":
					if j.seen[0].by == j.c {
						j.other.conn.Close()
					} else {
						j.c.conn.Close()
					}
					j.quiet()
				}
				state := j.get().State
				j.desk.release()
				if j.c == nil {
					j.c = j.listen("")
				}
				if j.other == nil {
					j.other = j.listen(":b")
				}
				j.quiet()
				j.end()
				if got := fmt.Sprintf("%s %d %s", state, len(j.seen), j.get().State); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			})
		})
	}
}
