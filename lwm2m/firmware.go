package lwm2m

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/command"
	"weir/lwm2m/coap"
	"weir/lwm2m/content"
	"weir/model"
)

// A firmware update is a command whose exchange takes long: the device is given the package over the firmware object (5), is ordered to apply it, and the
// command ends when the device says, after its return, what came of it. What an update has come to is a row, so that it goes on after a restart.

// firmwareCommand is the command that updates the firmware of a device.
const (
	firmwareCommand = "lwm2m.firmwareUpdate"
	firmwareOp      = "firmwareUpdate" // in metrics
)

// Resources of the firmware object (LwM2M 1.1 core, E.6).
var (
	firmwareObject    = content.Path{5, 0}
	firmwarePackage   = content.Path{5, 0, 0}
	firmwareURI       = content.Path{5, 0, 1}
	firmwareApply     = content.Path{5, 0, 2}
	firmwareState     = content.Path{5, 0, 3}
	firmwareResult    = content.Path{5, 0, 5}
	firmwareProtocols = content.Path{5, 0, 8}
	firmwareDelivery  = content.Path{5, 0, 9}
	firmwareVersion   = content.Path{3, 0, 3}
)

// States of a firmware object.
const (
	stateIdle = iota
	stateDownloading
	stateDownloaded
	stateUpdating
)

// resultUpdated is the result of an update that was applied.
const resultUpdated = 1

// firmwareResults are the other results, by number; 0 is none.
var firmwareResults = map[int64]string{2: "not enough flash memory for the package", 3: "out of memory while it was downloaded", 4: "the connection was lost while it was downloaded",
	5: "the package failed its integrity check", 6: "the type of the package is not supported", 7: "the URI is invalid", 8: "the update failed", 9: "the protocol of the URI is not supported",
	10: "the update was cancelled", 11: "the update was deferred"}

// Delivery methods of a firmware object, and the number of CoAP over DTLS among its protocols.
const (
	deliverPull   = 0
	protocolCoAPS = 1
)

// phaseCancelling is the phase of an update whose command has ended and whose device is not notified yet. The others are those of model.Progress….
const phaseCancelling = "cancelling"

// phases are all, in their order.
var phases = []string{model.ProgressWaiting, model.ProgressTransferring, model.ProgressDownloaded, model.ProgressUpdating, phaseCancelling}

// Times and bounds of updates.
const (
	blockTimeout   = 60 * time.Second // of a block: a device may have to erase flash
	lookInterval   = 2 * time.Second  // of looks at the state of a device
	answerInterval = 5 * time.Second  // of tries to hand the end of an update to the log
	awaitInterval  = time.Second      // of looks whether a device is there
	pushRead       = 64 << 10         // what is read of an artifact at once
	maxIncomplete  = 5                // times that a device may lose its place in a transfer
	firmwarePath   = "fw"             // of what devices fetch
)

// Firmware is a firmware update that is under way, as it is stored.
type Firmware struct {
	Binding  model.Binding
	Command  string // token
	Nonce    string // of its dispatch
	Expires  model.Micros
	Artifact string // token
	Body     int64  // of the artifact
	Phase    string
	Pull     bool         // the device fetches the package
	Secret   string       // last part of the path at which it does
	Before   string       // firmware version before the update, "" where the device does not say it
	Began    model.Micros // the transfer; 0: it waits for its turn
	Updated  model.Micros // the device was ordered to apply it; 0: not yet
}

// Artifacts are the files that devices are given.
type Artifacts interface {
	// Find returns the artifact of a tenant with a token, nil when there is none.
	Find(ctx context.Context, tenant int64, token string) (*model.Artifact, error)
	// ReadAt reads bytes of an artifact, as io.ReaderAt does.
	ReadAt(ctx context.Context, a *model.Artifact, p []byte, off int64) (int, error)
}

// Reasons for which an update ends before its device says how.
var (
	errOver     = errors.New("the command has ended")
	errReplaced = errors.New("another update of the device has begun")
	errLate     = errors.New("lwm2m.firmware_timeout")
)

// errLong says that the end of a command comes later, by another way.
var errLong = errors.New("lwm2m: the exchange takes long")

// failure is what ends an update without success.
type failure struct{ text string }

func (e failure) Error() string { return e.text }

func failed(format string, args ...any) error { return failure{fmt.Sprintf(format, args...)} }

// updates are the firmware updates that are under way. The lock guards them, and the phases of their rows.
type updates struct {
	mu      sync.Mutex
	jobs    map[int64]*update // by device
	waiting []*update         // for their turn, the first first
	running int
	ended   *prometheus.CounterVec
}

// update is a firmware update.
type update struct {
	Firmware
	s      *Server
	stop   context.CancelCauseFunc
	ctx    context.Context
	turn   bool // it has one of the places
	told   bool // that it waits for one
	done   bool // its end is decided: what becomes of the command is of no interest any more
	part   []byte
	partAt int64
}

func newUpdates(s *Server, reg prometheus.Registerer) *updates {
	u := &updates{jobs: map[int64]*update{}, ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_lwm2m_firmware_ended_total",
		Help: "Firmware updates of LwM2M devices that have ended, by outcome (updated, failed, cancelled)."}, []string{"outcome"})}
	for _, outcome := range []string{"updated", "failed", "cancelled"} {
		u.ended.WithLabelValues(outcome)
	}
	if reg == nil {
		return u
	}
	reg.MustRegister(u.ended)
	for _, phase := range phases {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_lwm2m_firmware_jobs", Help: "Firmware updates of LwM2M devices that are under way, by state (waiting, transferring, downloaded, updating, cancelling).",
			ConstLabels: prometheus.Labels{"state": phase}}, func() float64 { return float64(u.in(phase)) }))
	}
	return u
}

func (u *updates) in(phase string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, j := range u.jobs {
		if j.Phase == phase {
			n++
		}
	}
	return n
}

// firmwareUpdate begins an update: its end comes later.
func (o *operation) firmwareUpdate() (any, error) {
	var token string
	if given, err := o.argument("artifact", &token); err != nil || !given {
		return nil, first(errors.Join(err, missing(given, "artifact")))
	}
	if err := o.rest(); err != nil {
		return nil, err
	}
	if o.s.deps.Artifacts == nil {
		return nil, wrong("there are no artifacts here")
	}
	a, err := o.s.deps.Artifacts.Find(o.sess.ctx, o.d.TenantID, token)
	if err != nil {
		return nil, fmt.Errorf("the artifact cannot be looked up: %w", err)
	}
	if a == nil {
		return nil, wrong("artifact: there is no %.128q: see weir artifact list", token)
	}
	o.s.mu.Lock()
	has := o.r.has(firmwareObject)
	o.s.mu.Unlock()
	if !has {
		return nil, wrong("the device has no firmware object: it does not list /5/0")
	}
	return nil, o.s.beginUpdate(Firmware{Binding: o.sess.binding, Command: o.d.Token, Nonce: o.d.Nonce, Expires: o.d.Expires, Artifact: a.Token, Body: a.Body, Phase: model.ProgressWaiting})
}

// beginUpdate stores an update and lets it wait for its turn. It returns errLong where that is done.
func (s *Server) beginUpdate(row Firmware) error {
	u := s.updates
	u.mu.Lock()
	before := u.jobs[row.Binding.DeviceID]
	var stop context.CancelCauseFunc
	if before != nil {
		stop = before.stop
	}
	if before != nil && before.Phase != phaseCancelling && before.Command != row.Command {
		u.mu.Unlock()
		return wrong("a firmware update of the device is under way: the command %s", before.Command)
	}
	u.mu.Unlock()
	if stop != nil {
		stop(errReplaced)
	}
	if err := s.deps.Store.Save(s.ctx, true, &Changes{Firmware: []Firmware{row}}); err != nil {
		return fmt.Errorf("the update cannot be stored: %w", err)
	}
	s.enqueue(row)
	s.nextUpdates()
	return errLong
}

// enqueue lets an update wait for its turn.
func (s *Server) enqueue(row Firmware) {
	j := &update{Firmware: row, s: s}
	j.ctx, j.stop = context.WithCancelCause(s.ctx)
	u := s.updates
	u.mu.Lock()
	defer u.mu.Unlock()
	u.jobs[row.Binding.DeviceID] = j
	u.waiting = append(u.waiting, j)
}

// nextUpdates begins those updates that wait, as many as may be under way at once.
func (s *Server) nextUpdates() {
	u, most := s.updates, s.settings.Load().FirmwareConcurrency
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.waiting) > 0 && (u.running < most || u.waiting[0].Phase == phaseCancelling) {
		j := u.waiting[0]
		u.waiting = u.waiting[1:]
		if j.Phase != phaseCancelling {
			j.turn = true
			u.running++
		}
		s.begin(j.run) // else the server stops, and the next start goes on
	}
	for _, j := range u.waiting {
		if j.Phase == model.ProgressWaiting {
			s.tellWaiting(j)
		}
	}
}

// tellWaiting reports once that an update waits for its turn: its command does not count as stranded then.
func (s *Server) tellWaiting(j *update) {
	if j.told {
		return
	}
	j.told = true
	s.begin(func() {
		s.carrier.desk.Progress(j.progress(model.ProgressWaiting, func(live bool) {
			if !live {
				j.stop(errOver)
			}
		}))
	})
}

func (j *update) progress(text string, done func(bool)) command.Progress {
	return command.Progress{DeviceID: j.Binding.DeviceID, Token: j.Command, Nonce: j.Nonce, Carrier: carrierName, Text: text, Done: done}
}

// Over implements command.Follower.
func (c *carrier) Over(device int64, token, nonce string) {
	u := c.s.updates
	u.mu.Lock()
	defer u.mu.Unlock()
	if j := u.jobs[device]; j != nil && j.Command == token && j.Nonce == nonce && !j.done {
		j.stop(errOver)
		if i := slices.Index(u.waiting, j); i >= 0 { // it has no turn to end in
			u.waiting = slices.Delete(u.waiting, i, i+1)
			c.s.begin(j.run)
		}
	}
}

var _ command.Follower = (*carrier)(nil)

// run performs an update, and ends it.
func (j *update) run() {
	s := j.s
	phase := j.phase()
	var result any
	var sess *session
	var err error
	if phase != phaseCancelling {
		ctx, cancel := j.deadline()
		result, sess, err = j.perform(ctx)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		cancel()
	} else {
		err = errOver
	}
	s.updates.mu.Lock()
	j.done = true
	if j.turn {
		j.turn = false
		s.updates.running--
	}
	s.updates.mu.Unlock()
	defer s.nextUpdates()
	switch {
	case errors.Is(err, errReplaced):
		return
	case s.ctx.Err() != nil: // the next start goes on
		return
	case errors.Is(err, errOver):
		s.begin(func() { j.abandon("cancelled", nil) })
		return
	case errors.Is(err, errLate):
		j.abandon("failed", failed("the update was not complete within lwm2m.firmware_timeout (%s): it was %s", s.settings.Load().FirmwareTimeout, j.phase()))
		return
	}
	outcome := "updated"
	if err != nil {
		outcome = "failed"
	}
	if j.end(outcome, sess, result, err) {
		j.forget()
	}
}

// deadline is the time that an update has.
func (j *update) deadline() (context.Context, context.CancelFunc) {
	began := j.Began
	if began == 0 {
		began = model.MicrosOf(j.s.now())
	}
	left := j.s.settings.Load().FirmwareTimeout - j.s.now().Sub(began.Time())
	return context.WithTimeoutCause(j.ctx, left, errLate)
}

func (j *update) phase() string {
	j.s.updates.mu.Lock()
	defer j.s.updates.mu.Unlock()
	return j.Phase
}

// enter stores what an update has come to, and reports it. errOver: the command has ended meanwhile.
func (j *update) enter(ctx context.Context, phase string, change func(*Firmware)) error {
	row := j.Firmware
	row.Phase = phase
	if change != nil {
		change(&row)
	}
	if err := j.s.deps.Store.Save(ctx, true, &Changes{Firmware: []Firmware{row}}); err != nil {
		return fmt.Errorf("what the update has come to cannot be stored: %w", err)
	}
	j.s.updates.mu.Lock()
	j.Firmware = row
	j.s.updates.mu.Unlock()
	return j.tell(ctx, phase)
}

// tell reports how far an update is, and waits until that is stored.
func (j *update) tell(ctx context.Context, phase string) error {
	said := make(chan bool, 1)
	j.s.carrier.desk.Progress(j.progress(phase, func(live bool) { said <- live }))
	select {
	case live := <-said:
		if !live {
			j.stop(errOver)
			return errOver
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end hands what the device says of an update to the log, or, where it has said nothing, ends the command. It returns false where the server stops before
// that is done: the next start looks at the device again.
func (j *update) end(outcome string, sess *session, result any, err error) bool {
	s := j.s
	s.updates.ended.WithLabelValues(outcome).Inc()
	if err != nil {
		s.metrics.failed.WithLabelValues(firmwareOp).Inc()
	}
	d := command.Dispatch{TenantID: j.Binding.TenantID, DeviceID: j.Binding.DeviceID, Device: j.Binding.Device, Token: j.Command, Nonce: j.Nonce, Name: firmwareCommand}
	if sess == nil {
		s.carrier.desk.Ended(command.Receipt{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Carrier: carrierName, End: command.Undeliverable, Text: err.Error()})
		return true
	}
	payload, mistake := marshalResult(result)
	if err == nil {
		err = mistake
	}
	for !s.carrier.answer(sess, d, payload, err) { // the log is full, perhaps for long
		if pause(s.ctx, answerInterval) != nil {
			return false
		}
	}
	s.carrier.desk.Ended(command.Receipt{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Carrier: carrierName, End: command.Acknowledged})
	return true
}

// forget removes what is stored of an update, and the update where it is still the one of its device.
func (j *update) forget() {
	s := j.s
	if err := s.deps.Store.Save(s.ctx, true, &Changes{FirmwareEnded: []Firmware{j.Firmware}}); err != nil && s.ctx.Err() == nil {
		s.log.Warn("a firmware update that has ended could not be removed; it is looked at again after the next start", "device", j.Binding.Device, "error", err)
	}
	s.updates.mu.Lock()
	if s.updates.jobs[j.Binding.DeviceID] == j {
		delete(s.updates.jobs, j.Binding.DeviceID)
	}
	s.updates.mu.Unlock()
}

// abandon ends an update for its device as well, which gets as long as an update may take to be notified. A device that applies a package
// already, or that was given nothing, is not notified. why, if not nil, is what the command ends with.
func (j *update) abandon(outcome string, why error) {
	s := j.s
	phase := j.phase()
	if why != nil {
		j.end(outcome, nil, nil, why) // it waits for nothing
	} else {
		s.updates.ended.WithLabelValues(outcome).Inc()
	}
	if phase == model.ProgressTransferring || phase == model.ProgressDownloaded || phase == phaseCancelling {
		base, stop := context.WithCancelCause(s.ctx)
		defer stop(nil)
		row := j.Firmware
		row.Phase = phaseCancelling
		s.updates.mu.Lock()
		j.Firmware, j.stop = row, stop
		s.updates.mu.Unlock()
		if err := s.deps.Store.Save(base, true, &Changes{Firmware: []Firmware{row}}); err != nil && s.ctx.Err() == nil {
			s.log.Warn("the end of a firmware update could not be stored", "device", j.Binding.Device, "error", err)
		}
		ctx, cancel := context.WithTimeout(base, s.settings.Load().FirmwareTimeout)
		err := j.reset(ctx)
		cancel()
		switch {
		case s.ctx.Err() != nil, errors.Is(context.Cause(base), errReplaced):
			return
		case err != nil:
			s.log.Warn("a device could not be notified that its firmware update is called off", "device", j.Binding.Device, "tenant", j.Binding.Tenant, "error", err)
		}
	}
	j.forget()
}

// reached waits for a session of the device, which may be asleep or on its way back.
func (j *update) reached(ctx context.Context) (*session, []uint16, error) {
	s := j.s
	for {
		s.mu.Lock()
		r := s.byDevice[j.Binding.DeviceID]
		there := r != nil && !r.sleeps(s.now(), s.settings.Load().Awake)
		var formats []uint16
		if r != nil {
			formats = r.formats()
		}
		s.mu.Unlock()
		if there {
			wait, cancel := context.WithTimeout(ctx, wakeTimeout)
			sess := s.reach(wait, r)
			cancel()
			if sess != nil && sess.ctx.Err() == nil {
				return sess, formats, nil
			}
		}
		if err := pause(ctx, awaitInterval); err != nil {
			return nil, nil, err
		}
	}
}

// pause waits, or returns why ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// request sends one request, as soon as the device is there; it is sent again while the device does not answer, until ctx ends.
func (j *update) request(ctx context.Context, make func() *coap.Message) (*coap.Message, *session, error) {
	for {
		sess, _, err := j.reached(ctx)
		if err != nil {
			return nil, nil, err
		}
		one, cancel := context.WithTimeout(ctx, blockTimeout)
		m := make()
		m.Token = newToken()
		answer, err := sess.exchange(one, m)
		cancel()
		if err == nil {
			return answer, sess, nil
		}
		j.unanswered(sess, err)
		if err := pause(ctx, awaitInterval); err != nil {
			return nil, nil, err
		}
	}
}

// unanswered notes that a device has not answered: one in queue mode sleeps.
func (j *update) unanswered(sess *session, err error) {
	if !errors.Is(err, errNoAnswer) {
		return
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if r := j.s.byDevice[j.Binding.DeviceID]; r != nil && r.session == sess && r.Queue {
		r.asleep = true
	}
}

// value reads a resource; ok is false where the device has none, or does not write it as something that is understood.
func (j *update) value(ctx context.Context, path content.Path) (records []content.Record, sess *session, ok bool, err error) {
	for {
		sess, formats, err := j.reached(ctx)
		if err != nil {
			return nil, nil, false, err
		}
		records, code, err := j.s.read(sess, path, formats)
		switch {
		case err == nil && code.Success() && len(records) > 0:
			return records, sess, true, nil
		case err == nil, !errors.Is(err, errNoAnswer) && !errors.Is(err, errEnded) && !errors.Is(err, errReset):
			return nil, sess, false, nil
		}
		j.unanswered(sess, err)
		if err := pause(ctx, awaitInterval); err != nil {
			return nil, nil, false, err
		}
	}
}

func (j *update) number(ctx context.Context, path content.Path) (n int64, sess *session, ok bool, err error) {
	records, sess, ok, err := j.value(ctx, path)
	if err != nil || !ok {
		return 0, sess, false, err
	}
	v, ok := content.As(content.Integer, records[0].Value)
	return v.Int, sess, ok, nil
}

func (j *update) text(ctx context.Context, path content.Path) (string, error) {
	records, _, ok, err := j.value(ctx, path)
	if err != nil || !ok {
		return "", err
	}
	return content.FormatText(records[0].Value), nil
}

// perform brings an update to its end. sess is the one in which the device has said it.
func (j *update) perform(ctx context.Context) (result any, sess *session, err error) {
	a, err := j.s.deps.Artifacts.Find(ctx, j.Binding.TenantID, j.Artifact)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("the artifact cannot be looked up: %w", err)
	case a == nil || a.Body != j.Body:
		return nil, nil, failed("the artifact %q is gone", j.Artifact)
	}
	phase := j.phase()
	if phase == model.ProgressWaiting { // so that it does not count as stranded, however long the device is away
		if err := j.tell(ctx, phase); err != nil {
			return nil, nil, err
		}
	}
	if phase == model.ProgressWaiting || phase == model.ProgressTransferring {
		if sess, err = j.transfer(ctx, a, phase == model.ProgressWaiting); err != nil {
			return nil, sess, err
		}
		if err := j.enter(ctx, model.ProgressDownloaded, nil); err != nil {
			return nil, nil, err
		}
	}
	if j.phase() == model.ProgressDownloaded {
		if err := j.enter(ctx, model.ProgressUpdating, func(row *Firmware) { row.Updated = model.MicrosOf(j.s.now()) }); err != nil {
			return nil, nil, err
		}
	} else if err := j.tell(ctx, model.ProgressUpdating); err != nil { // after a restart
		return nil, nil, err
	}
	return j.apply(ctx, a)
}

// transfer gives the device the package, and returns once it has it. fresh says that nothing was given to it yet.
func (j *update) transfer(ctx context.Context, a *model.Artifact, fresh bool) (*session, error) {
	if fresh {
		if sess, err := j.prepare(ctx); err != nil {
			return sess, err
		}
	} else if err := j.tell(ctx, model.ProgressTransferring); err != nil {
		return nil, err
	}
	state, sess, ok, err := j.number(ctx, firmwareState)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return sess, failed("the device does not say the state of its firmware object (/5/0/3)")
	case !fresh && state == stateDownloaded:
		return sess, nil
	case !fresh && state == stateDownloading && j.Pull:
	case j.Pull:
		uri := strings.TrimSuffix(j.s.settings.Load().PublicURI, "/") + "/" + firmwarePath + "/" + j.Secret
		if sess, err := j.write(ctx, firmwareURI, content.Text, []byte(uri)); err != nil {
			return sess, err
		}
	default:
		if sess, err := j.push(ctx, a); err != nil {
			return sess, j.because(ctx, err)
		}
	}
	return j.downloaded(ctx)
}

// because adds what the device says of a transfer that it has refused.
func (j *update) because(ctx context.Context, err error) error {
	if !errors.As(err, new(failure)) {
		return err
	}
	n, _, ok, failed := j.number(ctx, firmwareResult)
	if why := firmwareResults[n]; failed == nil && ok && why != "" {
		return failure{fmt.Sprintf("%v (/5/0/5 is %d: %s)", err, n, why)}
	}
	return err
}

// prepare finds out how the device takes its package, and sees to it that it has none of before.
func (j *update) prepare(ctx context.Context) (*session, error) {
	pull := false
	if n, _, ok, err := j.number(ctx, firmwareDelivery); err != nil {
		return nil, err
	} else if ok && n == deliverPull {
		pull = true
	}
	if pull {
		records, sess, ok, err := j.value(ctx, firmwareProtocols)
		if err != nil {
			return nil, err
		}
		if ok && !slices.ContainsFunc(records, func(r content.Record) bool { n, ok := r.Value.Number(); return ok && n == protocolCoAPS }) {
			return sess, failed("the device fetches its firmware itself, and not over CoAP with DTLS (/5/0/8)")
		}
		if j.s.settings.Load().PublicURI == "" {
			return sess, failed("the device fetches its firmware itself (/5/0/9 is 0): lwm2m.public_uri must say where it reaches this server")
		}
	}
	before, err := j.text(ctx, firmwareVersion)
	if err != nil {
		return nil, err
	}
	if err := j.enter(ctx, model.ProgressTransferring, func(row *Firmware) {
		row.Pull, row.Before, row.Secret = pull, before, newLocation()
		row.Began = model.MicrosOf(j.s.now())
	}); err != nil {
		return nil, err
	}
	state, sess, ok, err := j.number(ctx, firmwareState)
	switch {
	case err != nil || !ok || state == stateIdle:
		return sess, err
	case state == stateUpdating:
		return sess, failed("the device applies another firmware (/5/0/3 is 3)")
	}
	if err := j.reset(ctx); err != nil {
		return nil, err
	}
	if state, sess, ok, err = j.number(ctx, firmwareState); err == nil && ok && state != stateIdle {
		return sess, failed("the device keeps a package of before (/5/0/3 is %d)", state)
	}
	return sess, err
}

// reset has the device throw away what it was given (LwM2M 1.1, E.6: an empty URI, a package of one zero byte).
func (j *update) reset(ctx context.Context) error {
	path, format, body := firmwarePackage, content.Opaque, []byte{0}
	if j.Pull {
		path, format, body = firmwareURI, content.Text, nil
	}
	_, err := j.write(ctx, path, format, body)
	return err
}

// write writes a resource as a whole.
func (j *update) write(ctx context.Context, path content.Path, format uint16, body []byte) (*session, error) {
	answer, sess, err := j.request(ctx, func() *coap.Message {
		m := &coap.Message{Code: coap.PUT, Payload: body}
		m.AddPath(coap.URIPath, path.Segments()...)
		m.AddUint(coap.ContentFormat, uint32(format))
		return m
	})
	if err == nil && !answer.Code.Success() {
		err = failed("the device refuses what is written to %s: %v", path, refusedBy(answer))
	}
	return sess, err
}

// push writes the package in blocks (RFC 7959 section 2.5). A device that has lost its place is given it from the start.
func (j *update) push(ctx context.Context, a *model.Artifact) (sess *session, err error) {
	size := blockSize
	for tries := 0; ; tries++ {
		var code coap.Code
		if sess, code, size, err = j.pushFrom(ctx, a, size); err != nil || code.Success() {
			return sess, err
		}
		if code != coap.Incomplete || tries == maxIncomplete {
			return sess, failed("the device refuses the package: %s", code)
		}
	}
}

// pushFrom writes the package once. The code is that of the last answer; size is the size of the blocks that the device has agreed to.
func (j *update) pushFrom(ctx context.Context, a *model.Artifact, size int) (sess *session, code coap.Code, agreed int, err error) {
	var in *session
	for at := int64(0); ; {
		end := min(at+int64(size), a.Bytes)
		body, err := j.bytes(ctx, a, at, int(end-at))
		if err != nil {
			return nil, 0, size, err
		}
		answer, sess, err := j.request(ctx, func() *coap.Message {
			m := &coap.Message{Code: coap.PUT, Payload: body}
			m.AddPath(coap.URIPath, firmwarePackage.Segments()...)
			m.AddUint(coap.ContentFormat, uint32(content.Opaque))
			if a.Bytes > int64(size) || at > 0 {
				m.AddBlock(coap.Block1, coap.Block{Number: uint32(at / int64(size)), More: end < a.Bytes, Size: size})
			}
			if at == 0 {
				m.AddUint(coap.Size1, uint32(a.Bytes))
			}
			return m
		})
		if err != nil {
			return nil, 0, size, err
		}
		if in == nil {
			in = sess
		}
		block, has := answer.Block(coap.Block1)
		switch {
		case sess != in: // the blocks before this one were of another session, which ended meanwhile
			return sess, coap.Incomplete, size, nil
		case answer.Code == coap.TooLarge && has && block.Size < size && at == 0: // RFC 7959 section 2.9.3
			size = block.Size
			continue
		case answer.Code != coap.Continue || end == a.Bytes:
			if !answer.Code.Success() && answer.Code != coap.Incomplete {
				return sess, answer.Code, size, failed("the device refuses the package: %v", refusedBy(answer))
			}
			return sess, answer.Code, size, nil
		}
		at = end
		if has && block.Size < size {
			at, size = int64(block.Size)*(end/int64(block.Size)), block.Size
		}
	}
}

// bytes are n bytes of the package. It is used by one goroutine at a time: that of the update, or of the device that fetches.
func (j *update) bytes(ctx context.Context, a *model.Artifact, at int64, n int) ([]byte, error) {
	if at < j.partAt || at+int64(n) > j.partAt+int64(len(j.part)) {
		part := make([]byte, pushRead)
		got, err := j.s.deps.Artifacts.ReadAt(ctx, a, part, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the artifact cannot be read: %w", err)
		}
		if got < n {
			return nil, failed("the artifact %q is gone", j.Artifact)
		}
		j.part, j.partAt = part[:got], at
	}
	return j.part[at-j.partAt:][:n], nil
}

// downloaded waits until the device says that it has the package.
func (j *update) downloaded(ctx context.Context) (*session, error) {
	for {
		state, sess, ok, err := j.number(ctx, firmwareState)
		if err != nil {
			return nil, err
		}
		if ok && state == stateDownloaded {
			return sess, nil
		}
		if n, sess, ok, err := j.number(ctx, firmwareResult); err != nil {
			return nil, err
		} else if why := firmwareResults[n]; ok && state == stateIdle && why != "" {
			return sess, failed("the device has refused the package: %s (/5/0/5 is %d)", why, n)
		}
		if err := pause(ctx, lookInterval); err != nil {
			return nil, err
		}
	}
}

// apply tells the device to apply the package, and waits until it says what came of it. An answer to the order alone says nothing.
func (j *update) apply(ctx context.Context, a *model.Artifact) (any, *session, error) {
	told := false
	for {
		state, sess, ok, err := j.number(ctx, firmwareState)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case ok && state == stateDownloaded && !told:
			answer, in, err := j.request(ctx, func() *coap.Message {
				m := &coap.Message{Code: coap.POST}
				m.AddPath(coap.URIPath, firmwareApply.Segments()...)
				return m
			})
			if err != nil {
				return nil, nil, err
			}
			if !answer.Code.Success() {
				return nil, in, failed("the device refuses to apply the package: %v", refusedBy(answer))
			}
			told = true
			continue
		case ok && state == stateIdle:
			n, in, ok, err := j.number(ctx, firmwareResult)
			if err != nil {
				return nil, nil, err
			}
			if why := firmwareResults[n]; ok && why != "" {
				return nil, in, failed("the device has not applied the package: %s (/5/0/5 is %d)", why, n)
			}
			version, err := j.text(ctx, firmwareVersion)
			if err != nil {
				return nil, nil, err
			}
			if done, err := j.judged(a, n, version); done {
				return map[string]any{"artifact": a.Token, "state": state, "result": n, "firmwareVersion": version, "before": j.Before}, sess, err
			}
		}
		if err := pause(ctx, lookInterval); err != nil {
			return nil, nil, err
		}
	}
}

// judged reports whether a device that is idle again has said enough. Its version counts where it says one: a device that forgets the result in its
// restart has applied the package if it has another version now, and one that reports success and has the version of before, which is not
// that of the package, has not.
func (j *update) judged(a *model.Artifact, result int64, version string) (done bool, err error) {
	same := version == "" || version == j.Before
	switch {
	case result == resultUpdated && version != "" && same && a.Version != "" && a.Version != version:
		return true, failed("the device reports success, yet its firmware version (/3/0/3) is %q as before, and that of the artifact is %q", version, a.Version)
	case result == resultUpdated:
		return true, nil
	}
	return !same, nil
}

// onFirmware serves the package to the device that is to fetch it (RFC 7959 section 2.4).
func (s *Server) onFirmware(sess *session, secret string, m *coap.Message) *coap.Message {
	s.updates.mu.Lock()
	j := s.updates.jobs[sess.binding.DeviceID]
	serves := j != nil && j.Pull && j.Secret == secret && j.Phase == model.ProgressTransferring
	s.updates.mu.Unlock()
	if !serves {
		return &coap.Message{Code: coap.NotFound}
	}
	a, err := s.deps.Artifacts.Find(sess.ctx, j.Binding.TenantID, j.Artifact)
	if err != nil || a == nil || a.Body != j.Body {
		return &coap.Message{Code: coap.Unavailable, Options: []coap.Option{{Number: coap.MaxAge, Value: []byte{10}}}}
	}
	block, has := m.Block(coap.Block2)
	if _, given := m.Get(coap.Block2); given && !has {
		return &coap.Message{Code: coap.BadOption}
	}
	size := blockSize
	if has {
		size = block.Size
	}
	at := int64(block.Number) * int64(size)
	if at >= a.Bytes {
		return &coap.Message{Code: coap.BadRequest}
	}
	end := min(at+int64(size), a.Bytes)
	body, err := j.bytes(sess.ctx, a, at, int(end-at))
	if err != nil {
		return &coap.Message{Code: coap.Unavailable, Options: []coap.Option{{Number: coap.MaxAge, Value: []byte{10}}}}
	}
	tag, _ := hex.DecodeString(a.SHA256[:16])
	answer := &coap.Message{Code: coap.Content, Payload: body}
	answer.Add(coap.ETag, tag)
	answer.AddUint(coap.ContentFormat, uint32(content.Opaque))
	answer.AddBlock(coap.Block2, coap.Block{Number: uint32(at / int64(size)), More: end < a.Bytes, Size: size})
	answer.AddUint(coap.Size2, uint32(a.Bytes))
	return answer
}

// fetches reports whether a request is one of a device that fetches its package: these are not bounded in their number a second.
func (s *Server) fetches(sess *session, m *coap.Message) bool {
	path := m.Texts(coap.URIPath)
	if m.Code != coap.GET || len(path) != 2 || path[0] != firmwarePath {
		return false
	}
	s.updates.mu.Lock()
	defer s.updates.mu.Unlock()
	j := s.updates.jobs[sess.binding.DeviceID]
	return j != nil && j.Pull && j.Secret == path[1] && j.Phase == model.ProgressTransferring
}

// restoreUpdate takes over an update of before the start.
func (s *Server) restoreUpdate(row Firmware) {
	if s.carrier == nil || s.deps.Artifacts == nil {
		return
	}
	s.enqueue(row)
}
