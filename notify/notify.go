// Package notify tells people of alarms: over channels that a tenant describes, by its policies.
//
//	notify.go    the parts, their settings
//	channels.go  channels: what they are and their secrets
//	policies.go  policies and their rules
//	mutes.go     mutes: what is not notified for a while
//	held.go      the policies, channels and mutes of tenants in memory
//	moves.go     what a move of an alarm makes of its state, and who is to be notified
//	deliver.go   a message to a channel; rate.go its rate, and what is gathered into a digest
//	escalate.go  what is notified again; the end of mutes; states that end
//	clock.go     the time that no step of the clock changes
//	ondemand.go  a message on demand
//	metrics.go   figures
//
// What is to be notified is an order in the outbox, written in the transaction of the move. Package actions performs it, and tries it again. Nothing here
// changes an alarm.
package notify

import (
	"context"
	"log/slog"
	"sync"
	"time"
	"weir/internal/delivery"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/guard"
	"weir/internal/lograte"
	"weir/internal/ondemand"
	"weir/internal/setting"
	"weir/notify/channel"
	"weir/store"
	"weir/store/entity"
)

// Settings are the keys of notifications, in the section of that name.
type Settings struct {
	Timeout time.Duration `yaml:"attempt_timeout" default:"10s" min:"1s" max:"20s" zero:"default" doc:"How long an attempt to deliver a notification may take."`

	//limit:what notifications to a channel
	//limit:chapter What is kept
	//limit:bound {} a minute, {notifications.attempt_timeout} each, one at a time
	//limit:keys notifications.attempt_timeout
	//limit:level weir_actions_outbox_rows
	//limit:met weir_notifications_digested_total
	//limit:then they are gathered: one digest a minute with counts, and the first 50 alarms of at most 10,000
	//limit:cost disk
	PerMinute int `yaml:"per_channel_per_minute" default:"30" max:"10000" zero:"default" doc:"Maximum number of messages to a notification channel within a minute. What exceeds it is gathered into a digest, one a minute; nothing is dropped."`

	//limit:what notifications of alarms that were cleared while they waited
	//limit:chapter What is kept
	//limit:bound {}
	//limit:met weir_notifications_deliveries_total{channel_type="smtp",outcome="late"}
	//limit:then not sent
	MaxAge time.Duration `yaml:"max_age" default:"1h" zero:"default" doc:"The notification of a raised alarm that waited longer is not sent when the alarm has been cleared meanwhile."`
	Sweep  time.Duration `yaml:"escalation_sweep" default:"60s" min:"1s" zero:"default" doc:"How often is looked for alarms that are to be notified again."`

	//limit:what notifications of an alarm that no user acknowledges
	//limit:chapter What is kept
	//limit:bound {} more
	//limit:keys notifications.escalation_sweep
	//limit:met weir_notifications_deliveries_total{channel_type="smtp",outcome="sent"}
	//limit:then nothing more is notified until it is raised again
	MaxEscalations int `yaml:"default_max_escalations" default:"5" max:"1000" zero:"default" doc:"How often an alarm that no user acknowledges is notified again where the policy does not say it."`

	//limit:what what was notified of an alarm
	//limit:chapter What is kept
	//limit:bound {} after it was cleared
	//limit:keys notifications.retention_sweep
	//limit:then removed
	//limit:cost about 1 KiB on disk for each alarm
	Retention      time.Duration `yaml:"state_retention" default:"168h" zero:"default" doc:"How long what was notified of an alarm is kept after the alarm was cleared."`
	RetentionSweep time.Duration `yaml:"retention_sweep" default:"1h" min:"1s" zero:"default" doc:"How often states that are no longer kept are removed."`
}

// LimitSettings are the keys of notifications in the section limits.
type LimitSettings struct {
	//limit:what notification channels, policies and mutes of a tenant
	//limit:chapter What is kept
	//limit:bound {} of each; a config 64 KiB, a secret 4 KiB; 100 rules of a policy, 50 recipients of a rule
	//limit:keys limits.notification_policies_per_tenant limits.notification_mutes_per_tenant
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key
	//limit:cost of the bytes of the tenant's rows
	ChannelsPerTenant int64 `yaml:"notification_channels_per_tenant" default:"1000" zero:"default" doc:"Maximum number of notification channels of a tenant."`
	PoliciesPerTenant int64 `yaml:"notification_policies_per_tenant" default:"1000" zero:"default" doc:"Maximum number of notification policies of a tenant."`
	MutesPerTenant    int64 `yaml:"notification_mutes_per_tenant" default:"1000" zero:"default" doc:"Maximum number of notification mutes of a tenant, those included that have ended and were not deleted."`
}

// Area is the name of the area of the API.
const Area = "notification-management"

// Tenants are what must be known of tenants.
type Tenants interface {
	// TokenOf is the token of a tenant, "" for one that is deleted.
	TokenOf(id int64) string
	// TakeOutbound admits one message out of Weir for a tenant, 0, or says how long it has to wait for its turn.
	TakeOutbound(tenant string) time.Duration
}

// Deps are the collaborators. All but Store, Writer, Vault and Tenants may be left out.
type Deps struct {
	Store   store.Store
	Writer  store.Writer
	Vault   *store.Vault
	Tenants Tenants
	Guard   *guard.Guard // makes every connection; nil where nothing runs: nothing is delivered
	// Now is what the wall clock says, and the time since the start that no step of it changes; nil: the system's.
	Now func() (wall time.Time, mono time.Duration)
	// Plausible says whether the wall clock can be believed; nil: it can.
	Plausible func() bool
	// Wake is called when orders were written; nil: nobody waits for them.
	Wake              func()
	Instance, BaseURL string
	Logger            *slog.Logger
	Registerer        prometheus.Registerer
}

// Notify tells people of the alarms of an instance. It is safe for concurrent use.
type Notify struct {
	Kinds    *entity.Catalog // these
	Channels *entity.Kind[Channel]
	Policies *entity.Kind[Policy]
	Mutes    *entity.Kind[Mute]

	deps   Deps
	cfg    Settings
	limits LimitSettings
	held   held
	clock  clock
	rates  rates
	tests  ondemand.Tests
	m      *metrics
	send   func(context.Context, channel.Env, channel.Channel, channel.Message) error // channel.Send

	mu     sync.Mutex
	logged map[delivery.Outcome]*lograte.Every
}

// New returns the notifications of an instance. Run must run for alarms to be notified again.
func New(s Settings, l LimitSettings, d Deps) *Notify {
	setting.FillDefaults(&s)
	setting.FillDefaults(&l)
	if d.Now == nil {
		began := time.Now()
		d.Now = func() (time.Time, time.Duration) {
			now := time.Now()
			return now, now.Sub(began)
		}
	}
	if d.Plausible == nil {
		d.Plausible = func() bool { return true }
	}
	if d.Wake == nil {
		d.Wake = func() {}
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Notify{deps: d, cfg: s, limits: l, m: newMetrics(d.Registerer), send: channel.Send, logged: map[delivery.Outcome]*lograte.Every{}}
	n.clock.look, n.clock.plausible = d.Now, d.Plausible
	n.describe(entity.Base{Store: d.Store, Writer: d.Writer, Vault: d.Vault})
	return n
}

// Describe returns the kinds without an instance, for those that ask for their descriptions only.
func Describe() *entity.Catalog {
	n := &Notify{}
	n.describe(entity.Base{})
	return n.Kinds
}

func (n *Notify) describe(b entity.Base) {
	n.Channels, n.Policies, n.Mutes = n.channels(b), n.policies(b), n.mutes(b)
	n.Kinds = entity.NewCatalog(n.Channels, n.Policies, n.Mutes)
}

// wall is the wall clock's time.
func (n *Notify) wall() time.Time {
	wall, _ := n.deps.Now()
	return wall
}
