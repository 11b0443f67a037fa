package series

import (
	"encoding/binary"
	"slices"

	"weir/internal/pack"
)

// appendTable appends the table of the runs that were added.
func (b *blockBuilder) appendTable(dst []byte) []byte {
	e, c := &b.enc.Encoder, &b.all
	steps, lags := b.steps(), b.lags()
	values := b.bestValues()
	flags := values.flags
	if c.Classifiers != nil {
		flags |= tableClassifiers
	}
	var altIDs []byte
	if c.AltIDs != nil {
		if altIDs = e.AppendTexts(nil, c.AltIDs); len(altIDs) <= b.ownAltIDs() {
			flags |= tableAltIDs
		} else {
			flags, altIDs = flags|tableOwnAltIDs, nil
		}
	}
	body, lengths := b.streams(steps, values, lags, flags)
	column := func(of func(*entry) int64, modes ...byte) {
		v := b.enc.ints[0][:0]
		for i := range b.entries {
			v = append(v, of(&b.entries[i]))
		}
		b.enc.ints[0] = v
		dst = e.AppendInts(dst, v, modes...)
	}
	column(func(e *entry) int64 { return e.series - b.base.series }, pack.Delta)
	dst = e.AppendInts(dst, b.sets, pack.Plain)
	column(func(e *entry) int64 { return int64(e.n) }, pack.Plain)
	column(func(e *entry) int64 { return int64(e.first) - b.base.time }, pack.Plain, pack.Delta)
	column(func(e *entry) int64 { return int64(e.last - e.first) }, pack.Plain)
	dst = e.AppendInts(dst, values.forms, pack.Plain)
	dst = e.AppendInts(dst, lengths, pack.Plain)
	dst = append(dst, flags)
	dst = e.AppendGroups(dst, &steps.Groups)
	dst = e.AppendGroups(dst, &values.Groups)
	dst = e.AppendGroups(dst, &lags.Groups)
	if flags&tableDifferences != 0 {
		dst = e.AppendInts(dst, values.firsts, pack.Plain, pack.Delta)
	}
	dst = append(dst, body...)
	dst = b.appendLogged(dst)
	return append(dst, altIDs...)
}

// grouped is a number for each reading, or for some, in groups by run.
type grouped struct {
	pack.Groups
	v    []int64
	ends []int
	cost int // bits
}

func (g *grouped) close() { g.ends = append(g.ends, len(g.v)) }

func (g *grouped) fit(e *encoder) { g.Groups, g.cost = e.FitGroups(g.v, g.ends) }

// write writes run i.
func (g *grouped) write(w *pack.BitWriter, i int) {
	start := 0
	if i > 0 {
		start = g.ends[i-1]
	}
	g.Write(w, i, g.v[start:g.ends[i]])
}

func (b *blockBuilder) steps() *grouped {
	g := &grouped{}
	for i := range b.entries {
		e := &b.entries[i]
		for j := e.start + 1; j < e.start+e.n-1; j++ {
			g.v = append(g.v, b.all.Times[j]-b.all.Times[j-1])
		}
		g.close()
	}
	g.fit(b.enc)
	return g
}

func (b *blockBuilder) lags() *grouped {
	g := &grouped{ends: b.ends}
	for i, r := range b.all.Received {
		g.v = append(g.v, r-b.all.Times[i])
	}
	g.fit(b.enc)
	return g
}

// valueForm is a form of the values.
type valueForm struct {
	grouped
	flags  byte
	forms  []int64
	firsts []int64
}

// bestValues finds the cheapest form: with the fewest decimals of each run or, if they differ, the maximum of all, because
// short runs have fewer by chance; and as values or as differences.
func (b *blockBuilder) bestValues() (best *valueForm) {
	own, most := make([]int64, len(b.entries)), int64(0)
	for i := range b.entries {
		d, ok := b.enc.Decimals(b.values(i))
		if own[i] = int64(d); !ok {
			own[i] = notDecimal
		} else {
			most = max(most, own[i])
		}
	}
	candidates := [][]int64{own}
	if common := slices.Repeat([]int64{most}, len(own)); !slices.Equal(common, own) {
		for i, d := range own {
			if d == notDecimal || !scales(b.values(i), int(most)) {
				common[i] = d
			}
		}
		candidates = append(candidates, common)
	}
	for _, forms := range candidates {
		for _, flags := range [...]byte{0, tableDifferences} {
			if f := b.valuesAs(forms, flags); best == nil || f.cost < best.cost {
				best = f
			}
		}
	}
	return best
}

func (b *blockBuilder) values(i int) []float64 {
	e := &b.entries[i]
	return b.all.Values[e.start : e.start+e.n]
}

func scales(v []float64, decimals int) bool {
	return !slices.ContainsFunc(v, func(x float64) bool { _, ok := pack.Scaled(x, decimals); return !ok })
}

func (b *blockBuilder) valuesAs(forms []int64, flags byte) *valueForm {
	f := &valueForm{flags: flags, forms: forms, firsts: make([]int64, len(forms))}
	for i, d := range forms {
		if d != notDecimal {
			prev := int64(0)
			for j, x := range b.values(i) {
				v, _ := pack.Scaled(x, int(d))
				switch {
				case flags&tableDifferences == 0:
					f.v = append(f.v, v)
				case j == 0:
					f.firsts[i] = v
				default:
					f.v = append(f.v, v-prev)
				}
				prev = v
			}
		}
		f.close()
	}
	f.fit(b.enc)
	f.cost += 8 * len(b.enc.AppendInts(nil, forms, pack.Plain))
	if flags&tableDifferences != 0 {
		f.cost += 8 * len(b.enc.AppendInts(nil, f.firsts, pack.Plain, pack.Delta))
	}
	return f
}

// ownAltIDs is the size in bytes of the altIds when each run has its own.
func (b *blockBuilder) ownAltIDs() (n int) {
	for i := range b.entries {
		n += len(b.enc.AppendTexts(nil, b.altIDs(i)))
	}
	return n
}

func (b *blockBuilder) altIDs(i int) []string {
	e := &b.entries[i]
	return b.all.AltIDs[e.start : e.start+e.n]
}

// streams returns the streams of all runs and the length of each.
func (b *blockBuilder) streams(steps *grouped, values *valueForm, lags *grouped, flags byte) (body []byte, lengths []int64) {
	for i := range b.entries {
		start := len(body)
		w := pack.NewBitWriter(body)
		steps.write(w, i)
		if values.forms[i] == notDecimal {
			w.Floats(b.values(i))
		} else {
			values.write(w, i)
		}
		lags.write(w, i)
		body = w.Finish()
		if flags&tableOwnAltIDs != 0 {
			body = b.enc.AppendTexts(body, b.altIDs(i))
		}
		lengths = append(lengths, int64(len(body)-start))
	}
	return body, lengths
}

// appendLogged appends the columns in the order of the log, except altIds.
func (b *blockBuilder) appendLogged(dst []byte) []byte {
	c, e := &b.all, &b.enc.Encoder
	order := byReceipt(c.Received)
	r := rate{uint64(b.sum.lastOffset - b.sum.firstOffset), uint64(slices.Max(c.Received) - slices.Min(c.Received))}
	best := b.appendOffsets(nil, order, r)
	if plain := b.appendOffsets(nil, order, rate{}); len(plain) < len(best) {
		best = plain
	}
	dst = e.AppendInts(append(dst, best...), c.Indexes, pack.Plain)
	if c.Classifiers != nil {
		dst = e.AppendInts(dst, c.Classifiers, pack.Plain)
	}
	return dst
}

func (b *blockBuilder) appendOffsets(dst []byte, order []int32, r rate) []byte {
	v, c := b.enc.ints[0][:0], &b.all
	offset, received := b.base.offset, c.Received[order[0]]
	for _, i := range order {
		v = append(v, c.Offsets[i]-offset-r.expect(c.Received[i]-received))
		offset, received = c.Offsets[i], c.Received[i]
	}
	b.enc.ints[0] = v
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, r.offsets), r.micros)
	return b.enc.AppendInts(dst, v, pack.Plain)
}
