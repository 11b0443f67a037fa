package crash_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

// order is what a rule has ordered, by its idempotency key.
type order struct {
	kind                                  string
	device                                int64
	offset, occurred, received, expiresAt int64
	body                                  string
}

// places is where the orders of a tenant are: each in one of them, for as long as its end is kept.
type places struct {
	waiting   map[string]order         // in the outbox
	performed map[string]model.Command // by token, which is the key of the order; those of operators, too
	givenUp   map[string]order         // dead letters
}

// places finds the orders of a tenant, and complains about one that has ended twice, or has ended and waits.
func (r *rest) places(name string, id int64) places {
	r.t.Helper()
	p := places{map[string]order{}, map[string]model.Command{}, map[string]order{}}
	if err := r.db.Read(r.t.Context(), func(tx store.Tx) error {
		if err := each(tx, `SELECT idem_key, kind, device_id, log_offset, occurred, received, coalesce(expires_at, 0), body FROM outbox WHERE tenant_id = ?`, id, func(scan func(...any) error) error {
			var key string
			var o order
			err := scan(&key, &o.kind, &o.device, &o.offset, &o.occurred, &o.received, &o.expiresAt, &o.body)
			p.waiting[key] = o
			return err
		}); err != nil {
			return err
		}
		if err := each(tx, `SELECT id, token, device_id, name, payload, state, expires_at, sent_at, delivered_at, responded_at, nonce, earlier, error FROM commands WHERE tenant_id = ?`, id,
			func(scan func(...any) error) error {
				var c model.Command
				var earlier string
				err := scan(&c.ID, &c.Token, &c.DeviceID, &c.Name, &c.Payload, (*string)(&c.State), (*int64)(&c.Expires), &c.Sent, &c.Delivered, &c.Responded, &c.Nonce, &earlier, &c.Error)
				c.Earlier = strings.Fields(earlier)
				p.performed[c.Token] = c
				return err
			}); err != nil {
			return err
		}
		return each(tx, `SELECT correlation, record FROM dead_letters WHERE tenant = ? AND kind IN ('`+store.DeadLetterAction+`', '`+store.DeadLetterConnector+`')`, name, func(scan func(...any) error) error {
			var key string
			var record []byte
			var l outbox.Letter
			if err := scan(&key, &record); err != nil {
				return err
			}
			if err := json.Unmarshal(record, &l); err != nil || l.Key != key {
				r.t.Errorf("%s: the dead letter of %s holds %s: %v", name, key, record, err)
			}
			if _, twice := p.givenUp[key]; twice {
				r.t.Errorf("%s: two dead letters of %s", name, key)
			}
			p.givenUp[key] = order{l.Kind, l.DeviceID, int64(l.Offset), int64(l.Occurred), int64(l.Received), int64(l.Expires), string(l.Dispatch)}
			return nil
		})
	}); err != nil {
		r.t.Fatal(err)
	}
	for key := range p.givenUp {
		_, waits := p.waiting[key]
		_, done := p.performed[key]
		if waits || done {
			r.t.Errorf("%s: the order %s was given up; it waits: %v, it was performed: %v", name, key, waits, done)
		}
	}
	for key := range p.waiting {
		if c, done := p.performed[key]; done {
			r.t.Errorf("%s: the order %s waits and is the command %+v", name, key, c)
		}
	}
	return p
}

func each(tx store.Tx, query string, arg any, row func(scan func(...any) error) error) error {
	rows, err := tx.Query(query, arg)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// compareOrders holds what an instance did with its orders against the outbox of the twin, which performs nothing and so has every order
// that there ever was. The drain of the instance takes rows out at moments of its own, so its outbox alone would show little: of the
// instance the orders are compared that wait, that became commands, and that were given up, together. An order that waits or was given up
// is compared whole, one that became a command by what the command has of it; of one that went to another system its target says that it came. It
// returns how many there are.
func (tw *twin) compareOrders(name string, at model.Offset, got, want places) int {
	tw.t.Helper()
	bad := 0
	wrong := func(format string, args ...any) {
		if bad++; bad <= 3 {
			tw.t.Errorf("%s, at record %d: %s", name, at, fmt.Sprintf(format, args...))
		}
	}
	for key, w := range want.waiting {
		c, performed := got.performed[key]
		o, kept := got.waiting[key]
		if !kept {
			o, kept = got.givenUp[key]
		}
		switch {
		case kept && o != w:
			wrong("the order %s is\n     %+v, want\n     %+v", key, o, w)
		case w.kind == "httpCall" || w.kind == "publish":
			if !kept && (tw.targets == nil || !tw.targets.has(key)) {
				wrong("the order %s has neither arrived nor was it given up: %+v", key, w)
			}
		case performed:
			var d model.Dispatch
			if err := json.Unmarshal([]byte(w.body), &d); err != nil || d.Command == nil || w.kind != "sendCommand" {
				wrong("the order %s became a command: %+v, %v", key, w, err)
			} else if c.DeviceID != w.device || c.Name != d.Command.Command || deref(c.Payload) != d.Payload || w.expiresAt != 0 && int64(c.Expires) != w.expiresAt {
				wrong("the order %+v became the command %+v", w, c)
			}
		case !kept:
			wrong("the order %s is lost: %+v", key, w)
		}
	}
	for what, keys := range map[string]map[string]order{"waits": got.waiting, "was given up": got.givenUp} {
		for key, o := range keys {
			if _, ok := want.waiting[key]; !ok {
				wrong("nothing ordered what %s: %+v", what, o)
			}
		}
	}
	if tw.targets != nil && len(want.waiting) > 0 {
		keys, _ := tw.targets.keys()
		for _, key := range keys {
			if _, ok := want.waiting[key]; !ok {
				wrong("nothing ordered the delivery %s", key)
			}
		}
	}
	for token, c := range got.performed {
		if _, ok := want.waiting[token]; !ok && !strings.HasPrefix(token, operatorPrefix) {
			wrong("nothing ordered the command %+v", c)
		}
	}
	if bad > 3 {
		tw.t.Errorf("%s: and %d more", name, bad-3)
	}
	return len(want.waiting)
}

// operatorPrefix begins the tokens of commands that no rule ordered.
const operatorPrefix = "op-"

func deref(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
