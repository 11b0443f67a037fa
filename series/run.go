package series

import (
	"slices"

	"weir/internal/pack"
)

// A run is the packed form of readings of one series, inside a chunk or a block, which have their number: a byte
// of flags, then the columns: event time, value, receive time as lag behind event time, offset, index and, where a
// reading has one, classifier and altId. Times and offsets are relative to a base of the row.
const (
	runSharesAltIDs   = 1 << 0 // as version 1 has them
	runHasClassifiers = 1 << 1
	runIndexesZero    = 1 << 2 // every index is 0; the column is left out
	runLagsZero       = 1 << 3 // received at their event time; the column is left out
	runHasAltIDs      = 1 << 4
	runFlags          = runSharesAltIDs | runHasAltIDs | runHasClassifiers | runIndexesZero | runLagsZero
)

// encoder packs runs. It is used by one goroutine at a time.
type encoder struct {
	pack.Encoder
	ints [2][]int64
}

// maxRun is the maximum number of readings of a run.
const maxRun = 1 << 16

// depth is the part of a run that is decoded.
type depth uint8

const (
	timesOnly depth = iota
	timesAndValues
	everything
)

// appendRun appends the run of at least one reading.
func (e *encoder) appendRun(dst []byte, c *columns, baseTime, baseOffset int64) []byte {
	flags := byte(0)
	if c.AltIDs != nil {
		flags |= runHasAltIDs
	}
	if c.Classifiers != nil {
		flags |= runHasClassifiers
	}
	if allZero(c.Indexes) {
		flags |= runIndexesZero
	}
	lags := e.ints[1][:0]
	for i, r := range c.Received {
		lags = append(lags, r-c.Times[i])
	}
	if allZero(lags) {
		flags |= runLagsZero
	}
	e.ints[1] = lags
	dst = append(dst, flags)
	dst = e.AppendInts(dst, e.shifted(c.Times, baseTime), pack.Delta, pack.DeltaOfDelta)
	dst = e.AppendFloats(dst, c.Values)
	if flags&runLagsZero == 0 {
		dst = e.AppendInts(dst, e.ints[1], pack.Plain, pack.Delta)
	}
	dst = e.AppendInts(dst, e.shifted(c.Offsets, baseOffset), pack.Delta)
	if flags&runIndexesZero == 0 {
		dst = e.AppendInts(dst, c.Indexes, pack.Plain, pack.Delta)
	}
	if c.Classifiers != nil {
		dst = e.AppendInts(dst, c.Classifiers, pack.Plain)
	}
	if c.AltIDs != nil {
		dst = e.AppendTexts(dst, c.AltIDs)
	}
	return dst
}

// shifted returns v counted from base, in scratch space.
func (e *encoder) shifted(v []int64, base int64) []int64 {
	s := e.ints[0][:0]
	for _, x := range v {
		s = append(s, x-base)
	}
	e.ints[0] = s
	return s
}

func allZero(v []int64) bool {
	return !slices.ContainsFunc(v, func(x int64) bool { return x != 0 })
}

// decodeRun reads a run of n readings into c, to the given depth. The rest is valid only for the full depth.
func decodeRun(src []byte, n int, baseTime, baseOffset int64, c *columns, d depth) (rest []byte, err error) {
	if len(src) == 0 || n < 1 || n > maxRun || src[0]&^runFlags != 0 {
		return nil, pack.ErrForm
	}
	c.resize(n)
	flags, src := src[0], src[1:]
	if src, err = pack.DecodeInts(src, c.Times); err != nil {
		return nil, err
	}
	shift(c.Times, baseTime)
	if d == timesOnly {
		return nil, nil
	}
	if src, err = pack.DecodeFloats(src, c.Values, c.ints); err != nil || d == timesAndValues {
		return nil, err
	}
	clear(c.Received)
	if flags&runLagsZero == 0 {
		if src, err = pack.DecodeInts(src, c.Received); err != nil {
			return nil, err
		}
	}
	for i, t := range c.Times {
		c.Received[i] += t
	}
	if src, err = pack.DecodeInts(src, c.Offsets); err != nil {
		return nil, err
	}
	shift(c.Offsets, baseOffset)
	clear(c.Indexes)
	if flags&runIndexesZero == 0 {
		if src, err = pack.DecodeInts(src, c.Indexes); err != nil {
			return nil, err
		}
	}
	return decodeOptional(src, flags, c)
}

func decodeOptional(src []byte, flags byte, c *columns) (rest []byte, err error) {
	if flags&runHasClassifiers != 0 {
		c.Classifiers = make([]int64, c.len())
		if src, err = pack.DecodeInts(src, c.Classifiers); err != nil {
			return nil, err
		}
	}
	switch flags & (runHasAltIDs | runSharesAltIDs) {
	case runHasAltIDs:
		c.AltIDs = make([]string, c.len())
		return pack.DecodeTexts(src, c.AltIDs)
	case runSharesAltIDs:
		c.AltIDs = make([]string, c.len())
		return pack.DecodeSharing(src, c.AltIDs)
	case runHasAltIDs | runSharesAltIDs:
		return nil, pack.ErrForm
	}
	return src, nil
}

func shift(v []int64, by int64) {
	for i := range v {
		v[i] += by
	}
}
