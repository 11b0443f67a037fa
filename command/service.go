package command

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/faults"
	"weir/internal/hub"
	"weir/internal/setting"
	"weir/model"
	"weir/store"
	"weir/store/commands"
)

// Settings are the keys of the section commands.
type Settings struct {
	//limit:what life of a command
	//limit:chapter What is kept
	//limit:bound {} unless it says otherwise, at least 60 s
	//limit:level weir_commanddelivery_open
	//limit:met weir_commanddelivery_moves_total{state="EXPIRED"} weir_commanddelivery_moves_total{state="TIMEOUT"}
	//limit:then EXPIRED where it was not sent, TIMEOUT where it was
	//limit:cost –
	DefaultTTL    time.Duration `yaml:"default_ttl" default:"168h" min:"60s" zero:"default" doc:"How long a command may take that says nothing else: it ends EXPIRED when it was not sent by then, TIMEOUT when it was and is not answered." reload:"yes"`
	SweepInterval time.Duration `yaml:"sweep_interval" default:"30s" min:"5s" max:"300s" zero:"default" doc:"How often commands are looked at that wait for their turn." reload:"yes"`
	HoldCheck     time.Duration `yaml:"hold_check_interval" default:"120s" min:"5s" zero:"default" doc:"How often HELD commands are compared with the presence of their devices." reload:"yes"`
	StrandedCheck time.Duration `yaml:"stranded_check_interval" default:"300s" min:"5s" zero:"default" doc:"How often SENT commands are looked for whose exchange with a device ended unnoticed." reload:"yes"`
	StrandedAfter time.Duration `yaml:"stranded_after" default:"10m" min:"60s" zero:"default" doc:"When a command that is SENT in an exchange counts as stranded: it becomes PARKED." reload:"yes"`
	Reserve       float64       `yaml:"service_reserve" default:"0.2" min:"0" max:"0.5" doc:"Part of a tenant's ceiling of undelivered commands that only services and rules may use." reload:"yes"`
	PresenceGated bool          `yaml:"presence_gate" default:"true" doc:"Commands for absent devices are HELD, and those that can never be delivered FAILED. Without it they are SENT to where no device listens, and end as TIMEOUT." reload:"yes"`
	RequireNonce  bool          `yaml:"require_dispatch_nonce" default:"false" doc:"Answers of devices must carry the dispatchNonce of the command." reload:"yes"`
}

// Deps are the collaborators. Now, Random, Logger and Registerer may be left out.
type Deps struct {
	Store  store.Store
	Writer store.Writer // of what callers of the API change
	Judge  Judge
	// Targets returns the devices of a group, at most limit, on behalf of a caller.
	Targets Targets
	// States returns what is known of some devices of a tenant, those of which nothing is known left out; nil: what the store has.
	States func(ctx context.Context, tenant int64, devices []int64) (map[int64]*store.DeviceState, error)
	// Ceiling returns how many undelivered commands a tenant may have.
	Ceiling func(tenant int64) int64
	// Gone reports whether a tenant is deleted; nil: none is.
	Gone       func(tenant int64) bool
	Now        func() time.Time      // nil: time.Now
	Random     io.Reader             // nil: crypto/rand
	Logger     *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// Service keeps the commands of an instance and is the Desk of its carriers. It is safe for concurrent use.
type Service struct {
	// Events are commands after each move, once it is committed.
	Events *hub.Hub[Command]

	deps Deps
	m    *metrics
	set  atomic.Pointer[Settings]

	mu       sync.Mutex
	carriers []Carrier
	slots    map[int64]*slot
	ops      []op
	flights  []flight
	wake     chan struct{}  // a hint that there is something to do
	nextDue  model.Micros   // no command ends before it
	inMaking map[int64]bool // batches
	added    []task

	recovered atomic.Bool // commands may leave: what the run before this one left is put right, and this one is not over
	desk      desk        // of Run alone
}

var (
	_ Desk     = (*Service)(nil)
	_ Answerer = (*Service)(nil)
)

// New returns the service of an instance. Nothing is sent before Run.
func New(set Settings, d Deps) *Service {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Random == nil {
		d.Random = rand.Reader
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.States == nil {
		d.States = func(ctx context.Context, _ int64, devices []int64) (found map[int64]*store.DeviceState, err error) {
			err = d.Store.Read(ctx, func(tx store.Tx) (err error) {
				found, err = store.DeviceStatesOf(tx, devices)
				return err
			})
			return found, err
		}
	}
	if d.Gone == nil {
		d.Gone = func(int64) bool { return false }
	}
	s := &Service{Events: hub.New[Command]("commands", d.Registerer), deps: d, m: newMetrics(d.Registerer), slots: map[int64]*slot{}, inMaking: map[int64]bool{}, wake: make(chan struct{}, 1)}
	s.Set(set)
	return s
}

// Set changes the settings while the service runs.
func (s *Service) Set(set Settings) {
	setting.FillDefaults(&set)
	s.set.Store(&set)
	s.nudge()
}

// Settings returns the effective settings.
func (s *Service) Settings() Settings { return *s.settings() }

func (s *Service) settings() *Settings { return s.set.Load() }

// Carry adds a carrier. All are added before Run.
func (s *Service) Carry(c Carrier) {
	s.mu.Lock()
	s.carriers = append(s.carriers, c)
	s.mu.Unlock()
}

// nonce returns the name of a dispatch. It identifies, and is no counter.
func (s *Service) nonce() string {
	var b [12]byte
	_, _ = io.ReadFull(s.deps.Random, b[:]) // crypto/rand never fails
	return hex.EncodeToString(b[:])
}

// Answer implements Answerer.
func (s *Service) Answer(tx store.Tx, r Response) (Answered, error) {
	faults.Point("command.answer")
	c, err := commands.Get(tx, r.TenantID, r.Token)
	if err != nil {
		return NoSuch, err
	}
	x := s.changes(tx)
	done, err := x.answer(c, &r)
	if err != nil {
		return done, err
	}
	tx.OnCommit(func() {
		faults.Point("command.answered")
		if done != NoSuch || !r.Again {
			s.m.answers[done].Inc()
		}
		if done == Moved {
			s.landed(c.DeviceID, c.Nonce, true)
		}
		x.publish()
	})
	return done, nil
}

// maxRemoved bounds how many commands of a device are cancelled with it, at a time.
const maxRemoved = 500

// RemoveDevice cancels the commands of a device with the device: it is a registry.Removal.
func (s *Service) RemoveDevice(tx store.Tx, _, device int64) error {
	x := s.changes(tx)
	for {
		found, err := commands.OpenOf(tx, device, maxRemoved)
		if err != nil {
			return err
		}
		for _, c := range found {
			if _, err := x.move(c, remove, nil); err != nil {
				return err
			}
		}
		if len(found) < maxRemoved {
			break
		}
	}
	tx.OnCommit(x.publish)
	return nil
}

// write runs fn with the moves of one transaction of its own, and publishes them.
func (s *Service) write(ctx context.Context, fn func(x *changes) error) error {
	return s.writeAll(ctx, fn)[0]
}

// writeAll does as write for each of some functions, which share commits where they can.
func (s *Service) writeAll(ctx context.Context, fns ...func(x *changes) error) []error {
	all, writes := make([]*changes, len(fns)), make([]func(store.Tx) error, len(fns))
	for i, fn := range fns {
		writes[i] = func(tx store.Tx) error {
			x := s.changes(tx)
			x.tally, all[i] = commands.Tally{}, x
			if err := fn(x); err != nil {
				return err
			}
			return x.tally.Write(tx)
		}
	}
	errs := s.deps.Store.WriteAll(ctx, store.Durable, writes...)
	for i, err := range errs {
		if err == nil {
			all[i].publish()
		}
	}
	return errs
}

// metrics of the package.
type metrics struct {
	moves         *prometheus.CounterVec
	held          prometheus.Counter
	released      prometheus.Counter
	undeliverable prometheus.Counter
	claimsLost    prometheus.Counter
	straight      prometheus.Counter
	readErrors    prometheus.Counter
	stranded      *prometheus.CounterVec
	rejected      *prometheus.CounterVec
	stopped       prometheus.Counter
	errors        prometheus.Counter
	answers       [answers]prometheus.Counter
	open          *prometheus.GaugeVec
	queue         prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_commanddelivery_" + name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_commanddelivery_" + name, Help: help}, []string{label})
	}
	m := &metrics{
		moves:         vec("moves_total", "Moves of commands, by the state that they led to.", "state"),
		held:          counter("holds_placed_total", "Commands that were HELD since their device was absent."),
		released:      counter("holds_released_total", "HELD commands that were released since their device was back."),
		undeliverable: counter("undeliverable_total", "Commands that FAILED since their device's transport cannot deliver them."),
		claimsLost:    counter("claims_lost_total", "Claims that found no command to send any more."),
		straight:      counter("straight_total", "Commands that left with the transaction that made them."),
		readErrors:    counter("presence_read_errors_total", "Reads of presence that failed; commands were dispatched without it."),
		stranded:      vec("stranded_recovered_total", "SENT commands whose end was not reported, by what they became (HELD, PARKED).", "disposition"),
		rejected:      vec("rejected_total", "Commands that were not made, by code.", "code"),
		stopped:       counter("batches_stopped_total", "Batches that stopped because too many of their commands failed."),
		errors:        counter("write_errors_total", "Transactions of the delivery that failed and are tried again."),
		open:          prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_commanddelivery_open", Help: "Commands that are not final, by state, as of the newest sweep."}, []string{"state"}),
		queue:         prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_commanddelivery_queue", Help: "Claims, ends and wakes that wait for their transaction."}),
	}
	responses := vec("responses_total", "Answers of devices, by outcome.", "outcome")
	for a := range answers {
		m.answers[a] = responses.WithLabelValues(a.String())
	}
	for _, st := range model.CommandStates() {
		m.moves.WithLabelValues(string(st))
		if !st.Final() {
			m.open.WithLabelValues(string(st))
		}
	}
	for _, code := range []string{NotJSON, MetadataNotJSON, BadExpiry, NoDevice, NotInVocabulary, BadParameters, TokenInUse, HeldCeiling, Rejected,
		BatchAmbiguous, BatchTooLarge, BatchUnusable, BatchPartial} {
		m.rejected.WithLabelValues(code)
	}
	m.stranded.WithLabelValues(string(held))
	m.stranded.WithLabelValues(string(parked))
	if reg != nil {
		reg.MustRegister(m.moves, m.held, m.released, m.undeliverable, m.claimsLost, m.straight, m.readErrors, m.stranded, m.rejected, m.stopped, m.errors, m.open, m.queue, responses)
	}
	return m
}
