package series

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"

	"weir/internal/pack"
	"weir/model"
)

// A table follows the base in a block of version 3. Runs of a few readings are too short for columns of their own, so
// that they share columns where possible:
//
//   - the directory, columns with a number for each run: series (from the base), label set, number of readings, first event
//     time (from the base), span, decimals of its values (notDecimal: it is written as float64), length of its packed form;
//   - a byte of flags;
//   - how the steps between event times, the values and the lags after event time are written, as groups, one to a run;
//     the first value of each run where its values are written as differences;
//   - for each run one stream of bits: the steps but the last, which follows from the span, the values, the lags; and its
//     altIds where they are not written together;
//   - what is in the order of the log: offsets, and indexes, classifiers and altIds of all runs.
//
// The log assigns offsets in the order of receipt, so that the time since the previous receipt predicts a reading's offset:
// offsets are written in the order of receive times (and of runs, where those are equal), each as its distance from
// the previous one less the distance predicted by the rate, offsets in so many microseconds.
type table struct {
	b                   *block
	flags               byte
	forms               []int64 // of each run
	steps, values, lags pack.Groups
	firsts              []int64 // first value of each run
	logged              []byte
	n                   int // readings of all runs

	readLogged func() error // fills order, once
	order      columns      // offsets, indexes, classifiers and altIds of all runs
}

const (
	tableDifferences = 1 << 0 // values are written as differences
	tableClassifiers = 1 << 1
	tableAltIDs      = 1 << 2 // of all runs together
	tableOwnAltIDs   = 1 << 3 // of each run by itself
	tableFlags       = 1<<4 - 1
	notDecimal       = pack.MaxDecimals + 1
	tableBits        = 18
	maxTable         = 1 << tableBits // readings, at most
)

// decodeTable reads the directory.
func (b *block) decodeTable(src []byte, sets []labels, series int64) (err error) {
	n := len(b.entries)
	t := &table{b: b, forms: make([]int64, n)}
	numbers := make([]int64, 6*n)
	column := func(i int) []int64 { return numbers[i*n : (i+1)*n] }
	for _, v := range [...][]int64{column(0), column(1), column(2), column(3), column(4), t.forms, column(5)} {
		if src, err = pack.DecodeInts(src, v); err != nil {
			return err
		}
	}
	for i := range b.entries {
		count, set, form := column(2)[i], column(1)[i], t.forms[i]
		if count <= 0 || count > maxTable || set < 0 || set >= int64(len(sets)) || form < 0 || form > notDecimal {
			return pack.ErrForm
		}
		first := model.Micros(b.baseTime + column(3)[i])
		b.entries[i] = entry{series: series + column(0)[i], labels: &sets[set], n: int(count), first: first, last: first + model.Micros(column(4)[i]),
			at: i, start: t.n}
		if t.n += int(count); t.n > maxTable {
			return pack.ErrForm
		}
	}
	if src, err = t.decodeForms(src); err != nil {
		return err
	}
	for i, l := range column(5) {
		if l < 0 || l > int64(len(src)) {
			return pack.ErrForm
		}
		b.entries[i].run, src = src[:l], src[l:]
	}
	t.logged, b.table, t.readLogged = src, t, sync.OnceValue(t.decodeLogged)
	return nil
}

// decodeForms reads the forms of steps, values and lags.
func (t *table) decodeForms(src []byte) (rest []byte, err error) {
	if len(src) == 0 || src[0]&^tableFlags != 0 {
		return nil, pack.ErrForm
	}
	t.flags, src = src[0], src[1:]
	for _, g := range [...]*pack.Groups{&t.steps, &t.values, &t.lags} {
		if *g, src, err = pack.DecodeGroups(src, len(t.forms)); err != nil {
			return nil, err
		}
	}
	if t.flags&tableDifferences == 0 {
		return src, nil
	}
	t.firsts = make([]int64, len(t.forms))
	return pack.DecodeInts(src, t.firsts)
}

// decode reads a run into c.
func (t *table) decode(e *entry, c *columns, d depth) error {
	rest, err := t.stream(e, c, d)
	if err != nil || d != everything {
		return err
	}
	if err := t.readLogged(); err != nil {
		return err
	}
	from, to := e.start, e.start+e.n
	copy(c.Offsets, t.order.Offsets[from:to])
	copy(c.Indexes, t.order.Indexes[from:to])
	c.Classifiers, c.AltIDs = some(t.order.Classifiers, from, to), some(t.order.AltIDs, from, to)
	if t.flags&tableOwnAltIDs != 0 {
		ids := make([]string, e.n)
		if rest, err = pack.DecodeTexts(rest, ids); err != nil {
			return err
		}
		c.AltIDs = some(ids, 0, e.n)
	}
	if len(rest) != 0 {
		return pack.ErrForm
	}
	return nil
}

// some is a copy of v between from and to, nil when all of that is none.
func some[T comparable](v []T, from, to int) []T {
	var none T
	if v == nil || !slices.ContainsFunc(v[from:to], func(x T) bool { return x != none }) {
		return nil
	}
	return slices.Clone(v[from:to])
}

// stream reads the run's own stream and returns what follows it.
func (t *table) stream(e *entry, c *columns, d depth) (rest []byte, err error) {
	c.resize(e.n)
	r := pack.NewBitReader(e.run)
	at, last := int64(e.first), e.n-1
	if last > 0 {
		t.steps.Read(r, e.at, c.Times[1:last])
		for i := 1; i < last; i++ {
			at += c.Times[i]
			c.Times[i] = at
		}
	}
	c.Times[0], c.Times[last] = int64(e.first), int64(e.last)
	if d == timesOnly {
		_, err = r.End(e.run)
		return nil, err
	}
	t.runValues(e, r, c)
	if d == everything {
		t.lags.Read(r, e.at, c.Received)
		for i, at := range c.Times {
			c.Received[i] += at
		}
	}
	return r.End(e.run)
}

func (t *table) runValues(e *entry, r *pack.BitReader, c *columns) {
	form := t.forms[e.at]
	if form == notDecimal {
		r.Floats(c.Values)
		return
	}
	v := c.ints
	if t.flags&tableDifferences == 0 {
		t.values.Read(r, e.at, v)
	} else {
		v[0] = t.firsts[e.at]
		t.values.Read(r, e.at, v[1:])
		for i := range v[1:] {
			v[i+1] += v[i]
		}
	}
	for i, x := range v {
		c.Values[i] = pack.Unscaled(x, uint8(form))
	}
}

// decodeLogged reads the columns in the order of the log, for all runs.
func (t *table) decodeLogged() error {
	received := make([]int64, 0, t.n)
	var c columns
	for i := range t.b.entries {
		if _, err := t.stream(&t.b.entries[i], &c, everything); err != nil {
			return err
		}
		received = append(received, c.Received...)
	}
	var r rate
	var err error
	src := t.logged
	for _, v := range [...]*uint64{&r.offsets, &r.micros} {
		if *v, src, err = pack.Uvarint(src); err != nil {
			return err
		}
	}
	o := &t.order
	o.resize(t.n)
	gaps := make([]int64, t.n)
	if src, err = pack.DecodeInts(src, gaps); err != nil {
		return err
	}
	order := byReceipt(received)
	offset, before := t.b.baseOffset, received[order[0]]
	for j, i := range order {
		offset += gaps[j] + r.expect(received[i]-before)
		o.Offsets[i], before = offset, received[i]
	}
	if src, err = pack.DecodeInts(src, o.Indexes); err != nil {
		return err
	}
	if t.flags&tableClassifiers != 0 {
		o.Classifiers = make([]int64, t.n)
		if src, err = pack.DecodeInts(src, o.Classifiers); err != nil {
			return err
		}
	}
	if t.flags&tableAltIDs != 0 {
		o.AltIDs = make([]string, t.n)
		if src, err = pack.DecodeTexts(src, o.AltIDs); err != nil {
			return err
		}
	}
	if len(src) != 0 {
		return pack.ErrForm
	}
	return nil
}

// rate is the number of offsets that the log assigns in a number of microseconds.
type rate struct{ offsets, micros uint64 }

// expect is the number of offsets predicted for so many microseconds; 0 where there is no prediction.
func (r rate) expect(micros int64) int64 {
	high, low := bits.Mul64(r.offsets, uint64(micros))
	if high >= r.micros {
		return 0
	}
	n, _ := bits.Div64(high, low, r.micros)
	return int64(n)
}

// byReceipt is the order of receive times, and of positions where those are equal.
func byReceipt(received []int64) []int32 {
	order := make([]int32, len(received))
	first, last := slices.Min(received), slices.Max(received)
	if span := uint64(last - first); span>>(64-tableBits) == 0 {
		// Sorting single numbers is three times as fast.
		keys := make([]uint64, len(received))
		for i, r := range received {
			keys[i] = uint64(r-first)<<tableBits | uint64(i)
		}
		slices.Sort(keys)
		for i, k := range keys {
			order[i] = int32(k & (1<<tableBits - 1))
		}
		return order
	}
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(received[a], received[b]), cmp.Compare(a, b)) })
	return order
}
