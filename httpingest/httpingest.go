// Package httpingest is the HTTP transport: POST {ingest_url}/{instanceId}/{tenant}/events with one ingest event or an
// array of them, POST {ingest_url}/{instanceId}/{tenant}/devices/{device}/telemetry with a flat body, and POST
// {ingest_url}/{instanceId}/{tenant}/device-reports/{device} with a device report. The listener speaks HTTP or HTTPS and authenticates no
// connection: the credential is in the event, or of a flat body and a report in the header. The status reports whether the message is
// stored, or why not.
//
//	handler.go     the path, the order of the checks, the answers
//	credential.go  the credential of a header
//	poll.go        POST {ingest_url}/{instanceId}/{tenant}/commands: devices that fetch their commands; carrier.go: for whom one waits
//	attributes.go  GET {ingest_url}/{instanceId}/{tenant}/device-attributes/{device}: what a device may read of itself
//	provision.go   POST {ingest_url}/{instanceId}/provision: devices that get their credential themselves
//	body.go        reading a bounded body, splitting an array
//	timeout.go     the deadline of a request
//	transport.go   the listeners with their timeouts and connection limit
package httpingest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/command"
	"weir/ingest"
	"weir/internal/setting"
	"weir/internal/transfers"
	"weir/model"
)

// Config configures the transport. Zero values mean the defaults named here.
type Config struct {
	InstanceID string // first segment of the path
	Source     string // event source id; "http1"

	Settings
	Basic          bool // an event may have its credential in the header, too: an arrival holds it
	MaxEvents      int  // 1,000 events in an array
	MaxLargeBodies int  // 32 bodies over 64 KiB are read at a time, a quarter of them of one source address; others wait
	MaxPolls       int  // 1,000 requests for commands may wait
	MaxConnections int  // 4,096; beyond it a new connection evicts an idle one
}

// Deps are the collaborators. Intake is required.
type Deps struct {
	Intake     Intake
	Provision  Provisioner  // nil: no device gets its credential here
	Desk       command.Desk // of the commands that devices fetch, if Settings.Commands is set; nil: none can be fetched
	Attributes Attributes   // what devices may read of themselves, if Settings.Commands is set; nil: none can
	Listeners  []Listener   // open sockets; the transport closes them
	// Refused is called about once a minute for TLS handshakes that failed; nil: it is not called. It must not block.
	Refused    func(why, text string)
	Logger     *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
}

// Intake is the part of ingest.Intake that the transport needs.
type Intake interface {
	// Accept accepts or refuses a message and calls done exactly once, before it returns or later.
	Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer))
	// AcceptAll accepts all messages or none and calls done exactly once; index is that of the arrival to which the answer
	// applies, -1 for all.
	AcceptAll(ctx context.Context, as []*ingest.Arrival, done func(answer ingest.Answer, index int))
	// Received counts a parsed packet that never becomes an Arrival, Refuse its outcome.
	Received(transport, source, tenant string, bytes int) ingest.Packet
	Refuse(p ingest.Packet, reason ingest.Reason)
	// TenantFull reports whether the tenant's bucket is empty: the body need not be read.
	TenantFull(tenant string) bool
	// Identify verifies the credential of a request that is no message; refused is nil when the proof counts.
	Identify(ctx context.Context, tenant string, c ingest.Credential, from netip.Addr) (proof ingest.Proof, refused *ingest.Answer)
}

// handler answers the requests of the ingest listener.
type handler struct {
	cfg     Config
	maxBody atomic.Int64 // effective in place of cfg.MaxBody
	deps    Deps
	metrics *metrics
	large   *transfers.Slots // for large bodies
	polls   *polls           // nil: no command can be fetched

	received, refused, last atomic.Int64 // requests, those not answered with 202, and the time of the last one that was
}

func newHandler(cfg Config, deps Deps) (*handler, error) {
	cfg = cfg.withDefaults()
	if err := model.CheckToken("instance.id", cfg.InstanceID); err != nil {
		return nil, err
	}
	if deps.Intake == nil {
		return nil, errors.New("httpingest: an intake is required")
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{cfg: cfg, deps: deps, metrics: newMetrics(deps.Registerer), large: transfers.New(cfg.MaxLargeBodies)}
	h.maxBody.Store(int64(cfg.MaxBody))
	if cfg.Commands && deps.Desk != nil {
		h.polls = newPolls(cfg.Source, cfg.MaxPolls, deps.Desk)
	}
	if deps.Registerer != nil {
		h.registerBounds(deps.Registerer)
	}
	return h, nil
}

func (c Config) withDefaults() Config {
	number := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	setting.FillDefaults(&c.Settings)
	number(&c.MaxEvents, 1000)
	number(&c.MaxLargeBodies, 32)
	number(&c.MaxPolls, 1000)
	number(&c.MaxConnections, 4096)
	if c.Source == "" {
		c.Source = "http1"
	}
	return c
}

var _ http.Handler = (*handler)(nil)
