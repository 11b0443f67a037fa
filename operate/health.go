package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"weir/config"
	"weir/health"
	"weir/ingest"
	"weir/internal/dirlock"
	"weir/model"
	"weir/store"
)

// The states of an instance, as a load balancer or a service manager wants to know them.
const (
	HealthReady    = "ready"
	HealthDegraded = "degraded" // it serves, but something is wrong
	HealthNotReady = "not ready"
)

// Health says in a word how an instance is. It costs nothing to ask.
type Health struct {
	State    string   `json:"state"`
	Problems []string `json:"problems,omitempty"`
	// Waiting is how many records of the log are not applied yet; then AsOf is the receive time up to which all are.
	Waiting int64      `json:"waiting,omitempty"`
	AsOf    *time.Time `json:"asOf,omitempty"`
}

func (o *Operator) health(context.Context, None) (*Health, error) {
	h := &Health{State: HealthReady}
	if h.Waiting = o.deps.Applier.Waiting(); h.Waiting > 0 {
		h.AsOf = new(o.deps.Applier.AsOf(model.NanosOf(time.Now())).Time().UTC())
	}
	if !o.deps.Ready() {
		h.State, h.Problems = HealthNotReady, []string{o.unready()}
		return h, nil
	}
	if why := o.deps.Closed(); why != "" {
		h.State, h.Problems = HealthNotReady, []string{"all transports are closed: " + why}
		return h, nil
	}
	for _, s := range o.deps.Sources() {
		if s.State == ingest.SourceDown && s.LastError != "" {
			h.Problems = append(h.Problems, "the event source "+s.ID+" is down: "+s.LastError)
		}
	}
	if err := o.deps.Spool.Stats().Err; err != nil {
		h.Problems = append(h.Problems, "the log refuses appends: "+err.Error())
	}
	if err := o.deps.Store.Stats().Err; err != nil {
		h.Problems = append(h.Problems, doubtText(err))
	}
	if o.deps.Gauge.Refusing() {
		h.Problems = append(h.Problems, "the log is filling up: new messages are refused")
	}
	if why := o.deps.Applier.Stalled(); why != "" {
		h.Problems = append(h.Problems, "what was accepted is not applied: "+why)
	}
	if o.deps.Uplink != nil {
		h.Problems = append(h.Problems, o.deps.Uplink.Problems()...)
	}
	if len(h.Problems) > 0 {
		h.State = HealthDegraded
	}
	return h, nil
}

// unready is why an instance is not ready. One that still applies what was acknowledged before its start serves devices.
func (o *Operator) unready() string {
	if r := o.deps.Applier.Replay(); r != nil {
		return "devices are served, queries wait: " + r.String()
	}
	return "it is starting or stopping"
}

// healthTimeout bounds one question.
const healthTimeout = 5 * time.Second

// AskHealth asks the instance of a data directory. The error is ErrNotRunning when none is there; one that has the
// directory and does not answer yet is not ready.
func AskHealth(ctx context.Context, cfg config.Config) (*Health, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	c, err := Dial(ctx, cfg)
	if errors.Is(err, ErrNotRunning) {
		if pid := dirlock.Owner(cfg.DataDir); pid != 0 {
			return &Health{State: HealthNotReady, Problems: []string{fmt.Sprintf("process %d has the directory and does not answer: it is starting or stopping", pid)}}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	h, err := GetHealth.Ask(ctx, c, None{})
	if err != nil && ctx.Err() != nil {
		return &Health{State: HealthNotReady, Problems: []string{fmt.Sprintf("no answer within %s", healthTimeout)}}, nil
	}
	return h, err
}

// AskReadyz asks /readyz of an instance that is reached over the network.
func AskReadyz(ctx context.Context, base string) (*Health, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+"/readyz", nil)
	if err != nil {
		return nil, err
	}
	// A proxy or a redirect would answer for another server.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return unreachable(base, err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // the body besides the status is for people
	switch said := strings.TrimSpace(string(body)); resp.StatusCode {
	case http.StatusOK:
		return &Health{State: HealthReady}, nil
	case http.StatusServiceUnavailable:
		return &Health{State: HealthNotReady, Problems: []string{"it answers: " + said}}, nil
	}
	return &Health{State: HealthNotReady, Problems: []string{fmt.Sprintf("%s answers %s: is this the api listener of a Weir?", base, resp.Status)}}, nil
}

// unreachable distinguishes an address where nothing listens from a server that does not answer.
func unreachable(base string, err error) (*Health, error) {
	_, unknown := errors.AsType[*net.DNSError](err)
	if errors.Is(err, syscall.ECONNREFUSED) || unknown {
		return nil, fmt.Errorf("%w: %w", nobodyAt(base), err)
	}
	return &Health{State: HealthNotReady, Problems: []string{err.Error()}}, nil
}

// nobodyAt is ErrNotRunning of an address.
type nobodyAt string

func (a nobodyAt) Error() string { return "nothing answers at " + string(a) }

// Is makes errors.Is(err, ErrNotRunning) hold.
func (nobodyAt) Is(target error) bool { return target == ErrNotRunning }

// doubtHint is what to do about a database that cannot be trusted while it is open. After a failed sync there is nothing to
// bring back: the log still holds what the database may have lost, for it is trimmed only after a sync that succeeded.
func doubtHint(dir string, err error) string {
	if errors.Is(err, store.ErrUnsynced) {
		return "restart weir: the database is opened again and the log restores what it lacks; then look at the disk (dmesg, smartctl): it has refused a sync"
	}
	return StoreHint(dir)
}

// doubtText says in a line what is wrong with the database.
func doubtText(err error) string {
	if errors.Is(err, store.ErrUnsynced) {
		return "the database takes nothing until weir is restarted: " + err.Error()
	}
	return "the database is damaged: " + err.Error()
}

// storeFinding is what is wrong with the database, as far as it is known.
func (o *Operator) storeFinding() (health.Finding, bool) {
	if err := o.deps.Store.Stats().Err; err != nil {
		return health.Fail(doubtHint(o.deps.Config.DataDir, err)+"; what is acknowledged meanwhile waits in the log as long as that has room: weir backup create keeps it, where it still can", "%v", err), false
	}
	return health.Finding{}, true
}
