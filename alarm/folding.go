package alarm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"weir/internal/faults"
	"weir/model"
	"weir/store"
	"weir/store/alarms"
)

// maxEvents is how many events of an alarm are kept: one that flaps does not fill the disk.
const maxEvents = 1000

// folding folds the contributions of one transaction. Each device is read once and each alarm written once, however often it
// moves.
type folding struct {
	tx     store.Tx
	limit  int64 // alarms of a tenant
	m      *metrics
	events []model.AlarmEvent // of all alarms, in their order

	devices map[int64]*device
	touched []*alarm // in the order in which they were first touched since they were written
	unsaved int      // events before it are written
}

// device is a device and its alarms, oldest first.
type device struct{ alarms []*alarm }

func (d *device) find(key string) *alarm {
	for _, x := range d.alarms {
		if x.Key == key {
			return x
		}
	}
	return nil
}

func (f *folding) run(cs []model.Contribution) error {
	f.devices = map[int64]*device{}
	for i := range cs {
		if err := f.fold(&cs[i]); err != nil {
			return err
		}
	}
	return f.save()
}

func (f *folding) fold(c *model.Contribution) error {
	d, err := f.device(c.DeviceID)
	if err != nil {
		return err
	}
	switch c.Kind {
	case model.ContributeRaise:
		for _, k := range c.Keys {
			if err := f.raise(d, k.Key, c); err != nil {
				return err
			}
		}
	case model.ContributeResolve:
		for _, x := range d.alarms {
			f.move(x, c, x.drop)
		}
	case model.ContributeReplace:
		return f.replace(d, c)
	case model.ContributeGone:
		return f.remove(d, c)
	default:
		return fmt.Errorf("alarm: contributions of the kind %d are not known", c.Kind)
	}
	return nil
}

// device reads the alarms of a device.
func (f *folding) device(id int64) (*device, error) {
	if d := f.devices[id]; d != nil {
		return d, nil
	}
	rows, err := alarms.OfDevice(f.tx, id)
	if err != nil {
		return nil, err
	}
	d := &device{}
	f.devices[id] = d
	if len(rows) == 0 {
		return d, nil
	}
	by, err := alarms.Contributors(f.tx, id)
	for _, a := range rows {
		d.alarms = append(d.alarms, &alarm{Alarm: *a, by: by[a.ID], stored: by[a.ID]})
	}
	return d, err
}

// move lets a contribution reach an alarm, and notes what has happened to it.
func (f *folding) move(x *alarm, c *model.Contribution, by func(*model.Contribution) (model.AlarmMove, string)) {
	before := x.touched
	move, severity := by(c)
	if x.touched && !before {
		f.touched = append(f.touched, x)
	}
	if move == "" {
		return
	}
	faults.Point("fold.moved")
	x.Moves++
	f.events = append(f.events, model.AlarmEvent{Number: x.Moves, Move: move, Before: severity, Occurred: c.Occurred, At: c.Received.Micros(), Alarm: x.Alarm})
}

func (f *folding) raise(d *device, key string, c *model.Contribution) error {
	x := d.find(key)
	if x == nil {
		if ok, err := f.room(c); err != nil || !ok {
			return err
		}
		x = &alarm{Alarm: model.Alarm{TenantID: c.TenantID, CreatedAt: c.Received.Micros(), Token: tokenOf(c, key), DeviceID: c.DeviceID, Device: c.Device,
			Key: key, State: model.AlarmCleared}}
		d.alarms = append(d.alarms, x)
	}
	f.move(x, c, x.raise)
	return nil
}

// replace lets a rule that has changed contribute to the alarms of the contribution alone. Where it contributes already nothing is
// raised again.
func (f *folding) replace(d *device, c *model.Contribution) error {
	contributed := false
	for _, x := range d.alarms {
		_, known := x.find(c.Rule)
		contributed = contributed || known
	}
	for _, k := range c.Keys {
		x := d.find(k.Key)
		if x != nil {
			if _, known := x.find(c.Rule); known {
				f.move(x, c, x.reweigh)
				continue
			}
		}
		if contributed || !k.Guarded {
			if err := f.raise(d, k.Key, c); err != nil {
				return err
			}
		}
	}
	for _, x := range d.alarms {
		if !slices.ContainsFunc(c.Keys, func(k model.AlarmKey) bool { return k.Key == x.Key }) {
			f.move(x, c, x.drop)
		}
	}
	return nil
}

// remove clears and removes the alarms of a device that is gone.
func (f *folding) remove(d *device, c *model.Contribution) error {
	if len(d.alarms) == 0 {
		return nil
	}
	for _, x := range d.alarms {
		f.move(x, c, x.end)
	}
	if err := f.save(); err != nil {
		return err
	}
	for _, x := range d.alarms {
		if err := alarms.Remove(f.tx, x.ID); err != nil {
			return err
		}
	}
	_, err := store.AddRows(f.tx, c.TenantID, "alarms", -int64(len(d.alarms)))
	d.alarms = nil
	return err
}

// room makes room for one more alarm of a tenant. It returns false when there is none.
func (f *folding) room(c *model.Contribution) (bool, error) {
	tenant := c.TenantID
	have, err := store.AddRows(f.tx, tenant, "alarms", 1)
	if err != nil || have <= f.limit {
		return true, err
	}
	if err := f.save(); err != nil { // the row says which are cleared
		return false, err
	}
	id, of, err := alarms.OldestCleared(f.tx, tenant)
	if err != nil {
		return false, err
	}
	if _, err := store.AddRows(f.tx, tenant, "alarms", -1); err != nil || id == 0 {
		at := c.Received.Micros()
		f.tx.OnCommit(func() { f.m.refuse(tenant, at) })
		return false, err
	}
	f.tx.OnCommit(f.m.evicted.Inc)
	if d := f.devices[of]; d != nil {
		d.alarms = slices.DeleteFunc(d.alarms, func(x *alarm) bool { return x.ID == id })
	}
	return true, alarms.Remove(f.tx, id)
}

// save writes what has changed so far.
func (f *folding) save() error {
	for _, x := range f.touched {
		if err := f.saveOne(x); err != nil {
			return err
		}
	}
	newest := map[string]int64{} // number of the newest event, by token
	for i := f.unsaved; i < len(f.events); i++ {
		newest[f.events[i].Token] = f.events[i].Number
	}
	for i := f.unsaved; i < len(f.events); i++ {
		e := &f.events[i]
		last := newest[e.Token]
		if e.Number == last && last > maxEvents {
			if _, err := alarms.TrimEvents(f.tx, e.TenantID, e.Token, last-maxEvents); err != nil {
				return err
			}
		}
		if e.Number > last-maxEvents {
			if err := alarms.AddEvent(f.tx, e); err != nil {
				return err
			}
		}
	}
	f.touched, f.unsaved = f.touched[:0], len(f.events)
	return nil
}

// saveOne writes an alarm and what contributes to it.
func (f *folding) saveOne(x *alarm) (err error) {
	if x.ID == 0 {
		err = alarms.Insert(f.tx, &x.Alarm)
	} else {
		err = alarms.Save(f.tx, &x.Alarm)
	}
	for i := range x.stored {
		if _, known := x.find(x.stored[i].Rule); err == nil && !known {
			err = alarms.RemoveContributor(f.tx, x.ID, x.stored[i].Rule)
		}
	}
	for i := range x.by {
		if err == nil && !slices.Contains(x.stored, x.by[i]) {
			err = alarms.PutContributor(f.tx, x.TenantID, x.ID, &x.by[i])
		}
	}
	x.stored, x.touched = x.by, false
	faults.Point("fold.saved")
	return err
}

// tokenOf is the token of a new alarm. It follows from what raises it, so that a replay gives the same.
func tokenOf(c *model.Contribution, key string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\x00%d\x00%d\x00%d\x00%s\x00%d\x00%d\x00%s", c.Edge.Epoch, c.Edge.Offset, c.Edge.Index, c.Edge.N, c.Rule, c.TenantID, c.DeviceID, key))
	return hex.EncodeToString(sum[:16])
}
