// Package connectors takes what rules order out of Weir, to systems that tenants name: calls of URLs (httpCall), and messages to connectors
// (publish), which a tenant describes, publishes and rolls back as any draft.
//
//	connectors.go  the parts, their settings
//	types.go       what a type of connectors is; mqtt.go, kafka.go, sns.go, sqs.go and later.go are the types
//	aws.go         what SNS and SQS have in common
//	kafka_client.go  a client of Kafka, which a program for gateways does not have
//	connector.go   connectors: drafts, versions, secrets
//	httpsecret.go  secrets of calls, each for its hosts
//	publish.go     a message to a connector
//	shared.go      deliveries to one connector share reads of it
//	call.go        a call of a URL
//	pool.go        the connections that are kept
//	failure.go     what a delivery that failed came to, as tenants may read it
//	ondemand.go    a message to a connector on demand
//	metrics.go     figures
//
// Whatever connects does so through the destination guard, as the tenant that it is for. Nothing here retries: package actions does, and a
// failure says whether that is worth it. A delivery happens at least once, with a key that stays the same however often it is tried.
package connectors

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/delivery"
	"weir/internal/guard"
	"weir/internal/lograte"
	"weir/internal/ondemand"
	"weir/internal/setting"
	"weir/store"
	"weir/store/entity"
)

// ConnectorSettings are the keys of connectors, in the section limits.
type ConnectorSettings struct {
	//limit:what connectors of a tenant
	//limit:chapter What is kept
	//limit:bound {}, a config 64 KiB, 100 versions, a secret 4 KiB
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key; a longer config or secret INVALID_INPUT
	//limit:cost of the bytes of the tenant's rows
	ConnectorsPerTenant int64 `yaml:"connectors_per_tenant" default:"1000" zero:"default" doc:"Maximum number of connectors of a tenant."`

	//limit:what HTTP secrets of a tenant
	//limit:chapter What is kept
	//limit:bound {}, 32 hosts, 4 KiB
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key; longer ones INVALID_INPUT
	//limit:cost of the bytes of the tenant's rows
	HTTPSecretsPerTenant int64 `yaml:"http_secrets_per_tenant" default:"1000" zero:"default" doc:"Maximum number of HTTP secrets of a tenant."`
}

// Area is the name of the area of the API.
const Area = "outbound-connectors"

// Tenants are what must be known of tenants.
type Tenants interface {
	// TokenOf is the token of a tenant, "" for one that is deleted.
	TokenOf(id int64) string
	// TakeOutbound admits one message out of Weir for a tenant, 0, or says how long it has to wait for its turn.
	TakeOutbound(tenant string) time.Duration
}

// Deps are the collaborators. MQTTRoots, Now, Logger and Registerer may be left out.
type Deps struct {
	Store   store.Store
	Writer  store.Writer
	Vault   *store.Vault
	Tenants Tenants
	Guard   *guard.Guard // makes every connection; nil where nothing runs: nothing is delivered
	// MQTTRoots are the certificate authorities that MQTT trusts; nil: those of the system. Those of egress.ca_file are none of them.
	MQTTRoots *x509.CertPool
	// AtOnce is how many deliveries are made to a destination at a time: as many idle connections to it are kept; 0: 4.
	AtOnce     int
	Now        func() time.Time // nil: time.Now
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Connectors keep the connectors of an instance and deliver to them. It is safe for concurrent use.
type Connectors struct {
	Kinds      *entity.Catalog // these
	Connectors *entity.Kind[Connector]
	Secrets    *entity.Kind[HTTPSecret]

	deps     Deps
	limits   ConnectorSettings
	versions *entity.Versions[Connector, version]
	pool     *pool
	targets  targets
	tests    ondemand.Tests
	m        *metrics
	logged   map[Outcome]*lograte.Every
	began    time.Time
}

// New returns the connectors of an instance. Run must run for connections to be closed that are not used.
func New(s ConnectorSettings, d Deps) *Connectors {
	setting.FillDefaults(&s)
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	d.AtOnce = cmp.Or(d.AtOnce, 4)
	c := &Connectors{deps: d, limits: s, m: newMetrics(d.Registerer), logged: map[Outcome]*lograte.Every{}, began: d.Now(), targets: targets{reading: map[targetKey]*sharedRead{}}}
	for _, o := range delivery.Outcomes() {
		c.logged[o] = new(lograte.Every)
	}
	c.pool = newPool(d.Now, c.m)
	c.describe(entity.Base{Store: d.Store, Writer: d.Writer, Vault: d.Vault})
	return c
}

// Describe returns the kinds without an instance, for those that ask for their descriptions only.
func Describe() *entity.Catalog {
	c := &Connectors{}
	c.describe(entity.Base{})
	return c.Kinds
}

func (c *Connectors) describe(b entity.Base) {
	c.Connectors, c.Secrets = c.connectors(b), c.httpSecrets(b)
	c.Kinds = entity.NewCatalog(c.Connectors, c.Secrets)
}

// Run closes connections that are not used, and those of tenants that are deleted, until ctx ends; then all of them.
func (c *Connectors) Run(ctx context.Context) error {
	t := time.NewTicker(sweepInterval)
	defer t.Stop()
	defer c.pool.closeAll()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			c.pool.sweep(func(tenant int64) bool { return c.deps.Tenants.TokenOf(tenant) == "" })
		}
	}
}

// Forget closes the connections that are not in use, and the others as soon as they are not: the next deliveries make new ones, which are
// judged by the destinations that are allowed then.
func (c *Connectors) Forget() { c.pool.retireAll() }

// errResting is the error of deliveries where nothing runs.
var errResting = &Failure{Outcome: Unreachable, Text: "nothing is delivered where no instance runs"}

// note counts what a delivery came to and tells the operator of failures, each kind of them once a minute.
func (c *Connectors) note(ctx context.Context, action, tenant, target string, err error) error {
	f := failureOf(err)
	switch {
	case f == nil:
		c.m.dispatched(action, Sent)
		return nil
	case errors.Is(ctx.Err(), context.Canceled): // Weir stops, which says nothing of the target
		return f
	}
	c.m.dispatched(action, f.Outcome)
	if every := c.logged[f.Outcome]; every != nil {
		if held, ok := every.Allow(c.deps.Now().Sub(c.began)); ok {
			c.deps.Logger.Warn("an order of a rule was not delivered", "action", action, "tenant", tenant, "target", target, "outcome", string(f.Outcome), "error", f.Text,
				"detail", detail(f), "held_back", held)
		}
	}
	return f
}

// read reads in one transaction. A store that fails is no failure of the target.
func (c *Connectors) read(ctx context.Context, fn func(store.Tx) error) error {
	err := c.deps.Store.Read(ctx, fn)
	if _, ok := errors.AsType[*Failure](err); ok || err == nil {
		return err
	}
	return &Failure{Outcome: Unreachable, Text: "Weir cannot read what the delivery needs", Cause: err, Own: true}
}
