package command

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/commands"
)

// Batch is one command for many devices, as it is stored.
type Batch = model.CommandBatch

// Bounds of a batch.
const (
	MaxBatch   = 10_000 // devices
	MaxSamples = 100    // refusals of each code that are kept
	maxPace    = 100_000
)

// Codes of rejections of batches.
const (
	BatchAmbiguous = "BATCH_TARGET_AMBIGUOUS"
	BatchTooLarge  = "BATCH_TOO_LARGE"
	BatchUnusable  = "BATCH_GROUP_UNUSABLE"
	BatchPartial   = "BATCH_PARTIAL_REFUSED"
)

// BatchOrder asks for a batch. Exactly one of Devices and Group is given.
type BatchOrder struct {
	Token        string
	Name         string
	Payload      *string
	Metadata     *string
	ExpiresAt    *string  // RFC 3339; nil: the default life
	Devices      []string // tokens; nil: not given
	Group        *string
	GroupVersion *int64
	AllowPartial bool
	MaxPerMinute *int64   // at most so many commands have their turn in any minute; nil: all at once
	StopPercent  *float64 // of those that ended since it was made or resumed; nil: it never stops
}

// Refusal is a device that does not take the command of a batch.
type Refusal struct {
	Device string `gql:"deviceToken" json:"device"`
	Code   string `gql:"code" json:"code"`
	Reason string `gql:"reason" json:"reason"`
}

// RefusalCount is how many devices were refused for one reason.
type RefusalCount struct {
	Code  string `gql:"code" json:"code"`
	Count int64  `gql:"count" json:"count"`
}

// BatchRejection says why a batch was not made.
type BatchRejection struct {
	Code     string         `gql:"code"`
	Reason   string         `gql:"reason"`
	Resolved *int64         `gql:"resolved"` // devices, where it came so far
	Refusals []Refusal      `gql:"refusals"`
	Counts   []RefusalCount `gql:"refusalCounts"`
}

func rejectBatch(r *Rejection) *BatchRejection {
	return &BatchRejection{Code: r.Code, Reason: r.Reason, Refusals: []Refusal{}, Counts: []RefusalCount{}}
}

// Target are the devices of a group, or why it has none.
type Target struct {
	Devices []string
	Version *int64 // of a dynamic group
	Refused *Rejection
}

// Targets returns the devices of a group on behalf of a caller; version nil: the active one. It returns one more than limit where there are
// more.
type Targets func(ctx context.Context, by *model.Principal, group string, version *int64, limit int) (Target, error)

// OrderBatch makes a batch on behalf of a caller of the API. Exactly one of the batch and the rejection is not nil when err is nil. The
// same token returns the batch that was made with it.
func (s *Service) OrderBatch(ctx context.Context, by *model.Principal, o BatchOrder) (b *Batch, refused *BatchRejection, err error) {
	if err := checkBatch(&o); err != nil {
		return nil, nil, err
	}
	old, err := s.batch(ctx, by, o.Token)
	if err != nil || old != nil {
		return old, nil, err
	}
	b, accepted, refused, err := s.judgedBatch(ctx, by, &o)
	if err == nil && refused == nil {
		b, refused, err = s.makeBatch(ctx, by, b, accepted)
	}
	if refused != nil {
		s.m.rejected.WithLabelValues(refused.Code).Inc()
		b = nil
	}
	return b, refused, err
}

func checkBatch(o *BatchOrder) error {
	if err := model.CheckToken("token", o.Token); err != nil {
		return err
	}
	switch {
	case len(o.Token) > model.MaxToken-len("-10000"):
		return model.Invalid("token", "must leave room for the numbers of the commands: at most %d characters", model.MaxToken-len("-10000"))
	case o.MaxPerMinute != nil && (*o.MaxPerMinute < 1 || *o.MaxPerMinute > maxPace):
		return model.Invalid("maxPerMinute", "must be between 1 and %d", maxPace)
	case o.StopPercent != nil && !(*o.StopPercent > 0 && *o.StopPercent <= 100):
		return model.Invalid("stopAtFailedPercent", "must be above 0 and at most 100")
	}
	return nil
}

// batch returns a batch of the caller, nil for none. One that is being made is undecided.
func (s *Service) batch(ctx context.Context, by *model.Principal, token string) (b *Batch, err error) {
	err = store.Read(ctx, s.deps.Store, func(tx store.Tx) (err error) {
		b, err = commands.GetBatch(tx, by.TenantID, token)
		return err
	})
	if err == nil && b != nil && b.State == model.BatchMaking {
		return nil, model.Errorf(model.CodeUnavailable, "unavailable: the batch %q is being made; try again", token)
	}
	return b, err
}

// judgedBatch checks a batch and returns it with the devices that take its command.
func (s *Service) judgedBatch(ctx context.Context, by *model.Principal, o *BatchOrder) (b *Batch, accepted []member, refused *BatchRejection, err error) {
	if (o.Devices != nil) == (o.Group != nil) {
		return nil, nil, rejectBatch(reject(BatchAmbiguous, "exactly one of deviceTokens and groupToken must be given")), nil
	}
	if o.Group == nil && o.GroupVersion != nil {
		return nil, nil, rejectBatch(reject(BatchAmbiguous, "groupVersion is for a groupToken")), nil
	}
	now := model.MicrosOf(s.deps.Now())
	if r := texts(o.Payload, o.Metadata); r != nil {
		return nil, nil, rejectBatch(r), nil
	}
	expires, r := s.life(now, &Order{ExpiresAt: o.ExpiresAt})
	if r != nil {
		return nil, nil, rejectBatch(r), nil
	}
	b = &Batch{TenantID: by.TenantID, CreatedAt: now, UpdatedAt: now, Token: o.Token, Metadata: o.Metadata, Name: o.Name, Payload: o.Payload, TargetKind: model.BatchOfList,
		AllowPartial: o.AllowPartial, Expires: expires, State: model.BatchMaking}
	if o.MaxPerMinute != nil {
		b.MaxPerMinute = *o.MaxPerMinute
	}
	if o.StopPercent != nil {
		b.StopPercent = *o.StopPercent
	}
	devices := distinctTexts(o.Devices)
	if o.Group != nil {
		target, err := s.deps.Targets(ctx, by, *o.Group, o.GroupVersion, MaxBatch)
		if err != nil {
			return nil, nil, nil, err
		}
		if target.Refused != nil {
			return nil, nil, rejectBatch(reject(BatchUnusable, "%s: %s", target.Refused.Code, target.Refused.Reason)), nil
		}
		b.TargetKind, b.Group, b.GroupVersion, devices = model.BatchOfGroup, o.Group, target.Version, target.Devices
	}
	if len(devices) > MaxBatch {
		return nil, nil, rejectBatch(reject(BatchTooLarge, "a batch is for at most %d devices", MaxBatch)), nil
	}
	accepted, refusals, counts, err := s.sort(ctx, b, devices)
	if err != nil {
		return nil, nil, nil, err
	}
	b.Resolved, b.Accepted = int64(len(devices)), int64(len(accepted))
	if len(accepted) < len(devices) && !o.AllowPartial {
		return nil, nil, &BatchRejection{Code: BatchPartial, Reason: fmt.Sprintf("%d of %d devices do not take the command, and allowPartial is false", len(devices)-len(accepted), len(devices)),
			Resolved: &b.Resolved, Refusals: refusals, Counts: counts}, nil
	}
	if b.Refusals, err = asText(refusals); err == nil {
		b.Counts, err = asText(counts)
	}
	return b, accepted, nil, err
}

func asText(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

func distinctTexts(all []string) (out []string) {
	seen := make(map[string]bool, len(all))
	for _, s := range all {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// sort judges the devices of a batch: those that take its command, a sample of the others, and how many these are.
func (s *Service) sort(ctx context.Context, b *Batch, devices []string) (accepted []member, refusals []Refusal, counts []RefusalCount, err error) {
	refusals, counts = []Refusal{}, []RefusalCount{}
	if len(devices) == 0 {
		return nil, refusals, counts, nil
	}
	var verdicts []Verdict
	var taken map[string]bool
	err = s.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		if verdicts, err = s.deps.Judge(tx, b.TenantID, devices, b.Name, b.Payload); err != nil {
			return err
		}
		taken, err = commands.TokensFrom(tx, b.TenantID, b.Token+"-", 2*MaxBatch)
		return err
	})
	number := map[string]int{}
	for i := range verdicts {
		v := &verdicts[i]
		token := commandToken(b.Token, i+1, len(devices))
		if v.Code == "" && taken[token] {
			v.Rejection = *reject(Rejected, "the token %q is that of another command", token)
		}
		if v.Code == "" {
			accepted = append(accepted, member{token, v.Device, v.DeviceID})
			continue
		}
		n, ok := number[v.Code]
		if !ok {
			n = len(counts)
			number[v.Code] = n
			counts = append(counts, RefusalCount{Code: v.Code})
		}
		if counts[n].Count++; counts[n].Count <= MaxSamples {
			refusals = append(refusals, Refusal{Device: v.Device, Code: v.Code, Reason: v.Reason})
		}
	}
	return accepted, refusals, counts, err
}

// member is a device that takes the command of a batch, with the token of its command.
type member struct {
	token    string
	device   string
	deviceID int64
}

// commandToken is the token of a command of a batch: the place of its device among those of the batch, from 1.
func commandToken(batch string, place, of int) string {
	return fmt.Sprintf("%s-%0*d", batch, len(fmt.Sprint(of)), place)
}

// written is how many commands of a batch one transaction writes.
const written = 200

// makeBatch writes a batch with its commands, a slice at a time. Nothing of it is seen before all is written, and the whole of it counts
// against the ceiling from the first moment on.
func (s *Service) makeBatch(ctx context.Context, by *model.Principal, b *Batch, accepted []member) (made *Batch, refused *BatchRejection, err error) {
	err = s.deps.Writer.Mutate(ctx, by, func(c *store.Change) error {
		made, refused = b, nil
		if old, err := commands.GetBatch(c, b.TenantID, b.Token); err != nil || old != nil {
			if made = old; err == nil && old.State == model.BatchMaking {
				err = model.Errorf(model.CodeUnavailable, "unavailable: the batch %q is being made; try again", b.Token)
			}
			return err
		}
		r, err := s.room(c, b.TenantID, b.Accepted, by.Kind == model.ServiceCaller)
		if err != nil {
			return err
		}
		if r != nil {
			refused = rejectBatch(r)
			refused.Resolved = &b.Resolved
			return nil
		}
		if err := commands.InsertBatch(c, b); err != nil {
			return err
		}
		if err := commands.Count(c, b.TenantID, queued, b.Accepted); err != nil {
			return err
		}
		s.making(b.ID, true)
		return audit(c, store.AuditCreate, "command_batches", b.ID, b.Token, b.Accepted)
	})
	if err != nil || refused != nil || made != b {
		s.making(b.ID, false)
		return made, refused, err
	}
	if err := s.fill(ctx, b, accepted); err != nil {
		s.making(b.ID, false)
		s.later(s.unmade)
		return nil, nil, err
	}
	return b, nil, nil
}

// making notes that a batch is being made, or no longer is.
func (s *Service) making(id int64, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.inMaking[id] = true
	} else {
		delete(s.inMaking, id)
	}
}

// fill writes the commands of a batch, and begins to send them.
func (s *Service) fill(ctx context.Context, b *Batch, accepted []member) error {
	first := int64(math.MaxInt64)
	for len(accepted) > 0 {
		part := accepted[:min(written, len(accepted))]
		if err := s.write(ctx, func(x *changes) error {
			for _, m := range part {
				c := &Command{TenantID: b.TenantID, CreatedAt: b.CreatedAt, UpdatedAt: b.CreatedAt, Token: m.token, DeviceID: m.deviceID, Device: m.device, Name: b.Name,
					Payload: b.Payload, Metadata: b.Metadata, State: queued, Queued: b.CreatedAt, Expires: b.Expires, BatchID: b.ID, Batch: b.Token}
				if err := commands.Insert(x.tx, c, true); err != nil {
					return err
				}
				first = min(first, c.ID)
				x.note(c)
			}
			return nil
		}); err != nil {
			return err
		}
		accepted = accepted[len(part):]
	}
	if err := s.write(ctx, func(x *changes) error {
		b.State, b.ReleasedTo, b.NextAt = model.BatchRunning, math.MaxInt64, x.now
		if b.MaxPerMinute > 0 {
			b.ReleasedTo = 0
		}
		return commands.SaveBatch(x.tx, b)
	}); err != nil {
		return err
	}
	s.making(b.ID, false)
	s.lives(b.Expires)
	if b.MaxPerMinute > 0 {
		s.later(s.paceAll)
	} else if b.Accepted > 0 {
		s.later(s.queuedFrom(first - 1))
	}
	return nil
}

// later adds a task for the loop.
func (s *Service) later(t task) {
	s.mu.Lock()
	s.added = append(s.added, t)
	s.mu.Unlock()
	s.nudge()
}

// unmade removes batches that were not completed: their callers got an error, or Weir ended.
func (s *Service) unmade(ctx context.Context) (bool, error) {
	var found []*Batch
	if err := s.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		found, err = commands.Unmade(tx)
		return err
	}); err != nil {
		return false, err
	}
	for _, b := range found {
		s.mu.Lock()
		busy := s.inMaking[b.ID]
		s.mu.Unlock()
		if busy {
			continue
		}
		return true, s.write(ctx, func(x *changes) error {
			n, err := commands.DropMade(x.tx, b.ID, written)
			if err != nil || n > 0 {
				return err
			}
			if err := commands.Count(x.tx, b.TenantID, queued, -b.Accepted); err != nil {
				return err
			}
			return commands.DropBatch(x.tx, b.ID)
		})
	}
	return false, nil
}

// CancelledBatch is what cancelling a batch did.
type CancelledBatch struct {
	Cancelled int64 `gql:"cancelled"`
	Sent      int64 `gql:"alreadySent"`
	Finished  int64 `gql:"alreadyFinished"`
	Matched   int64 `gql:"matched"`
}

// CancelBatch calls a batch off: nothing of it is sent any more, and what is not sent is cancelled.
func (s *Service) CancelBatch(ctx context.Context, by *model.Principal, token string) (done CancelledBatch, err error) {
	var b *Batch
	err = s.deps.Writer.Mutate(ctx, by, func(c *store.Change) (err error) {
		if b, err = existing(c, by, token); err != nil {
			return err
		}
		if b.CancelledAt == nil {
			b.CancelledAt = &c.At
		}
		b.State, b.UpdatedAt = model.BatchCancelling, c.At
		if err := commands.SaveBatch(c, b); err != nil {
			return err
		}
		return audit(c, store.AuditUpdate, "command_batches", b.ID, b.Token, b.Accepted)
	})
	if err != nil {
		return done, err
	}
	after := int64(0)
	for more := true; more && err == nil; {
		var part CancelledBatch
		more, part, err = s.cancelSome(ctx, b.ID, &after)
		done.Cancelled += part.Cancelled
		done.Sent += part.Sent
		done.Finished += part.Finished
		done.Matched += part.Matched
	}
	if err == nil {
		err = s.calledOffNow(ctx, b.ID, done.Cancelled)
	}
	if err != nil {
		s.later(s.calledOff)
	}
	return done, err
}

func existing(tx store.Tx, by *model.Principal, token string) (*Batch, error) {
	b, err := commands.GetBatch(tx, by.TenantID, token)
	if err == nil && (b == nil || b.State == model.BatchMaking) {
		err = model.NotFound("command batch", token)
	}
	return b, err
}

// cancelSome cancels the next commands of a batch.
func (s *Service) cancelSome(ctx context.Context, batch int64, after *int64) (more bool, done CancelledBatch, err error) {
	last := *after
	err = s.write(ctx, func(x *changes) error {
		done, last = CancelledBatch{}, *after
		found, err := commands.AfterTurn(x.tx, batch, *after, written)
		if err != nil {
			return err
		}
		for _, c := range found {
			last = c.ID
			done.Matched++
			switch {
			case c.State.Final():
				done.Finished++
			case c.State == sent && !stoppable(c):
				done.Sent++
			default:
				if _, err := x.cancel(c); err != nil {
					return err
				}
				done.Cancelled++
			}
		}
		more = len(found) == written
		return nil
	})
	*after = last
	return more, done, err
}

// calledOffNow ends the cancelling of a batch.
func (s *Service) calledOffNow(ctx context.Context, batch, n int64) error {
	return s.write(ctx, func(x *changes) error {
		b, err := commands.BatchOf(x.tx, batch)
		if err != nil || b == nil {
			return err
		}
		if b.State = model.BatchCancelled; b.Cancelled == 0 {
			b.Cancelled = n
		}
		return commands.SaveBatch(x.tx, b)
	})
}

// calledOff goes on with the cancelling of batches that was interrupted.
func (s *Service) calledOff(ctx context.Context) (bool, error) {
	var found []*Batch
	if err := s.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		found, err = commands.Cancelling(tx)
		return err
	}); err != nil || len(found) == 0 {
		return false, err
	}
	after, n := int64(0), int64(0)
	for more := true; more; {
		var part CancelledBatch
		var err error
		if more, part, err = s.cancelSome(ctx, found[0].ID, &after); err != nil {
			return false, err
		}
		n += part.Cancelled
	}
	return true, s.calledOffNow(ctx, found[0].ID, n)
}

// ResumeBatch goes on with a batch that stopped. Failures count again from zero. A batch that runs is returned as it is; one that was
// cancelled cannot go on.
func (s *Service) ResumeBatch(ctx context.Context, by *model.Principal, token string) (b *Batch, err error) {
	err = s.deps.Writer.Mutate(ctx, by, func(c *store.Change) (err error) {
		if b, err = existing(c, by, token); err != nil {
			return err
		}
		switch b.State {
		case model.BatchStopped:
		case model.BatchRunning:
			return nil
		default:
			return model.Errorf(model.CodeConflict, "conflict: the batch %q was cancelled", token)
		}
		b.State, b.UpdatedAt, b.StoppedAt, b.StopReason = model.BatchRunning, c.At, nil, ""
		b.SucceededBefore, b.FailedBefore, b.NextAt = b.Succeeded, b.Failed, max(b.NextAt, c.At)
		if err := commands.SaveBatch(c, b); err != nil {
			return err
		}
		c.OnCommit(func() { s.later(s.queuedFrom(0)) })
		return audit(c, store.AuditUpdate, "command_batches", b.ID, b.Token, b.Accepted)
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// ListBatches returns a page of the caller's batches, newest first, and the number of all that the filter selects.
func (s *Service) ListBatches(ctx context.Context, by *model.Principal, f *commands.BatchFilter, page store.Page) (found []*Batch, total int64, err error) {
	err = store.Read(ctx, s.deps.Store, func(tx store.Tx) (err error) {
		found, total, err = commands.ListBatches(tx, by.TenantID, f, page)
		return err
	})
	return found, total, err
}

// FindBatches returns the caller's batches that the filter selects.
func (s *Service) FindBatches(ctx context.Context, by *model.Principal, f *commands.BatchFilter) (found []*Batch, err error) {
	err = store.Read(ctx, s.deps.Store, func(tx store.Tx) (err error) {
		found, err = commands.FindBatches(tx, by.TenantID, f)
		return err
	})
	return found, err
}

// paceAll gives the commands of paced batches their turn.
func (s *Service) paceAll(ctx context.Context) (bool, error) {
	s.desk.pacing = false
	var found []*Batch
	if err := s.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		found, err = commands.Paced(tx)
		return err
	}); err != nil {
		return false, err
	}
	now := model.MicrosOf(s.deps.Now())
	s.desk.paceAt = model.Micros(math.MaxInt64)
	for _, b := range found {
		if b.NextAt <= now {
			if err := s.paceOne(ctx, b.ID); err != nil {
				return false, err
			}
			s.desk.paceAt = min(s.desk.paceAt, now)
			continue
		}
		s.desk.paceAt = min(s.desk.paceAt, b.NextAt)
	}
	return false, nil
}

// paceOne gives some commands of a batch their turn. Turns that were missed, since Weir did not run or was busy, are not made up for but for
// those of a beat: the pace is a promise about any minute, so that a turn comes as much later as it may be late.
func (s *Service) paceOne(ctx context.Context, batch int64) error {
	var turned []*Command
	err := s.write(ctx, func(x *changes) error {
		turned = nil
		b, err := commands.BatchOf(x.tx, batch)
		if err != nil || b == nil || b.State != model.BatchRunning || b.MaxPerMinute == 0 {
			return err
		}
		step := (model.Micros(time.Minute/time.Microsecond) + micros(beat) + model.Micros(b.MaxPerMinute) - 1) / model.Micros(b.MaxPerMinute)
		at, n := max(b.NextAt, x.now-micros(beat)), 0
		for ; at <= x.now; at += step {
			n++
		}
		if b.NextAt = at; n == 0 {
			return commands.SaveBatch(x.tx, b)
		}
		if turned, err = commands.AfterTurn(x.tx, batch, b.ReleasedTo, n); err != nil {
			return err
		}
		if b.ReleasedTo = math.MaxInt64; len(turned) == n {
			b.ReleasedTo = turned[n-1].ID
		}
		return commands.SaveBatch(x.tx, b)
	})
	if err != nil {
		return err
	}
	for _, c := range turned {
		if c.State == queued {
			s.touch(c.DeviceID)
		}
	}
	return nil
}
