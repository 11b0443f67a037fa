package lwm2m

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/ingest"
	"weir/lwm2m/coap"
	"weir/lwm2m/content"
	"weir/model"
)

// The bootstrap server gives a device that proves itself with a bootstrap key the account of this server, with a key of its own (LwM2M 1.0 section 5.2,
// 1.1 core section 6.1). It is a socket of its own: its keys open no session of the other one, nor the other way round.

// BootstrapSettings are the keys of the section lwm2m.bootstrap.
type BootstrapSettings struct {
	Lifetime time.Duration `yaml:"lifetime" default:"24h" min:"60s" zero:"no" doc:"Lifetime of registrations that bootstrap writes to devices."`
	Binding  string        `yaml:"binding" default:"U" enum:"U UQ" doc:"Binding mode that bootstrap writes to devices; UQ is queue mode of LwM2M 1.0."`
	Extra    []string      `yaml:"extra" doc:"Resources that bootstrap writes besides, each as PATH=VALUE, such as /3/0/15=Europe/Berlin; bytes in base64."`
}

// BootstrapDeps are what the bootstrap server needs.
type BootstrapDeps struct {
	Listen func() (net.PacketConn, error)
	Keys   Keys // bootstrap keys
	// Mint makes a new pre-shared key for a device. The ones of before stay good.
	Mint func(ctx context.Context, device model.Binding) (Minted, error)
	// Discard removes a key that no device was given.
	Discard func(ctx context.Context, m Minted) error
}

// Minted is a pre-shared key that was made for a device.
type Minted struct {
	TenantID int64
	Token    string // of the credential
	Identity string
	Secret   []byte
}

// Bounds of the bootstrap server.
const (
	maxBootstraps    = 1000 // sessions at once
	bootstrapSilence = time.Minute
	bootstrapTimeout = 3 * time.Minute // of a run
	bootstrapPath    = "bs"
	packPath         = "bspack"
	shortServerID    = 101 // of the account that is written
	bootstrapSource  = "lwm2m-bootstrap"
)

// outcomes of runs.
const (
	bootFinished = "finished"
	bootRefused  = "refused"   // by the device
	bootSilent   = "no_answer" // of the device
	bootFailed   = "failed"    // here
)

// bootstrapper is the bootstrap server.
type bootstrapper struct {
	of    *Server // whose account is written
	s     *Server // of the sessions
	deps  *BootstrapDeps
	ended *prometheus.CounterVec

	mu   sync.Mutex
	runs map[*session]bool
}

// bootstraps reports whether a server is that of the sessions of a bootstrap server.
func (s *Server) bootstraps() bool { return s.boot != nil && s.boot.s == s }

// nothing is what the sessions of the bootstrap server store and send: nothing.
type nothing struct{}

func (nothing) Restore(context.Context, uint64, Restored) error { return nil }
func (nothing) Save(context.Context, bool, *Changes) error      { return nil }
func (nothing) Accept(_ context.Context, _ *ingest.Arrival, done func(ingest.Answer)) {
	done(ingest.Answer{Outcome: ingest.Withheld})
}
func (nothing) Presence(_ context.Context, _, _ string, _ model.Binding, _ model.Presence, done func(ingest.Answer)) {
	done(ingest.Answer{Outcome: ingest.Withheld})
}

func newBootstrapper(of *Server, deps *BootstrapDeps, reg prometheus.Registerer) (*bootstrapper, error) {
	b := &bootstrapper{of: of, deps: deps, runs: map[*session]bool{}, ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_lwm2m_bootstrap_total",
		Help: "Bootstraps of LwM2M devices, by outcome (finished, refused, no_answer, failed)."}, []string{"outcome"})}
	for _, outcome := range []string{bootFinished, bootRefused, bootSilent, bootFailed} {
		b.ended.WithLabelValues(outcome)
	}
	if reg != nil {
		reg.MustRegister(b.ended, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_lwm2m_bootstrap_sessions", Help: "DTLS sessions of the LwM2M bootstrap server."}, func() float64 {
			if b.s == nil {
				return 0
			}
			return float64(b.s.sessionCount())
		}))
	}
	if deps == nil {
		return b, nil
	}
	set := of.cfg.Settings
	for _, text := range set.Bootstrap.Extra {
		if _, err := ParseExtra(text); err != nil {
			return nil, fmt.Errorf("lwm2m.bootstrap.extra: %w", err)
		}
	}
	set.MaxSessions = min(set.MaxSessions, maxBootstraps)
	s, err := New(Config{Source: bootstrapSource, Settings: set}, Deps{Listen: deps.Listen, Intake: nothing{}, Keys: deps.Keys, Store: nothing{}, Refused: of.deps.Refused, Logger: of.log, Now: of.now})
	if err != nil {
		return nil, err
	}
	s.boot = b
	b.s = s
	return b, nil
}

// run serves the socket until ctx ends.
func (b *bootstrapper) run(ctx context.Context) {
	if b.s == nil {
		return
	}
	conn, err := b.deps.Listen()
	if err != nil {
		b.of.log.Error("the LwM2M bootstrap server cannot listen", "error", err)
		return
	}
	sock := newSocket(conn, 0)
	sock.begin = b.s.gate.begin
	b.s.open(sock)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	b.s.begin(func() { b.sweep(ctx) })
	if err := sock.serve(); err != nil && ctx.Err() == nil {
		b.of.log.Error("the LwM2M bootstrap server has stopped", "error", err)
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), bootstrapTimeout)
	defer cancel()
	_ = b.s.Close(stop) // what is under way ends with its sessions
}

// sweep ends sessions that are silent.
func (b *bootstrapper) sweep(ctx context.Context) {
	for pause(ctx, time.Second) == nil {
		now := b.s.now()
		var gone []*session
		b.s.mu.Lock()
		for sess := range b.s.sessions {
			if now.Sub(sess.lastHeard()) > bootstrapSilence {
				gone = append(gone, sess)
			}
		}
		b.s.mu.Unlock()
		for _, sess := range gone {
			sess.close()
		}
	}
}

// request answers what a device asks the bootstrap server. A Bootstrap-Pack is not made: the device asks for a bootstrap then (1.2 section 6.1.7.3).
func (b *bootstrapper) request(sess *session, m *coap.Message) *coap.Message {
	path := m.Texts(coap.URIPath)
	switch {
	case len(path) == 1 && path[0] == packPath && m.Code == coap.GET:
		return &coap.Message{Code: coap.NotFound}
	case len(path) != 1 || path[0] != bootstrapPath:
		return &coap.Message{Code: coap.NotFound}
	case m.Code != coap.POST:
		return &coap.Message{Code: coap.MethodNotAllowed}
	}
	format := content.TLV // the one that each version has for bootstrap
	for _, q := range m.Texts(coap.URIQuery) {
		name, value, _ := strings.Cut(q, "=")
		switch name {
		case "ep":
			if len(value) > maxEndpoint {
				return &coap.Message{Code: coap.BadRequest}
			}
		case "pct":
			n, err := strconv.ParseUint(value, 10, 16)
			if err != nil {
				return &coap.Message{Code: coap.BadRequest}
			}
			if f := content.Canonical(uint16(n)); f == content.SenMLCBOR || f == content.SenMLJSON {
				format = f
			}
		}
	}
	b.mu.Lock()
	running := b.runs[sess]
	b.runs[sess] = true
	b.mu.Unlock()
	if !running {
		begin := func() { b.s.begin(func() { b.bootstrap(sess, format) }) }
		select {
		case sess.work <- begin: // once the answer to this request is sent
		default:
			begin()
		}
	}
	return &coap.Message{Code: coap.Changed}
}

// bootstrap writes its account to a device, and ends the session in a while.
func (b *bootstrapper) bootstrap(sess *session, format uint16) {
	ctx, cancel := context.WithTimeout(sess.ctx, bootstrapTimeout)
	defer cancel()
	defer func() {
		b.mu.Lock()
		delete(b.runs, sess)
		b.mu.Unlock()
	}()
	r := &run{b: b, sess: sess, ctx: ctx, format: format}
	err := r.all()
	outcome := bootFinished
	switch {
	case err == nil:
		b.of.log.Info("a device was given the account of this server", "device", sess.binding.Device, "tenant", sess.binding.Tenant)
	case errors.Is(err, errNoAnswer), errors.Is(err, errEnded), errors.Is(err, errReset):
		outcome = bootSilent
	case errors.As(err, new(deviceError)):
		outcome = bootRefused
	default:
		outcome = bootFailed
	}
	b.ended.WithLabelValues(outcome).Inc()
	if err == nil {
		return
	}
	b.of.deps.Refused(sess.binding.Tenant, sess.binding.Device, "the bootstrap failed: "+err.Error(), "")
	b.of.log.Warn("a bootstrap of a device failed", "device", sess.binding.Device, "tenant", sess.binding.Tenant, "error", err)
	if r.minted.Token == "" || r.written { // a device that was given the key may have it
		return
	}
	discard, stop := context.WithTimeout(context.WithoutCancel(ctx), bootstrapSilence)
	defer stop()
	if err := b.deps.Discard(discard, r.minted); err != nil {
		b.of.log.Warn("a pre-shared key that no device was given could not be removed", "device", sess.binding.Device, "tenant", sess.binding.Tenant, "error", err)
	}
}

// run is a bootstrap of a device.
type run struct {
	b       *bootstrapper
	sess    *session
	ctx     context.Context
	format  uint16
	newer   bool   // the device has said that it speaks 1.1 or later
	bs      uint16 // instance of the bootstrap account among its security objects
	minted  Minted
	written bool // the device may have the key
}

// all does what a bootstrap does, in its order.
func (r *run) all() error {
	set := r.b.of.settings.Load()
	if set.PublicURI == "" {
		return errors.New("lwm2m.public_uri must say where devices reach this server")
	}
	r.discover()
	account := r.account()
	for _, object := range []uint16{0, 1} {
		if err := r.delete(object); err != nil {
			return err
		}
	}
	var err error
	if r.minted, err = r.b.deps.Mint(r.ctx, r.sess.binding); err != nil {
		return fmt.Errorf("a key cannot be made: %w", err)
	}
	security := uint16(0)
	if r.bs == 0 {
		security = 1
	}
	integer := func(n int64) content.Value { return content.Value{Kind: content.Integer, Int: n} }
	text := func(s string) content.Value { return content.Value{Kind: content.String, Text: s} }
	truth := func(b bool) content.Value { return content.Value{Kind: content.Boolean, Bool: b} }
	opaque := func(b []byte) content.Value { return content.Value{Kind: content.Bytes, Bytes: b} }
	r.written = true
	if err := r.write(content.Path{0, security}, map[uint16]content.Value{0: text(set.PublicURI), 1: truth(false), 2: integer(0), 3: opaque([]byte(r.minted.Identity)), 4: opaque(nil),
		5: opaque(r.minted.Secret), 10: integer(shortServerID)}); err != nil {
		return err
	}
	server := map[uint16]content.Value{0: integer(shortServerID), 1: integer(int64(set.Bootstrap.Lifetime / time.Second)), 6: truth(true), 7: text(set.Bootstrap.Binding)}
	if r.newer {
		server[7] = text("U") // queue mode is what the device registers with
		server[23] = truth(false)
	}
	maps.Copy(server, account)
	if err := r.write(content.Path{1, 0}, server); err != nil {
		return err
	}
	for _, extra := range set.Bootstrap.Extra {
		if err := r.extra(extra); err != nil {
			return err
		}
	}
	m := &coap.Message{Code: coap.POST}
	m.AddPath(coap.URIPath, bootstrapPath)
	_, err = r.ask(m)
	return err
}

// ask sends a request. A code that is none of success is an error.
func (r *run) ask(m *coap.Message) (*coap.Message, error) {
	set := r.b.of.settings.Load()
	ctx, cancel := context.WithTimeout(r.ctx, set.CommandTimeout)
	defer cancel()
	answer, err := r.sess.ask(ctx, m, int(set.MaxRead))
	if err == nil && !answer.Code.Success() {
		err = refusedBy(answer)
	}
	return answer, err
}

// discover asks what the device has (Bootstrap-Discover). One that does not say it is taken for one of 1.0 with its bootstrap account in the first place.
func (r *run) discover() {
	m := &coap.Message{Code: coap.GET}
	m.AddUint(coap.Accept, uint32(content.LinkList))
	answer, err := r.ask(m)
	if err != nil {
		return
	}
	r.newer, r.bs = readDiscovered(string(answer.Payload))
}

// readDiscovered reads the answer to a Bootstrap-Discover: whether the device speaks 1.1 or later, and which security object is its bootstrap account. What does
// not read says nothing.
func readDiscovered(body string) (newer bool, bootstrap uint16) {
	if head, rest, cut := strings.Cut(body, ","); cut && strings.HasPrefix(head, "lwm2m=") { // as 1.0 has it, without a target
		newer, body = newerThan10(strings.TrimPrefix(head, "lwm2m=")), rest
	}
	links, err := content.ParseLinks([]byte(body))
	if err != nil {
		return newer, 0
	}
	for _, l := range links {
		if v, ok := l.Get("lwm2m"); ok {
			newer = newerThan10(v)
		}
		if _, other := l.Get("ssid"); len(l.Path) == 2 && l.Path[0] == 0 && !other { // the account of a bootstrap server has no short id
			bootstrap = l.Path[1]
		}
	}
	return newer, bootstrap
}

func newerThan10(version string) bool {
	version = strings.Trim(version, `"`)
	return version == "1.1" || version == "1.2"
}

// account reads what the account of before says about notifications (Bootstrap-Read, 1.1): it goes on.
func (r *run) account() map[uint16]content.Value {
	if !r.newer {
		return nil
	}
	m := &coap.Message{Code: coap.GET}
	m.AddPath(coap.URIPath, "1")
	m.AddUint(coap.Accept, uint32(r.format))
	answer, err := r.ask(m)
	if err != nil {
		return nil
	}
	format := r.format
	if given, ok := answer.Uint(coap.ContentFormat); ok {
		format = uint16(given)
	}
	records, err := content.Decode(format, content.Path{1}, answer.Payload, r.b.of.seconds())
	if err != nil {
		return nil
	}
	ours := slices.IndexFunc(records, func(c content.Record) bool {
		n, ok := c.Value.Number()
		return ok && len(c.Path) == 3 && c.Path[2] == 0 && n == shortServerID
	})
	if ours < 0 {
		return nil
	}
	kept := map[uint16]content.Value{}
	for _, c := range records {
		if len(c.Path) == 3 && c.Path[1] == records[ours].Path[1] && slices.Contains([]uint16{2, 3, 6}, c.Path[2]) { // default pmin and pmax, notification storing
			kept[c.Path[2]] = c.Value
		}
	}
	return kept
}

// delete removes all instances of an object but the bootstrap account (Bootstrap-Delete).
func (r *run) delete(object uint16) error {
	m := &coap.Message{Code: coap.DELETE}
	m.AddPath(coap.URIPath, strconv.Itoa(int(object)))
	_, err := r.ask(m)
	if isCode(err, coap.NotFound) { // there is none
		return nil
	}
	if err != nil {
		return fmt.Errorf("the device does not remove its accounts (/%d): %w", object, err)
	}
	return nil
}

// write writes an instance (Bootstrap-Write).
func (r *run) write(path content.Path, values map[uint16]content.Value) error {
	var all []content.Record
	for resource, v := range values {
		all = append(all, content.Record{Path: append(slices.Clone(path), resource), Value: v})
	}
	slices.SortFunc(all, func(a, b content.Record) int { return slices.Compare(a.Path, b.Path) })
	return r.put(path, all, r.format)
}

func (r *run) put(path content.Path, all []content.Record, format uint16) error {
	body, err := content.Encode(format, path, all)
	if err != nil {
		return err
	}
	m := &coap.Message{Code: coap.PUT, Payload: body}
	m.AddPath(coap.URIPath, path.Segments()...)
	m.AddUint(coap.ContentFormat, uint32(format))
	if _, err := r.ask(m); err != nil {
		return fmt.Errorf("the device does not take %s: %w", path, err)
	}
	return nil
}

// extra writes a resource of the configuration.
func (r *run) extra(text string) error {
	record, err := ParseExtra(text)
	if err != nil {
		return err
	}
	return r.put(record.Path, []content.Record{record}, r.format)
}

// ParseExtra reads an entry of lwm2m.bootstrap.extra: PATH=VALUE, of a resource, in the type that the model of its object says, a text where it says none.
func ParseExtra(text string) (r content.Record, err error) {
	name, value, has := strings.Cut(text, "=")
	path, ok := content.ParsePath(name)
	switch {
	case !has || !ok || len(path) != 3:
		return r, fmt.Errorf("%.80q must be PATH=VALUE, with the path of a resource such as /3/0/15", text)
	case path[0] < 2:
		return r, fmt.Errorf("%.80q: the accounts of servers (/0 and /1) are written by the bootstrap itself", text)
	}
	v := content.Value{Kind: content.String, Text: value}
	switch content.KindOf(path) {
	case content.None, content.String:
		return content.Record{Path: path, Value: v}, nil
	case content.Bytes, content.Link:
		if v, ok = content.As(content.KindOf(path), v); !ok {
			return r, fmt.Errorf("%.80q: the value does not fit the type of the resource", text)
		}
		return content.Record{Path: path, Value: v}, nil
	}
	all, err := content.Decode(content.Text, path, []byte(value), 0)
	if err != nil || len(all) != 1 || all[0].Value.Kind != content.KindOf(path) {
		return r, fmt.Errorf("%.80q: the value does not fit the type of the resource", text)
	}
	return all[0], nil
}

// bootstrap tells a device to ask its bootstrap server for an account (1.1): it executes Bootstrap-Request Trigger.
func (o *operation) bootstrap() (any, error) {
	if err := o.rest(); err != nil {
		return nil, err
	}
	if o.r.Version == "1.0" {
		return nil, wrong("the device has registered with LwM2M 1.0: Bootstrap-Request Trigger (/1/x/9) came with 1.1")
	}
	o.s.mu.Lock()
	var server content.Path
	for _, l := range o.r.links {
		if len(l.Path) == 2 && l.Path[0] == 1 {
			server = l.Path
			break
		}
	}
	o.s.mu.Unlock()
	if server == nil {
		return nil, wrong("the device lists no instance of the server object (/1)")
	}
	return o.post(append(slices.Clone(server), 9), "")
}
