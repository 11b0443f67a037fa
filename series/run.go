package series

import (
	"encoding/binary"
)

// A run is the packed form of readings of one series, inside a chunk or a block, which say how many there are: a byte
// of flags, then the columns: event time, value, receive time as lag behind event time, offset, index and, where a
// reading has one, classifier and altId. Times and offsets count from a base that the row gives.
const (
	runHasAltIDs      = 1 << 0
	runHasClassifiers = 1 << 1
	runIndexesZero    = 1 << 2 // every index is 0; the column is left out
	runLagsZero       = 1 << 3 // received at their event time; the column is left out
	runFlags          = runHasAltIDs | runHasClassifiers | runIndexesZero | runLagsZero
)

// maxRun is the most readings a run may say it has.
const maxRun = 1 << 16

// depth says how much of a run is decoded.
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
	dst = e.appendInts(dst, e.shifted(c.Times, baseTime), deltaMode, curveMode)
	dst = e.appendValues(dst, c.Values)
	if flags&runLagsZero == 0 {
		dst = e.appendInts(dst, e.ints[1], plainMode, deltaMode)
	}
	dst = e.appendInts(dst, e.shifted(c.Offsets, baseOffset), deltaMode)
	if flags&runIndexesZero == 0 {
		dst = e.appendInts(dst, c.Indexes, plainMode, deltaMode)
	}
	if c.Classifiers != nil {
		dst = e.appendInts(dst, c.Classifiers, plainMode)
	}
	if c.AltIDs != nil {
		dst = appendTexts(dst, c.AltIDs)
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

func allZero(v []int64) bool { return v[0] == 0 && same(v) }

// decodeRun reads a run of n readings into c, as deep as asked for. The rest is right only after everything.
func decodeRun(src []byte, n int, baseTime, baseOffset int64, c *columns, d depth) (rest []byte, err error) {
	if len(src) == 0 || n < 1 || n > maxRun || src[0]&^runFlags != 0 {
		return nil, errForm
	}
	c.resize(n)
	flags, src := src[0], src[1:]
	if src, err = decodeInts(src, c.Times); err != nil {
		return nil, err
	}
	shift(c.Times, baseTime)
	if d == timesOnly {
		return nil, nil
	}
	if src, err = decodeValues(src, c.Values, c.ints); err != nil || d == timesAndValues {
		return nil, err
	}
	clear(c.Received)
	if flags&runLagsZero == 0 {
		if src, err = decodeInts(src, c.Received); err != nil {
			return nil, err
		}
	}
	for i, t := range c.Times {
		c.Received[i] += t
	}
	if src, err = decodeInts(src, c.Offsets); err != nil {
		return nil, err
	}
	shift(c.Offsets, baseOffset)
	clear(c.Indexes)
	if flags&runIndexesZero == 0 {
		if src, err = decodeInts(src, c.Indexes); err != nil {
			return nil, err
		}
	}
	return decodeOptional(src, flags, c)
}

func decodeOptional(src []byte, flags byte, c *columns) (rest []byte, err error) {
	if flags&runHasClassifiers != 0 {
		c.Classifiers = make([]int64, c.len())
		if src, err = decodeInts(src, c.Classifiers); err != nil {
			return nil, err
		}
	}
	if flags&runHasAltIDs != 0 {
		c.AltIDs = make([]string, c.len())
		if src, err = decodeTexts(src, c.AltIDs); err != nil {
			return nil, err
		}
	}
	return src, nil
}

func shift(v []int64, by int64) {
	for i := range v {
		v[i] += by
	}
}

// appendTexts writes each text as how many bytes it shares with the one before, and the bytes that follow.
func appendTexts(dst []byte, texts []string) []byte {
	prev := ""
	for _, s := range texts {
		shared := 0
		for shared < min(len(prev), len(s)) && prev[shared] == s[shared] {
			shared++
		}
		dst = binary.AppendUvarint(dst, uint64(shared))
		dst = appendText(dst, s[shared:])
		prev = s
	}
	return dst
}

func decodeTexts(src []byte, texts []string) (rest []byte, err error) {
	prev := ""
	for i := range texts {
		var shared uint64
		var own string
		if shared, src, err = uvarint(src); err != nil {
			return nil, err
		}
		if own, src, err = text(src); err != nil {
			return nil, err
		}
		// Without a bound a few bytes could ask for texts that grow with each other.
		if shared > uint64(len(prev)) || int(shared)+len(own) > maxText {
			return nil, errForm
		}
		texts[i] = prev[:shared] + own
		prev = texts[i]
	}
	return src, nil
}

// maxText is the longest text in a row: altIds, sources, units are far below.
const maxText = 1 << 12

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func text(src []byte) (string, []byte, error) {
	n, src, err := uvarint(src)
	if err != nil || n > uint64(len(src)) || n > maxText {
		return "", nil, errForm
	}
	return string(src[:n]), src[n:], nil
}
