package edge

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"weir/internal/carry"
	"weir/internal/edgewire"
	"weir/internal/ranges"
	"weir/internal/smallfile"
	"weir/model"
	"weir/spool"
)

// What the link does not take is carried by hand: Export writes it into a file, a Weir above takes that in, and the next hello says so. Nothing is trimmed
// before.

const (
	carryName    = "carry.json"
	maxCarryFile = 64 << 10
)

// carryFile is what is kept of the key to which an export is sealed.
type carryFile struct {
	Version int             `json:"version"`
	Key     carry.PublicKey `json:"key"`
}

// ExportOptions say what goes into a file.
type ExportOptions struct {
	// Since is from which receive time on, also what the broker above has acknowledged, as far as the log still has it; zero: what waits for
	// the broker above.
	Since time.Time `json:"since,omitzero"`
	// Plain leaves the file readable by anybody.
	Plain bool `json:"plain,omitempty"`
}

// Exported says what a file holds.
type Exported struct {
	InstallID string       `json:"installId"`
	Messages  uint64       `json:"messages"`
	First     uint64       `json:"first,omitempty"` // number
	Last      uint64       `json:"last,omitempty"`
	Oldest    *time.Time   `json:"oldest,omitempty"` // receive time
	Newest    *time.Time   `json:"newest,omitempty"`
	Lost      model.Offset `json:"lost,omitempty"` // messages that could not be read after damage to the disk
	Frames    uint64       `json:"frames"`
	Sum       string       `json:"sha256"`
	// Key is the id of the key to which the file is sealed, "" for a plain one.
	Key string `json:"key,omitempty"`
}

// Export writes messages as they would be sent into a file for the Weir above, see package carry. It changes nothing of what waits. Without a carry
// key, and while the time of a message is not known, it is refused as *model.Error.
func (e *Edge) Export(ctx context.Context, w io.Writer, o ExportOptions) (*Exported, error) {
	h := carry.Header{Instance: e.cfg.InstanceID, Install: e.InstallID(), Machine: e.machine(), Version: e.deps.Version, Made: time.Now().UTC()}
	if tenant, _, ok := cutTenant(e.cfg.Uplink.Username); ok && e.cfg.AgentID != "" {
		h.Tenant, h.Edge = tenant, e.cfg.AgentID
	}
	key := carry.PublicKey("")
	if !o.Plain {
		known := e.carry.Load()
		if known == nil {
			return nil, &model.Error{Code: model.CodeConflict, Message: "this edge has no key to which an export could be sealed: it gets it from a Weir above, over TLS, when it signs in",
				Hint: "let it connect once, or write a file that is not sealed: --plain"}
		}
		key = *known
	}
	out, err := carry.NewWriter(w, h, key)
	if err != nil {
		return nil, err
	}
	x := &export{e: e, o: o, w: out, done: &Exported{InstallID: h.Install}}
	if key != "" {
		x.done.Key = key.ID()
	}
	if err := x.all(ctx); err != nil {
		return nil, err
	}
	totals, err := out.Close()
	x.done.Messages, x.done.Frames, x.done.Sum = totals.Messages, totals.Frames, totals.Sum
	return x.done, err
}

// export is an export under way.
type export struct {
	e    *Edge
	o    ExportOptions
	w    *carry.Writer
	done *Exported

	number uint64 // of the newest message that was read
}

// all writes what the log had when it began; of a platform what it had applied.
func (x *export) all(ctx context.Context) error {
	first, last := x.e.spool.Bounds()
	if x.e.deps.Beside != nil {
		last = x.e.book.reached()
	}
	from := x.begins(!x.o.Since.IsZero(), first)
	for from <= last {
		next, err := x.stretch(ctx, from, last)
		damage, damaged := errors.AsType[*spool.DamageError](err)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, spool.ErrTrimmed): // the broker above has taken them meanwhile
			oldest, _ := x.e.spool.Bounds()
			if from = x.begins(false, oldest); from <= next {
				return err
			}
		case damaged && damage.Next > next:
			x.done.Lost += min(damage.Next, last+1) - next
			from = damage.Next
		default:
			return err
		}
	}
	return nil
}

// begins returns the offset from which on the log is read: behind the position, or far back. The messages of a platform are counted from there on.
func (x *export) begins(back bool, first model.Offset) model.Offset {
	f := x.e.forward
	f.mu.Lock()
	defer f.mu.Unlock()
	at := place{f.position, f.number}
	switch {
	case back && x.e.deps.Beside == nil:
		at.At = first - 1
	case back:
		for _, p := range f.marks.all {
			if p.At+1 >= first && p.At < at.At {
				at = p
				break
			}
		}
	}
	x.number = at.Number
	return max(at.At+1, first)
}

// stretch writes from an offset on up to another one, and returns the next offset with an error.
func (x *export) stretch(ctx context.Context, from, last model.Offset) (model.Offset, error) {
	r, err := x.e.spool.Reader(from)
	if err != nil {
		return from, err
	}
	defer r.Close()
	for from <= last {
		if err := ctx.Err(); err != nil {
			return from, err
		}
		b, err := r.TryNext()
		if err != nil || b == nil {
			return from, err
		}
		for i, record := range b.Records {
			at := b.First + model.Offset(i)
			if at < from || at > last {
				continue
			}
			if err := x.one(b.Epoch, at, record.Data); err != nil {
				return from, err
			}
		}
		from = b.Last() + 1
	}
	return from, nil
}

// one writes a record as the message that would be sent, under the number that load gives it.
func (x *export) one(epoch uint32, at model.Offset, data []byte) error {
	f := &flight{at: at, epoch: epoch}
	var forwards bool
	var err error
	f.record, forwards, err = x.e.reads(at, data)
	if x.e.deps.Beside == nil {
		x.number = uint64(at)
	} else if f.epoch = x.e.epoch; forwards || err != nil {
		x.number++
	}
	switch f.number = x.number; {
	case err != nil:
		x.done.Lost++ // the forwarder makes it a dead letter
		return nil
	case !forwards:
		return nil
	}
	if f.doubtful && x.e.clock.doubt() {
		return &model.Error{Code: model.CodeConflict, Message: "messages wait that came while the time of day was not known, and it is not known now",
			Hint: "set the clock of this machine, and export again"}
	}
	received, isNew := x.e.clock.resolve(&f.record)
	if isNew { // the time must be the same when it is sent
		if err := x.e.keep(); err != nil {
			return err
		}
	}
	if !x.o.Since.IsZero() && received.Time().Before(x.o.Since) {
		return nil
	}
	m, err := x.e.forward.message(f, false)
	if err != nil {
		return err
	}
	d := x.done
	if d.First == 0 {
		d.First, d.Oldest = f.number, new(received.Time().UTC())
	}
	d.Last, d.Newest = f.number, new(received.Time().UTC())
	return x.w.Add(carry.Message{Epoch: f.epoch, Number: f.number, Received: int64(received), Topic: m.Topic, Payload: m.Payload})
}

// carryKey is the key to which exports are sealed; nil: none is known.
type carryKey struct {
	atomic.Pointer[carry.PublicKey]
}

// openCarryKey reads the key. A file that does not read is left out: the Weir above tells the key again.
func (e *Edge) openCarryKey() error {
	b, err := smallfile.Read(filepath.Join(e.cfg.Dir, carryName), maxCarryFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var f carryFile
	if json.Unmarshal(b, &f) == nil && f.Version == formatVersion && f.Key.Check() == nil {
		e.carry.Store(&f.Key)
	}
	return nil
}

// keepCarryKey keeps the key of the Weir above. Only TLS says whose it is.
func (e *Edge) keepCarryKey(key carry.PublicKey) {
	if known := e.carry.Load(); key == "" || !Secure(e.cfg.Uplink.BrokerURL) || known != nil && *known == key {
		return
	}
	if err := key.Check(); err != nil {
		e.log.Warn("the carry key of the Weir above is none", "error", err)
		return
	}
	if err := e.state.replace(carryName, &carryFile{Version: formatVersion, Key: key}); err != nil {
		e.log.Error("the carry key of the Weir above cannot be kept", "error", err)
		return
	}
	e.carry.Store(&key)
	e.log.Info("exports are sealed to the carry key of the Weir above", "key", key.ID())
}

// carried are numbers of the epoch that are above without having been sent.
type carried struct {
	install string
	epoch   uint32
	numbers ranges.Set
}

// wereCarried notes which numbers were carried by hand. They are not sent any more, and leave the log as if they had been. Nothing is in flight.
func (f *forwarder) wereCarried(w *edgewire.Welcome) {
	install := f.e.InstallID()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.carried = carried{install: install, epoch: f.e.epoch}
	if !w.Complete {
		return
	}
	now, _ := f.e.clock.time()
	f.handed = HandedOver{Install: install, Epoch: f.e.epoch, At: now, First: f.numbers.First, Position: f.number, Absent: slices.Clone(f.numbers.Absent), Above: w.Ranges, Gaps: f.uplink.gaps, Carried: w.Carried}
	_, numbers := w.Carried.Split(f.number + 1)
	for _, r := range numbers {
		if len(ranges.Lacking(r[0], r[1], w.Ranges)) == 0 { // it is not known as carried only
			f.carried.numbers = append(f.carried.numbers, r)
		}
	}
	if len(f.carried.numbers) == 0 {
		return
	}
	f.e.log.Info("messages were carried to the Weir above by hand: they are not sent", "messages", f.carried.numbers.Count(), "first", f.carried.numbers[0][0], "last", f.carried.numbers.Last())
	for _, x := range f.ring {
		f.endCarried(x)
	}
	f.queue = slices.DeleteFunc(f.queue, func(x *flight) bool { return x.stage == ended })
	if l := f.live; l != nil {
		for _, x := range l.ring {
			f.endCarried(x)
		}
		l.queue = slices.DeleteFunc(l.queue, func(x *flight) bool { return x.stage == ended })
	}
}

// endCarried ends a record that was carried, with the lock held. It reports whether it was.
func (f *forwarder) endCarried(x *flight) bool {
	c := &f.carried
	if len(c.numbers) == 0 || x.stage != queued || x.epoch != c.epoch || f.e.InstallID() != c.install || !c.numbers.Has(x.number) {
		return false
	}
	x.stage, x.word = ended, "stored"
	f.e.metrics.carried.Inc()
	return true
}

// HandedOver is what had left the edge, and what of that was above, when a Weir above said that last. The zero At says that none has since the start.
type HandedOver struct {
	Install  string
	Epoch    uint32
	At       time.Time
	First    uint64     // number of the epoch
	Position uint64     // everything up to it had left
	Absent   ranges.Set // of that, what was never taken above: dead letters, and what was dropped
	Above    ranges.Set
	Gaps     ranges.Set // what neither side has any more
	Carried  ranges.Set // of Above, what was carried by hand
}

// HandedOver returns what had left the edge as of the newest hello.
func (e *Edge) HandedOver() HandedOver {
	e.forward.mu.Lock()
	defer e.forward.mu.Unlock()
	return e.forward.handed
}
