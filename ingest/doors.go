package ingest

import (
	"maps"
	"sync"

	"weir/model"
	"weir/spool"
	"weir/store"
)

// line is where the ledger counts a message before its fate is known.
type line struct {
	tenant string
	door   string
	hour   int64
}

func (l line) key(h store.Heading, r Reason) store.LedgerKey {
	return store.LedgerKey{Tenant: l.tenant, Door: l.door, Hour: l.hour, Heading: h, Reason: string(r)}
}

func lineOf(r *model.Record) line {
	return line{tenant: r.Account, door: r.Door, hour: r.Received.Hour()}
}

// Doors counts what reaches the doors and what they turn away. A message is counted as received where its packet is
// parsed and stays in parsed until the door knows its fate: then received and refusal go together into the next batch,
// or received goes into the very batch that holds the record. So whatever a crash leaves on disk is balanced, and the
// applier, which counts the fates of records, can still be caught losing one.
type Doors struct {
	listening *Listening

	mu      sync.Mutex
	parsed  map[line]int64
	pending map[store.LedgerKey]store.LedgerCount
	forming map[store.LedgerKey]store.LedgerCount // of the batch that is being synced
	taken   map[line]int64                        // received that rides in it for its own records
	riding  map[store.LedgerKey]store.LedgerCount // synced, in batches that Apply has not read yet
	waiting map[line]store.LedgerCount            // handed to the log, not yet passed by Apply
}

// NewDoors returns the doors' side of the ledger. It is the log's spool.MetaSource.
func NewDoors(l *Listening) *Doors {
	return &Doors{listening: l, parsed: map[line]int64{}, pending: map[store.LedgerKey]store.LedgerCount{}, riding: map[store.LedgerKey]store.LedgerCount{},
		waiting: map[line]store.LedgerCount{}}
}

var _ spool.MetaSource = (*Doors)(nil)

func (d *Doors) received(l line) {
	d.mu.Lock()
	d.parsed[l]++
	d.mu.Unlock()
}

// turnedAway gives a received message its fate at the door.
func (d *Doors) turnedAway(l line, h store.Heading, r Reason, readings int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unparse(l, 1)
	d.count(l.key(store.HeadingReceived, ReasonNone), store.LedgerCount{Messages: 1})
	d.count(l.key(h, r), store.LedgerCount{Messages: 1, Readings: int64(readings)})
}

func (d *Doors) count(k store.LedgerKey, c store.LedgerCount) {
	have := d.pending[k]
	have.Add(c)
	d.pending[k] = have
}

func (d *Doors) unparse(l line, n int64) {
	if d.parsed[l] -= n; d.parsed[l] == 0 {
		delete(d.parsed, l)
	}
}

// handed notes that a record is on its way to the log; passed, that Apply has decided on it or the log refused it.
func (d *Doors) handed(l line, readings int) {
	d.move(l, store.LedgerCount{Messages: 1, Readings: int64(readings)})
}

func (d *Doors) passed(l line, readings int) {
	d.move(l, store.LedgerCount{Messages: -1, Readings: -int64(readings)})
}

func (d *Doors) move(l line, c store.LedgerCount) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have := d.waiting[l]
	have.Add(c)
	if d.waiting[l] = have; have == (store.LedgerCount{}) {
		delete(d.waiting, l)
	}
}

// Take implements spool.MetaSource.
func (d *Doors) Take(entries []spool.Entry) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken = map[line]int64{}
	for _, e := range entries {
		if r, ok := e.Value.(*model.Record); ok && counted(r.Kind) {
			d.taken[lineOf(r)]++
		}
	}
	d.forming, d.pending = d.pending, map[store.LedgerKey]store.LedgerCount{}
	m := batchMeta{Span: d.listening.Span(), Counts: make(map[store.LedgerKey]store.LedgerCount, len(d.forming)+len(d.taken))}
	maps.Copy(m.Counts, d.forming)
	for l, n := range d.taken {
		k := l.key(store.HeadingReceived, ReasonNone)
		c := m.Counts[k]
		c.Messages += n
		m.Counts[k] = c
		d.unparse(l, n)
	}
	return appendMeta(nil, m)
}

// Settle implements spool.MetaSource: the counts of a batch that failed wait for the next one.
func (d *Doors) Settle(ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ok {
		for k, c := range d.forming {
			d.ride(k, c)
		}
		for l, n := range d.taken {
			d.ride(l.key(store.HeadingReceived, ReasonNone), store.LedgerCount{Messages: n})
		}
	} else {
		for k, c := range d.forming {
			d.count(k, c)
		}
		for l, n := range d.taken {
			d.parsed[l] += n
		}
	}
	d.forming, d.taken = nil, nil
}

func (d *Doors) ride(k store.LedgerKey, c store.LedgerCount) {
	have := d.riding[k]
	have.Add(c)
	if have.Messages <= 0 {
		delete(d.riding, k)
		return
	}
	d.riding[k] = have
}

// read notes that Apply counts what rode in a batch.
func (d *Doors) read(counts map[store.LedgerKey]store.LedgerCount) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, c := range counts {
		d.ride(k, store.LedgerCount{Messages: -c.Messages, Readings: -c.Readings})
	}
}

// Pending reports whether counts wait for a batch to ride in.
func (d *Doors) Pending() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.pending) > 0
}

// counted reports whether records of the kind are messages of the ledger.
func counted(k model.RecordKind) bool { return k == model.KindMessage || k == model.KindRaw }

// live adds what is not yet on disk to a look at the ledger: parsed and pending counts, and what waits for Apply.
func (d *Doors) live(add func(store.LedgerKey, store.LedgerCount)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range []map[store.LedgerKey]store.LedgerCount{d.pending, d.forming, d.riding} {
		for k, c := range m {
			add(k, c)
		}
	}
	for l, n := range d.parsed {
		add(l.key(store.HeadingReceived, ReasonNone), store.LedgerCount{Messages: n})
	}
	for l, c := range d.waiting {
		add(l.key(store.HeadingWaiting, ReasonNone), c)
	}
}
