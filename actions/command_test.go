package actions

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/command"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/rules"
	"weir/store"
	"weir/store/outbox"
)

// commanding is a drain with the commands of an instance. The judge says what a test lets it say.
type commanding struct {
	*world
	commands *command.Service
	ceiling  atomic.Int64
	judged   sync.Map // command.Rejection by the name of the command; none: it is taken
}

func commandBubble(t *testing.T, test func(c *commanding)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &commanding{world: &world{T: t, db: fixture.Store(t), deleted: map[int64]bool{}}}
		c.ceiling.Store(1000)
		c.must(c.db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
			for _, q := range []string{`INSERT INTO device_profiles (id, tenant_id, created_at, updated_at, token, name) VALUES (1, 1, 1, 1, 'p', 'p')`,
				`INSERT INTO device_types (id, tenant_id, created_at, updated_at, token, profile_id) VALUES (1, 1, 1, 1, 't', 1)`,
				`INSERT INTO devices (id, tenant_id, created_at, updated_at, token, type_id) VALUES (1, 1, 1, 1, 'd1', 1), (2, 1, 1, 1, 'd2', 1)`} {
				if _, err := tx.Exec(q); err != nil {
					return err
				}
			}
			return nil
		}))
		c.commands = command.New(command.Settings{PresenceGated: true}, command.Deps{Store: c.db, Writer: store.Direct{Store: c.db, Now: time.Now}, Now: time.Now, Ceiling: func(int64) int64 { return c.ceiling.Load() },
			Judge: func(_ store.Tx, _ int64, devices []string, name string, _ *string) (all []command.Verdict, err error) {
				said, _ := c.judged.Load(name)
				refused, _ := said.(command.Rejection)
				for _, d := range devices {
					all = append(all, command.Verdict{Device: d, DeviceID: int64(d[1] - '0'), Rejection: refused})
				}
				return all, nil
			}})
		c.kinds = []Kind{Commands(c.commands)}
		c.start()
		test(c)
		c.stop()
	})
}

// fire orders a command as a rule does. age is that of its edge, maxAge "" when the rule says none.
func (c *commanding) fire(device int64, name string, age time.Duration, written bool) string {
	c.Helper()
	c.n++
	at := model.MicrosOf(time.Now().Add(-age))
	o := model.Order{TenantID: 1, Kind: string(rules.ActionSendCommand), DeviceID: device, Key: fmt.Sprintf("%064x", c.n), Occurred: at, Received: model.NanosOf(time.Now()),
		Expires: at + model.Micros(10*time.Minute/time.Microsecond)}
	d := model.Dispatch{Kind: o.Kind, Tenant: "t1", Device: fmt.Sprintf("d%d", device), Rule: "t1/p/1/r", Key: o.Key, Payload: `{"n":1}`,
		Command: &model.DispatchCommand{Command: name, Expires: o.Expires.String(), DefaultAge: !written}}
	var err error
	o.Body, err = json.Marshal(d)
	c.must(err)
	c.must(c.db.Write(c.Context(), store.Results, func(tx store.Tx) error { return outbox.Add(tx, &o) }))
	c.drain.Wake()
	return o.Key
}

// made are the commands, in order.
func (c *commanding) made() []string {
	return fixture.Rows(c, c.db, `SELECT device, name, payload, (expires_at - queued_at) / 1000000 FROM commands ORDER BY id`)
}

func TestAnOrderBecomesACommandUnderItsIdempotencyKey(t *testing.T) {
	commandBubble(t, func(c *commanding) {
		key := c.fire(1, "stop", time.Minute, true)
		c.fire(2, "stop", 0, false)
		c.after(0)
		if got := c.made(); !slices.Equal(got, []string{`d1 stop {"n":1} 540`, `d2 stop {"n":1} 600`}) || len(c.waiting()) > 0 {
			t.Errorf("%q, %d wait", got, len(c.waiting()))
		}
		if got := fixture.Rows(c, c.db, `SELECT token FROM commands WHERE device = 'd1'`); !slices.Equal(got, []string{key}) {
			t.Error(got)
		}
	})
}

func TestWhatBecomesOfAnOrderThatIsRejected(t *testing.T) {
	commandBubble(t, func(c *commanding) {
		for _, code := range []string{command.NotJSON, "COMMAND_NOT_IN_VOCABULARY", "PAYLOAD_SCHEMA_VIOLATION", command.Rejected, command.NoDevice, "SOMETHING_NEW"} {
			c.judged.Store(code, command.Rejection{Code: code, Reason: "because"})
			c.fire(1, code, 0, true)
		}
		c.fire(2, "late", time.Hour, true)
		c.fire(2, "late by default", time.Hour, false) // for a device that does not sleep
		c.fire(3, "gone", 0, true)
		c.after(time.Second)
		var got []string
		for _, l := range c.letters("t1") {
			code, _, _ := strings.Cut(l.Summary, ":")
			got = append(got, l.Reason+" "+code)
		}
		slices.Sort(got)
		want := []string{"expired " + command.BadExpiry, "expired " + errLate.Error(), "unprocessable " + command.NotJSON, "unprocessable " + command.Rejected,
			"unprocessable COMMAND_NOT_IN_VOCABULARY", "unprocessable PAYLOAD_SCHEMA_VIOLATION"}
		slices.Sort(want)
		if !slices.Equal(got, want) || len(c.made()) > 0 || c.ends(string(rules.ActionSendCommand), Gone) != 2 {
			t.Errorf("%q, want %q; made %q", got, want, c.made())
		}
		// What is not known is tried again.
		if rows := c.waiting(); len(rows) != 1 || rows[0].Attempts != 1 || rows[0].Error != "SOMETHING_NEW: because" {
			t.Errorf("%+v", rows)
		}
	})
}

func TestOrdersWaitWhileTheirTenantHasAllTheCommandsThatItMay(t *testing.T) {
	commandBubble(t, func(c *commanding) {
		c.ceiling.Store(1)
		for i := range 3 {
			c.fire(1, fmt.Sprint(i), 0, true)
		}
		c.after(time.Minute)
		if len(c.made()) != 1 || len(c.waiting()) != 2 || len(c.drain.Standing()) != 1 {
			t.Errorf("made %q, %d wait, %v", c.made(), len(c.waiting()), c.drain.Standing())
		}
		c.ceiling.Store(2)
		c.after(time.Minute)
		if len(c.made()) != 2 || c.waiting()[0].Attempts != 0 {
			t.Errorf("made %q", c.made())
		}
		c.after(10 * time.Minute) // and what finds no room in its time is told
		if got := c.letters("t1"); len(got) != 1 || got[0].Reason != "expired" || len(c.waiting()) > 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestOrdersThatGoWithTheirDeviceAreCountedOnce(t *testing.T) {
	commandBubble(t, func(c *commanding) {
		c.ceiling.Store(0)
		for range 3 {
			c.fire(1, "stop", 0, true)
			c.fire(2, "stop", 0, true)
		}
		c.after(time.Second)
		remove := RemoveDevice(c.drain.Gone)
		for _, keep := range []bool{false, true} { // a removal that fails removes and counts nothing
			err := c.db.Write(c.Context(), store.Durable, func(tx store.Tx) error {
				if err := remove(tx, 1, 1); err != nil || keep {
					return err
				}
				return errTarget
			})
			if (err == nil) != keep {
				t.Fatal(err)
			}
		}
		c.ceiling.Store(1000)
		c.after(5 * time.Minute)
		const kind = string(rules.ActionSendCommand)
		if gone, performed := c.ends(kind, Gone), c.ends(kind, Performed); gone != 3 || performed != 3 || len(c.waiting()) > 0 {
			t.Errorf("%d gone, %d performed, %d wait", gone, performed, len(c.waiting()))
		}
	})
}

// A rule's action is judged as every other command is: whatever the judge says of random commands, exactly those that it takes are made.
func TestARulesActionIsJudgedAsAnyOrder(t *testing.T) {
	commandBubble(t, func(c *commanding) {
		r := rand.New(rand.NewPCG(1, 2))
		codes := []string{"", "", command.NotJSON, "COMMAND_NOT_IN_VOCABULARY", "PAYLOAD_SCHEMA_VIOLATION", command.Rejected}
		var taken, refused []string
		for i := range 200 {
			name := fmt.Sprintf("c%03d", i)
			code := codes[r.IntN(len(codes))]
			c.judged.Store(name, command.Rejection{Code: code, Reason: "r"})
			verdict := func() (rejected *command.Rejection) {
				err := c.db.Write(c.Context(), store.Results, func(tx store.Tx) (err error) {
					_, rejected, err = c.commands.Create(tx, command.Order{TenantID: 1, Token: "direct-" + name, Device: "d1", Name: name, Service: true})
					return err
				})
				c.must(err)
				return rejected
			}
			if v := verdict(); v == nil {
				taken = append(taken, name)
			} else {
				refused = append(refused, v.Code+": "+v.Reason)
			}
			c.fire(1, name, 0, true)
		}
		c.after(time.Second)
		made := fixture.Rows(c, c.db, `SELECT name FROM commands WHERE token NOT LIKE 'direct-%' ORDER BY id`)
		var letters []string
		for _, l := range c.letters("t1") {
			letters = append(letters, l.Summary)
		}
		if !slices.Equal(made, taken) || !slices.Equal(letters, refused) {
			t.Errorf("made %d of %d, refused %d of %d", len(made), len(taken), len(letters), len(refused))
		}
	})
}
