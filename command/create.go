package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/faults"
	"weir/model"
	"weir/store"
	"weir/store/commands"
)

// Bounds of an order.
const (
	MinLife     = time.Minute
	maxSleepers = 24 * time.Hour // how long the default life of a sleeping device's command is at most
)

func reject(code, format string, args ...any) *Rejection {
	return &Rejection{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// Create makes a command in a transaction of the caller, who may do more in it: the end of the outbox row that ordered it. Exactly
// one of the command and the rejection is not nil when err is nil. A repeat of the order (see Order.Token) returns the first
// command. The command is dispatched once the transaction is committed.
func (s *Service) Create(tx store.Tx, o Order) (c *Command, refused *Rejection, err error) {
	c, refused, _, err = s.create(tx, o, nil)
	return c, refused, err
}

// create makes a command. With straight it may leave with the transaction, which must be a durable one; the command that is returned is as it
// was made, in either case.
func (s *Service) create(tx store.Tx, o Order, straight *straight) (c *Command, refused *Rejection, made bool, err error) {
	if err := model.CheckToken("token", o.Token); err != nil {
		return nil, nil, false, err
	}
	c, refused, made, err = s.judged(tx, &o)
	if err != nil || refused != nil {
		if refused != nil {
			code := refused.Code
			tx.OnCommit(func() { s.m.rejected.WithLabelValues(code).Inc() })
		}
		return nil, refused, false, err
	}
	if !made {
		return c, nil, false, nil
	}
	x, stored := s.changes(tx), *c
	if straight != nil {
		if err := straight.reserve(x, &stored); err != nil {
			return nil, nil, false, err
		}
	}
	if err := commands.Insert(tx, &stored, false); err != nil {
		return nil, nil, false, err
	}
	c.ID = stored.ID
	x.note(c)
	if stored.State != c.State {
		x.note(&stored)
	}
	tx.OnCommit(func() {
		faults.Point("command.created")
		x.publish()
		s.lives(c.Expires)
		if stored.State == c.State || !straight.hand(&stored) {
			s.touch(c.DeviceID)
		}
	})
	return c, nil, true, nil
}

// judged checks an order, in the order of the reference: the repeat, JSON, the expiry, the device with its vocabulary, the ceiling.
func (s *Service) judged(tx store.Tx, o *Order) (c *Command, refused *Rejection, fresh bool, err error) {
	old, err := commands.Get(tx, o.TenantID, o.Token)
	switch {
	case err != nil:
		return nil, nil, false, err
	case old != nil && old.Device == o.Device && old.Name == o.Name && same(old.Payload, o.Payload):
		return old, nil, false, nil
	case old != nil:
		return nil, reject(TokenInUse, "the token %q is that of a command for another device, of another name or with another payload", o.Token), false, nil
	}
	now := model.MicrosOf(s.deps.Now())
	if refused := texts(o.Payload, o.Metadata); refused != nil {
		return nil, refused, false, nil
	}
	expires, refused := s.life(now, o)
	if refused != nil {
		return nil, refused, false, nil
	}
	verdicts, err := s.deps.Judge(tx, o.TenantID, []string{o.Device}, o.Name, o.Payload)
	if err != nil {
		return nil, nil, false, err
	}
	v := &verdicts[0]
	if v.Code != "" {
		return nil, &v.Rejection, false, nil
	}
	if refused, err := s.room(tx, o.TenantID, 1, o.Service); err != nil || refused != nil {
		return nil, refused, false, err
	}
	if o.Sleeper {
		expires = s.awaken(now, v.DeviceID, expires)
	}
	return &Command{TenantID: o.TenantID, CreatedAt: now, UpdatedAt: now, Token: o.Token, DeviceID: v.DeviceID, Device: o.Device, Name: o.Name, Payload: o.Payload,
		Metadata: o.Metadata, State: queued, Queued: now, Expires: expires}, nil, true, nil
}

func same(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// texts checks what is JSON as text.
func texts(payload, metadata *string) *Rejection {
	switch {
	case payload != nil && !json.Valid([]byte(*payload)):
		return reject(NotJSON, "the payload is no JSON document")
	case payload != nil && len(*payload) > model.MaxCommandPayload:
		return reject(Rejected, "the payload has %d bytes, at most %d are allowed", len(*payload), model.MaxCommandPayload)
	case metadata != nil && !json.Valid([]byte(*metadata)):
		return reject(MetadataNotJSON, "the metadata is no JSON document")
	case metadata != nil && len(*metadata) > model.MaxCommandPayload:
		return reject(Rejected, "the metadata has %d bytes, at most %d are allowed", len(*metadata), model.MaxCommandPayload)
	}
	return nil
}

// life returns when a command ends by itself.
func (s *Service) life(now model.Micros, o *Order) (model.Micros, *Rejection) {
	at := o.Expires
	if at == 0 && o.ExpiresAt != nil {
		t, err := model.ParseTime(strings.TrimSpace(*o.ExpiresAt))
		if err != nil {
			return 0, reject(BadExpiry, "expiresAt %.40q is no time of RFC 3339", *o.ExpiresAt)
		}
		at = model.MicrosOf(t)
	} else if at == 0 {
		return now + micros(s.settings().DefaultTTL), nil
	}
	switch {
	case at <= now:
		return 0, reject(BadExpiry, "expiresAt %s is not in the future", at)
	case !o.Exact && at < now+micros(MinLife):
		return 0, reject(BadExpiry, "expiresAt %s is less than %s from now", at, MinLife)
	}
	return at, nil
}

// awaken puts the end of a command off until a device that sleeps is expected back.
func (s *Service) awaken(now model.Micros, device int64, expires model.Micros) model.Micros {
	for _, c := range s.all() {
		if back, asleep := c.Rhythm(device); asleep {
			return max(expires, now+micros(min(back, maxSleepers)))
		}
	}
	return expires
}

func micros(d time.Duration) model.Micros { return model.Micros(d.Microseconds()) }

// room refuses n more commands above the ceiling of a tenant, of which a part is reserved for services.
func (s *Service) room(tx store.Tx, tenant, n int64, service bool) (*Rejection, error) {
	have, err := commands.Undelivered(tx, tenant)
	if err != nil {
		return nil, err
	}
	ceiling := s.deps.Ceiling(tenant)
	limit := ceiling
	if !service {
		limit -= int64(float64(ceiling) * s.settings().Reserve)
	}
	if have+n <= limit {
		return nil, nil
	}
	reserve := ""
	if limit < ceiling {
		reserve = fmt.Sprintf(" (the rest up to %d is for services and rules)", ceiling)
	}
	return reject(HeldCeiling, "%d commands wait for their devices and %s more may not: the tenant has at most %d%s", have, strconv.FormatInt(n, 10), limit, reserve), nil
}

// Order makes a command on behalf of a caller of the API.
func (s *Service) Order(ctx context.Context, by *model.Principal, o Order) (c *Command, refused *Rejection, err error) {
	o.TenantID, o.Service = by.TenantID, by.Kind == model.ServiceCaller
	way := &straight{s: s}
	defer way.release()
	if store.InChange(ctx) { // what becomes of that is not known here
		way = nil
	}
	err = s.deps.Writer.Mutate(ctx, by, func(change *store.Change) error {
		way.release() // what an attempt before this one has reserved
		var made bool
		c, refused, made, err = s.create(change, o, way)
		if err != nil || !made {
			return err
		}
		return audit(change, store.AuditCreate, "commands", c.ID, c.Token, 1)
	})
	if err != nil {
		return nil, nil, err
	}
	return c, refused, nil
}

func audit(c *store.Change, operation, table string, id int64, token string, rows int64) error {
	return c.Audit(store.AuditEvent{TenantID: c.By.TenantID, Category: store.AuditMutation, Operation: operation, Table: table,
		Key: strconv.FormatInt(id, 10), Label: token, Rows: rows})
}

// Cancel cancels a command that is not sent, or whose device is still being given what it needs. Any other is returned as it is.
func (s *Service) Cancel(ctx context.Context, by *model.Principal, token string) (c *Command, err error) {
	var x *changes
	err = s.deps.Writer.Mutate(ctx, by, func(change *store.Change) error {
		x = s.changes(change)
		if c, err = commands.Get(change, by.TenantID, token); err != nil {
			return err
		}
		if c == nil {
			return model.NotFound("command", token)
		}
		moved, err := x.cancel(c)
		if err != nil || !moved {
			return err
		}
		return audit(change, store.AuditUpdate, "commands", c.ID, c.Token, 1)
	})
	if err != nil {
		return nil, err
	}
	faults.Point("command.cancelled")
	x.publish()
	return c, nil
}

// List returns a page of the caller's commands, newest first, and the number of all that the filter selects.
func (s *Service) List(ctx context.Context, by *model.Principal, f *commands.Filter, page store.Page) (found []*Command, total int64, err error) {
	err = store.Read(ctx, s.deps.Store, func(tx store.Tx) (err error) {
		found, total, err = commands.List(tx, by.TenantID, f, page)
		return err
	})
	return found, total, err
}

// Find returns the caller's commands that the filter selects.
func (s *Service) Find(ctx context.Context, by *model.Principal, f *commands.Filter) (found []*Command, err error) {
	err = store.Read(ctx, s.deps.Store, func(tx store.Tx) (err error) {
		found, err = commands.Find(tx, by.TenantID, f)
		return err
	})
	return found, err
}

// Bounds of Drainable.
const (
	DefaultDrain = 32
	MaxDrain     = 1000
)

// Drainable returns the HELD and PARKED commands of a device that have not expired, oldest first; limit 0 or less means 32.
func (s *Service) Drainable(ctx context.Context, by *model.Principal, device string, limit int) (found []*Command, err error) {
	if limit <= 0 {
		limit = DefaultDrain
	}
	err = store.Read(ctx, s.deps.Store, func(tx store.Tx) (err error) {
		found, err = commands.Drainable(tx, by.TenantID, device, model.MicrosOf(s.deps.Now()), min(limit, MaxDrain))
		return err
	})
	return found, err
}

// MarkSent claims a command for a caller that brings it to the device itself. It returns false when another claim won.
func (s *Service) MarkSent(ctx context.Context, by *model.Principal, token string) (bool, error) {
	return s.operate(ctx, by, token, func(x *changes, c *Command) (bool, error) {
		if c.Expires <= x.now+margin {
			return false, nil
		}
		return x.dispatch(c, "")
	})
}

// Park parks a command that is SENT, with the nonce of its present dispatch.
func (s *Service) Park(ctx context.Context, by *model.Principal, token, nonce string) (bool, error) {
	return s.operate(ctx, by, token, func(x *changes, c *Command) (bool, error) {
		if nonce == "" || c.Nonce != nonce {
			return false, nil
		}
		return x.move(c, park, nil)
	})
}

func (s *Service) operate(ctx context.Context, by *model.Principal, token string, do func(x *changes, c *Command) (bool, error)) (done bool, err error) {
	err = s.write(ctx, func(x *changes) error {
		done = false
		c, err := commands.Get(x.tx, by.TenantID, token)
		if err != nil || c == nil {
			return err
		}
		done, err = do(x, c)
		return err
	})
	return done, err
}

// ReleaseHeld queues the HELD commands of a device again and returns how many these are.
func (s *Service) ReleaseHeld(ctx context.Context, by *model.Principal, device string) (n int, err error) {
	var id int64
	for {
		part := 0
		err = s.write(ctx, func(x *changes) (err error) {
			part = 0
			found, err := commands.Drainable(x.tx, by.TenantID, device, 0, maxRemoved)
			if err != nil {
				return err
			}
			for _, c := range found {
				moved, err := x.move(c, release, nil)
				if err != nil {
					return err
				}
				if moved {
					id = c.DeviceID
					part++
				}
			}
			return nil
		})
		if n += part; err != nil || part < maxRemoved {
			break
		}
	}
	s.m.released.Add(float64(n))
	if id != 0 {
		s.touch(id)
	}
	return n, err
}
