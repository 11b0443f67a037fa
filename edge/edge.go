// Package edge is what an instance does in the role edge: at a site it takes in what devices send, keeps it, and hands it to a broker
// above exactly once. The transports are those of every instance; behind them stands, in place of the intake and the applier, this
// package:
//
//	intake.go   what the transports hand over becomes a record of the log; it is acknowledged once that is synced
//	record.go   the record: the message as it came, its topic, and when
//	forward.go  the reader of the log: sends each record up, in order, and moves the position behind what was acknowledged
//	enrich.go   what a message is given on its way, so that a repeat is recognised above
//	uplink.go   the connection: dialled again and again, with back-off and jitter
//	sync.go     the devices of a Weir above, with which they sign in also while it is away
//	follow.go   a platform follows what a Weir above says of its devices, and its rules fire for it
//	commands.go commands of a Weir above for the devices at the site
//	hello.go    what is said to a Weir above, and what its answer asks for
//	carry.go    what is carried to a Weir above by hand
//	rate.go     how fast records leave while the other side says that it is too fast
//	book.go     the ledger of the edge: how many messages came in, and how each ended
//	state.go    what is kept besides the log: identity, position, book; deadletters.go: what the broker above refused for good
//	clock.go    receive times, also before the time of day is known
//	status.go   what is shown of all that; metrics.go likewise
//	lanes.go    what comes now before a backlog, and the rate of bytes; frames.go: many messages in one packet
//	presence.go who comes and goes at the site
//	beside.go   the same forwarder beside the applier of a platform, on the platform's log; body.go: how what is read there goes up, repeats.go:
//	            what of it does not
//
// Invariants. A record is acknowledged to its device after its sync, and leaves the log only behind the position, which moves over a
// record once the broker above has acknowledged it, has refused it for good (it is a dead letter then), or it was dropped because the
// log was full and the operator wants that. Position and book are one file, replaced whole; the log is trimmed behind the position of
// that file only. So a record may be sent twice, always under the same number and with the same altId and time, and is never skipped.
package edge

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/auth"
	"weir/internal/mqttclient"
	"weir/internal/setting"
	"weir/model"
	"weir/spool"
)

// Settings are the keys of the section edge. They apply with role: edge; a platform with an uplink has AgentID, WhenFull, Commands and Uplink.
type Settings struct {
	AgentID       string         `yaml:"agent_id" doc:"Token of the device as which the edge signs in at the broker above, a part of its client id. Empty: the client id is weir-edge: and the id of the installation."`
	Listen        string         `yaml:"listen" format:"address" default:"0.0.0.0:1883" doc:"Address of the broker for the site's devices, without TLS."`
	Auth          string         `yaml:"auth" default:"auto" enum:"auto synced shared open" doc:"How the site's devices sign in. synced: with their own credentials at the Weir above, of which the edge keeps hashes; shared: with edge.username and edge.password; open: with none; auto: shared where edge.username is set, else open."`
	Username      string         `yaml:"username" doc:"User name that the site's devices present, over MQTT and with HTTP Basic authentication; empty: none is asked for."`
	Password      setting.Secret `yaml:"password" doc:"Password that goes with edge.username."`
	SpoolMaxBytes setting.Size   `yaml:"spool_max_bytes" default:"1GiB" min:"16MiB" max:"1TiB" doc:"Maximum bytes that may wait in the durable log for the broker above."`
	WhenFull      string         `yaml:"when_full" default:"refuse" enum:"refuse drop_oldest" doc:"What happens while the log is full. refuse: new messages are not acknowledged, HTTP answers 503. drop_oldest: the oldest messages that wait are discarded, and counted."`
	Commands      bool           `yaml:"commands" default:"true" doc:"Whether commands of a Weir above are handed on to the site's devices, which then may subscribe to the commands of any device."`
	Uplink        UplinkSettings `yaml:"uplink"`
}

// UplinkSettings are the keys of the connection to the broker above.
type UplinkSettings struct {
	BrokerURL      string              `yaml:"broker_url" doc:"Broker above: tcp://HOST:PORT, or ssl:// or tls:// for TLS."`
	Username       string              `yaml:"username" doc:"User name at the broker above; for a Weir TENANT:CREDENTIAL."`
	Password       setting.Secret      `yaml:"password" doc:"Password at the broker above."`
	TLS            mqttclient.TLSFiles `yaml:"tls"`
	ConnectTimeout time.Duration       `yaml:"connect_timeout" default:"30s" zero:"no" doc:"How long connecting to the broker above may take."`
	BackoffMin     time.Duration       `yaml:"backoff_min" default:"1s" zero:"no" doc:"Wait before the first attempt to connect again; it doubles with each further one. A random part of up to half is left out."`
	BackoffMax     time.Duration       `yaml:"backoff_max" default:"60s" zero:"no" doc:"Longest wait between two attempts."`
	KeepAlive      time.Duration       `yaml:"keep_alive" default:"30s" min:"1s" max:"18h" doc:"Longest time without a packet on the uplink; half of it without an answer to a ping ends the connection."`
	Rate           setting.Size        `yaml:"rate" doc:"Maximum bytes a second that go up. 0: as many as the link carries."`
	Order          string              `yaml:"order" default:"oldest_first" enum:"oldest_first live_first" doc:"What goes up first once much waits. oldest_first: everything in the order of its receipt; live_first: what comes now, the rest in what that leaves of the rate."`
	Frames         bool                `yaml:"frames" doc:"Whether messages go to a Weir above in frames: many in one packet of up to 256 KiB, compressed, no later than a second after the first."`
	Presence       bool                `yaml:"presence" default:"true" doc:"Whether a Weir above is notified when devices at the site, which sign in with credentials of their own, come and go."`
	Sync           bool                `yaml:"sync" default:"true" doc:"Whether a platform follows what a Weir above says of its devices: types, published profiles, devices with their attributes and credentials, geofences. They are read-only here then."`
	Firings        bool                `yaml:"firings" default:"true" doc:"Whether the rules with placement EDGE of a platform fire for a Weir above, which then does not judge what they judge."`
	Window         int                 `yaml:"window" default:"4096" min:"1" max:"4096" doc:"Maximum number of messages sent and not yet acknowledged; the Receive Maximum of the broker above bounds it, too. In frames 16 times as many."`
}

// Config configures an edge.
type Config struct {
	Settings
	InstanceID string
	Dir        string // for what is kept besides the log
	// TLS is the configuration of a secure uplink, made again for each connection; nil: the roots of the system.
	TLS func() (*tls.Config, error)
}

// Deps are the collaborators of an edge.
type Deps struct {
	// Open opens the log.
	Open func(OpenLog) (spool.Log, *Began, error)
	// Dial makes the connection to the broker above.
	Dial mqttclient.Dial
	// Now returns the wall clock's time and the monotonic time since the start.
	Now func() (wall time.Time, mono time.Duration)
	// Boot is the random number of this start.
	Boot uint64
	// Built is the build time of the program: no earlier time is plausible.
	Built time.Time
	// Machine is the id of the machine, "" where it has none; Version that of the program.
	Machine string
	Version string
	// Beside is nil for the role edge. With it the edge is the uplink of a platform: the log is that of the platform, which writes it.
	Beside     *Beside
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
}

// OpenLog is how the log is to be opened.
type OpenLog struct {
	PairID    [16]byte     // zero: the log keeps its own
	MinOffset model.Offset // offsets go on above it
	MinEpoch  uint32       // a new epoch has at least this number
}

// Began says that opening the log began a new epoch.
type Began struct {
	Why    string
	Damage error // of the log, nil when it was not damaged
}

// Edge is a running edge. Intake is what the transports hand their messages to.
type Edge struct {
	cfg      Config
	deps     Deps
	log      *slog.Logger
	spool    spool.Log
	id       identity // changed with durable held
	sentAs   atomic.Pointer[string]
	epoch    uint32
	book     *book
	clock    *clock
	seen     *seen
	letters  *letters
	metrics  *metrics
	presence *sitePresence
	carry    carryKey
	began    *Began

	listeners listeners
	devices   *devices // nil: devices do not sign in with credentials of a Weir above
	verifier  *auth.Verifier
	follow    *follower    // nil: nothing of a platform follows a Weir above
	fired     chan firedUp // acknowledgements of firings

	forward *forwarder
	intake  *Intake

	state   stateFile
	durable sync.Mutex // one write of the state at a time
	kick    chan struct{}

	forwards string        // see saved.Forwards
	counted  chan struct{} // closed once what a platform's log held at the start is counted
	tallied  sync.Once     // closes it
}

// Open opens the edge of a directory and makes it where there is none. Errors: *model.Error where the directory belongs to another
// instance id, those of the log, and of the files.
func Open(cfg Config, deps Deps) (*Edge, error) {
	setting.FillDefaults(&cfg.Settings)
	setting.FillDefaults(&cfg.Uplink)
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Edge{listeners: listeners{now: map[string]bool{}, changed: map[string]bool{}}, cfg: cfg, deps: deps, log: deps.Logger, kick: make(chan struct{}, 1), state: stateFile{dir: cfg.Dir}, counted: make(chan struct{})}
	id, fresh, err := e.state.identity(cfg.InstanceID)
	if err != nil {
		return nil, err
	}
	saved, err := e.state.load()
	if err != nil {
		return nil, err
	}
	open := OpenLog{MinOffset: saved.Position, MinEpoch: saved.Epoch + 1}
	if !fresh && saved.Epoch > 0 { // without a state nothing says which epochs there were: a new log is another installation
		open.PairID = id.pair()
	}
	if e.spool, e.began, err = deps.Open(open); err != nil {
		return nil, err
	}
	if err := e.begin(id, fresh, saved); err != nil {
		return nil, errors.Join(err, e.spool.Close())
	}
	return e, nil
}

// begin takes over what the files and the log hold.
func (e *Edge) begin(id identity, fresh bool, saved *saved) error {
	pair := e.spool.PairID()
	if own := hex.EncodeToString(pair[:]); fresh || own != id.InstallID { // the log has just been made, or its identity was lost: its own id goes on
		id.InstallID, id.SentAs = own, ""
		if err := e.state.writeIdentity(id); err != nil {
			return err
		}
	}
	if e.deps.Beside != nil && e.resume(saved, fresh) {
		id.SentAs = newInstall()
		if err := e.state.writeIdentity(id); err != nil {
			return err
		}
	}
	if b := e.deps.Beside; b != nil {
		b.Repeats.restore(saved.Repeats)
		b.Repeats.Through(saved.Position)
	}
	e.forwards = saved.Forwards
	e.setIdentity(id)
	e.epoch = e.spool.Epoch()
	first, last := e.spool.Bounds()
	position := min(max(saved.Position, first-1), last)
	at := place{position, uint64(position)}
	if e.deps.Beside != nil {
		at.Number = saved.Number
	}
	e.book = newBook(saved)
	e.clock = newClock(e.deps, saved)
	e.seen = newSeen()
	var err error
	if e.deps.Beside == nil {
		err = e.recount(first, last, saved.AcceptedThrough)
	}
	if err != nil {
		return err
	}
	if err = e.openDevices(); err != nil {
		return err
	}
	if err = e.openCarryKey(); err != nil {
		return err
	}
	if e.letters, err = openLetters(e.cfg.Dir); err != nil {
		return err
	}
	if e.metrics, err = newMetrics(e, e.deps.Registerer); err != nil {
		return err
	}
	tenant := ""
	if e.cfg.Uplink.Presence && e.cfg.AgentID != "" {
		tenant, _, _ = cutTenant(e.cfg.Uplink.Username)
	}
	e.presence = newSitePresence(tenant, saved.Presence, e.metrics.presenceLost.Inc)
	e.forward = newForwarder(e, at, max(saved.Counted, position), saved.Numbers.began(e.InstallID(), e.epoch, at.Number))
	if saved.Beyond.Check(endlessRanges) == nil && saved.Beyond.Last() <= uint64(last) {
		_, e.forward.beyond = saved.Beyond.Split(uint64(position) + 1)
	}
	if err := e.openFollower(saved); err != nil {
		return err
	}
	e.forward.marks.all = saved.Marks
	e.forward.marks.trimmed(first)
	if e.intake = newIntake(e); e.deps.Beside != nil {
		e.intake.Shut() // a platform has its own
	}
	if e.began != nil && e.began.Damage != nil {
		e.log.Error("the log was damaged: what could not be read is lost; a new epoch begins", "epoch", e.epoch, "error", e.began.Damage)
	}
	return e.keep() // what was trimmed inside the oldest span is back after a restart
}

// recount reads from the log what the state file does not have yet: the messages accepted since, and the repeats to recognise.
func (e *Edge) recount(first, last, counted model.Offset) error {
	from := min(counted+1, last+1)
	if last >= seenRecords {
		from = min(from, last-seenRecords+1)
	} else {
		from = 0
	}
	from = max(from, first)
	if from > last {
		e.book.recovered(last)
		return nil
	}
	r, err := e.spool.Reader(from)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		b, err := r.TryNext()
		if damage, ok := errors.AsType[*spool.DamageError](err); ok && damage.Next > 0 {
			r.Close()
			if r, err = e.spool.Reader(damage.Next); err != nil {
				return err
			}
			continue
		}
		if err != nil && !errors.Is(err, spool.ErrDamaged) {
			return err
		}
		if b == nil {
			break
		}
		for i, record := range b.Records {
			at := b.First + model.Offset(i)
			rec, err := decodeRecord(record.Data)
			if err != nil {
				return fmt.Errorf("offset %d: %w", at, err)
			}
			if at > counted {
				e.book.accepted(lineOf(&rec), at)
			}
			e.seen.add(rec.repeat())
			e.clock.saw(&rec)
		}
	}
	e.book.recovered(last)
	return nil
}

// Intake is what transports hand messages to.
func (e *Edge) Intake() *Intake { return e.intake }

// Run forwards until ctx ends, and returns an error only for what forwarding cannot go on from.
func (e *Edge) Run(ctx context.Context) error {
	return e.forward.run(ctx)
}

// keepEvery is how often the state is written while it changes: what is sent again after a kill.
const keepEvery = 5 * time.Second

// keepAfter is how many records the position may move before that.
const keepAfter = 50_000

// RunState writes the state now and then until ctx ends.
func (e *Edge) RunState(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := e.deps.elapsed()
	for {
		soon := false
		select {
		case <-ctx.Done():
			return nil
		case <-e.kick:
			soon = true
		case <-tick.C:
		}
		if err := e.makesRoom(); err != nil {
			continue
		}
		moved := e.forward.at() - e.state.kept()
		now := e.deps.elapsed()
		if moved == 0 && !e.book.changed() && !e.presence.changed() || !soon && moved < keepAfter && now-last < keepEvery {
			continue
		}
		last = now
		if err := e.keep(); err != nil {
			e.log.Error("the position cannot be written; the log is not trimmed until it can", "error", err)
		}
	}
}

// keepSoon asks for the state to be written: the log needs the room.
func (e *Edge) keepSoon() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// keep writes the state, and trims the log behind it.
func (e *Edge) keep() error {
	e.durable.Lock()
	defer e.durable.Unlock()
	s := e.forward.snapshot() // position and book as of one moment
	s.Epoch, s.Forwards = e.epoch, e.forwards
	s.Maps, s.Newest = e.clock.known(), e.clock.last()
	if err := e.state.write(s); err != nil {
		return err
	}
	if err := e.spool.Trim(s.Position); err != nil && !errors.Is(err, spool.ErrClosed) {
		return err
	}
	first, _ := e.spool.Bounds()
	e.forward.trimmed(first)
	if b := e.deps.Beside; b != nil {
		b.Repeats.forget(min(first, s.Position+1))
	}
	e.intake.roomAgain()
	return nil
}

// Close writes the state and closes the log. What runs has ended.
func (e *Edge) Close() error {
	if e.follow != nil {
		e.follow.change.Wait()
	}
	err := e.spool.Sync(context.Background())
	return errors.Join(err, e.keep(), e.spool.Close(), e.letters.close())
}

// LogStats are the figures of the log.
func (e *Edge) LogStats() spool.Stats { return e.spool.Stats() }

// InstallID is the random id of the installation, under which its messages are numbered.
func (e *Edge) InstallID() string { return *e.sentAs.Load() }

func (e *Edge) setIdentity(id identity) {
	e.id = id
	e.sentAs.Store(new(cmp.Or(id.SentAs, id.InstallID)))
}

// clientID is the client id of the uplink: that of the device at a Weir, which has the tenant in its user name.
func (e *Edge) clientID() string {
	tenant, _, ok := cutTenant(e.cfg.Uplink.Username)
	switch {
	case e.cfg.AgentID == "":
		return "weir-edge:" + e.InstallID()
	case ok:
		return e.cfg.InstanceID + ":" + tenant + ":" + e.cfg.AgentID
	}
	return e.cfg.AgentID
}

func (d *Deps) elapsed() time.Duration {
	_, mono := d.Now()
	return mono
}
