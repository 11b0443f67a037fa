// Package actions takes what rules have ordered out of the outbox and performs it: each order on its own, in the order of the log where that
// matters, and none at the cost of another target or tenant.
//
//	actions.go   what a kind of orders is, how an attempt can end, the settings
//	drain.go     the loop: what is there, whose turn it is, what came of it
//	queue.go     what waits for one target
//	perform.go   what an attempt comes to, and attempts inside Weir
//	deliver.go   attempts outside
//	letters.go   what is given up, shed or too late
//	standing.go  targets that stand still, as people see them
//	waiting.go   what waits, as people ask for it
//	metrics.go   figures
//	command.go   the kind sendCommand
//	response.go  the kind commandResponse: answers of devices that are tried again
//	outside.go   the kinds httpCall and publish
//	notice.go    the kind notification
//
// A kind whose target is inside Weir is performed in the transaction that ends its row: once. One whose target is outside is performed at
// least once, under an idempotency key that stays the same however often it is tried, and only after its row survives a power cut.
// What cannot be performed is a dead letter that keeps everything; nothing ends without one or without a count.
package actions

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/setting"
	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

// Settings are the keys of what goes out, in the section connectors.
type Settings struct {
	//limit:what orders of rules that wait, of a tenant
	//limit:chapter What is kept
	//limit:bound {}, {connectors.outbox_max_bytes}
	//limit:keys connectors.outbox_max_bytes
	//limit:level weir_actions_outbox_rows weir_actions_outbox_bytes
	//limit:met weir_actions_orders_total{end="shed",kind="sendCommand"}
	//limit:then the newest of the target with the most become dead letters `shed`
	//limit:cost disk
	OutboxRows  int64        `yaml:"outbox_max_rows" default:"100000" zero:"default" doc:"Maximum number of orders of a tenant that wait to be performed. Beyond it the newest of the target with the most become dead letters (shed)."`
	OutboxBytes setting.Size `yaml:"outbox_max_bytes" default:"256MiB" zero:"default" doc:"Maximum bytes of the orders of a tenant that wait to be performed."`

	//limit:what attempts at an order
	//limit:chapter What is kept
	//limit:bound {}, only those that its target has answered
	//limit:level weir_actions_standing_targets
	//limit:met weir_actions_failed_attempts_total weir_actions_orders_total{end="exhausted",kind="sendCommand"}
	//limit:then a dead letter `exhausted`
	Attempts int `yaml:"attempts" default:"8" zero:"default" max:"100" doc:"How often an order is tried before it becomes a dead letter (exhausted). Only attempts that its target has answered count."`

	//limit:what waiting for a target that fails
	//limit:chapter What is kept
	//limit:bound {}
	//limit:level weir_actions_standing_targets
	//limit:met weir_actions_orders_total{end="exhausted",kind="httpCall"}
	//limit:then a dead letter `exhausted`
	MaxAge  time.Duration `yaml:"max_age" default:"24h" zero:"default" doc:"How long an order waits for a target that fails before it becomes a dead letter (exhausted)."`
	Timeout time.Duration `yaml:"send_timeout" default:"10s" min:"1s" max:"20s" zero:"default" doc:"How long an attempt at another system may take where the rule does not say it (timeoutMs)."`

	//limit:what attempts at other systems at a time
	//limit:chapter What is kept
	//limit:bound {}, {connectors.per_destination} of one target, {connectors.send_timeout} each, at most 20 s; a tenant has at most half
	//limit:bound of the places that the others leave
	//limit:keys connectors.per_destination connectors.send_timeout
	//limit:level weir_actions_standing_targets
	//limit:met weir_connectors_dispatch_total{action="httpCall",outcome="unreachable"}
	//limit:then orders wait for their turn
	//limit:cost a goroutine each; of a reply 8 KiB are read, of its headers 64 KiB
	Workers        int `yaml:"max_concurrent_sends" default:"32" max:"128" zero:"default" doc:"Maximum number of attempts at other systems at a time. A tenant takes at most half of the places that the others leave."`
	PerDestination int `yaml:"per_destination" default:"4" max:"128" zero:"default" doc:"Maximum number of attempts at one target of a tenant at a time: one that hangs takes no more places."`
}

// LetterSettings are the keys of dead letters of what goes out, in the section limits.
type LetterSettings struct {
	//limit:what dead letters of orders, of a tenant
	//limit:chapter What is kept
	//limit:bound {}, {limits.outgoing_dead_letter_bytes_per_tenant}, {history.dead_letter_retention}
	//limit:keys limits.outgoing_dead_letter_bytes_per_tenant history.dead_letter_retention
	//limit:level weir_dead_letters
	//limit:met weir_actions_dead_letters_trimmed_total
	//limit:then the oldest are removed; those of what devices sent stay
	//limit:cost disk
	Letters     int64        `yaml:"outgoing_dead_letters_per_tenant" default:"100000" zero:"default" doc:"Maximum number of stored dead letters of a tenant of what was to go out, such as commands of rules; the oldest are removed first. What devices sent has a bound of its own."`
	LetterBytes setting.Size `yaml:"outgoing_dead_letter_bytes_per_tenant" default:"64MiB" zero:"default" doc:"Maximum bytes of the stored dead letters of a tenant of what was to go out."`
}

// Config is how orders are performed. Zero values stand for the defaults.
type Config struct {
	Settings
	LetterSettings
}

func (c Config) withDefaults() Config {
	setting.FillDefaults(&c.Settings)
	setting.FillDefaults(&c.LetterSettings)
	return c
}

// Tenants are what the drain must know of tenants.
type Tenants interface {
	// TokenOf is the token of a tenant, "" for one that is deleted.
	TokenOf(id int64) string
	// TakeOutbound admits one message out of Weir for a tenant, 0, or says how long it has to wait for its turn.
	TakeOutbound(tenant string) time.Duration
}

// Deps are the collaborators. Now, Rand, Logger and Registerer may be left out.
type Deps struct {
	Store      store.Store
	Tenants    Tenants
	Kinds      []Kind
	Now        func() time.Time // nil: time.Now
	Rand       func() float64   // in [0, 1), for jitter; nil: math/rand
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (d Deps) withDefaults() Deps {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Rand == nil {
		d.Rand = rand.Float64
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

// Kind is how the orders of one kind are performed. Exactly one of Inside and Outside is set. A new kind is a function that returns one,
// in a file of its own, and its place in Deps.Kinds.
type Kind struct {
	Name    string // model.Order.Kind of its orders
	Letters string // the kind of its dead letters
	// Inside performs an order in the transaction that ends its row: both are committed, or neither. What it writes before it
	// returns an error is undone. It may take about a tenth of a millisecond and must not wait. Orders of one device are performed in the order
	// in which they were written, and none overtakes one that is tried again.
	Inside func(tx store.Tx, o *Order) error
	// Outside performs an order at least once, until ctx ends; Order.Key must travel with it. Orders of one target (model.Order.Target) begin in the order in
	// which they were written, several at a time; one that is tried again is overtaken. It takes from the ceiling of
	// its tenant.
	Outside func(ctx context.Context, o *Order) error
	// Alone says that one attempt of Outside at a target is made at a time. It may perform others of the target together with its order, see Order.With.
	Alone bool
	// Timeout is how long an attempt of Outside may take; 0: connectors.send_timeout.
	Timeout time.Duration
	// Unordered says that orders of one device may overtake each other.
	Unordered bool
	// Letter adds the dead letter of an order that ends without being performed; nil: one that holds the whole order is added. It is not asked
	// for an order that is damaged.
	Letter func(tx store.Tx, o *Order, reason Reason, why string) error
	// Late says whether an order must not be performed any more; nil: when it has expired.
	Late func(o *Order, now time.Time) bool
}

// Order is what is to be performed.
type Order struct {
	*outbox.Row
	Tenant string // token
	// With is what Outside performed together with the order, by row ids up to Synced: what comes of the order comes of them.
	With []int64
	// Rewrite changes what further attempts perform, of the order and of those With it, when this one failed; nil: nothing changes.
	Rewrite func(*model.Dispatch)
	Synced  int64 // up to this row id orders survive a power cut
}

// ordered reports whether orders of one device are performed in their order.
func (k *Kind) ordered() bool { return k.Inside != nil && !k.Unordered }

func (k *Kind) late(o *Order, now time.Time) bool {
	if k.Late != nil {
		return k.Late(o, now)
	}
	return o.Expires != 0 && o.Expires.Time().Before(now)
}

// Reason is how an attempt ended that did not perform its order.
type Reason string

// Reasons that end an order. All but Gone leave a dead letter, with this reason.
const (
	Unprocessable Reason = "unprocessable" // the target will never take it, or it is malformed
	Unsupported   Reason = "unsupported"   // nothing performs orders of this kind
	Blocked       Reason = "blocked"       // the destination is not allowed
	Expired       Reason = "expired"       // too late to be performed
	Exhausted     Reason = "exhausted"     // tried as often, or as long, as it may be
	Shed          Reason = "shed"          // more waits than may
	Gone          Reason = "gone"          // what it was for does not exist any more
)

// Reasons for which an order is tried again.
const (
	Again       Reason = "again"       // the target has refused it: the attempt counts
	Unreachable Reason = "unreachable" // the target did not answer: the attempt does not count, and others wait with it
	Full        Reason = "full"        // the target has no room for any order of the tenant: the attempt does not count, and all of them wait
)

// Ends are the reasons that end an order, and Performed.
func Ends() []Reason {
	return []Reason{Performed, Unprocessable, Unsupported, Blocked, Expired, Exhausted, Shed, Gone}
}

// LetterReasons are the reasons of dead letters.
func LetterReasons() []string {
	return []string{string(Blocked), string(Exhausted), string(Expired), string(Shed), string(Unprocessable), string(Unsupported)}
}

// Later is the reason of an attempt that was none: the target's turn comes after Failure.After. Nothing has failed.
const Later Reason = "later"

// Performed is the end of an order that was performed.
const Performed Reason = "performed"

// Failure is why an attempt did not perform its order. Any other error stands for Again.
type Failure struct {
	Reason Reason
	Err    error         // for the operator, never with a secret
	After  time.Duration // of Again: as the target wishes, at most an hour; 0: the back-off of the attempt. Of Later: how long nothing begins
	Tries  int           // of Again: how often this failure is tried at most; 0: as often as any
}

func (f *Failure) Error() string { return string(f.Reason) + ": " + f.Err.Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Fail returns a failure.
func Fail(r Reason, err error) *Failure { return &Failure{Reason: r, Err: err} }

// failureOf makes a failure of any error, nil of nil.
func failureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return &Failure{Reason: Again, Err: err}
}

// ends reports whether the order is not tried again.
func (r Reason) ends() bool { return r != Again && r != Unreachable && r != Full && r != Later }
