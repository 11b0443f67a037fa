package series

import (
	"weir/internal/pack"
	"weir/model"
)

// Blocks of versions 1 and 2 have, after the base: for each run the series (difference), its label set, its number of
// readings, its first event time from the base, its span, the length of its packed form; then those forms, each with
// columns of its own. They stay readable and are no longer written.

func (b *block) decodeRuns(src []byte, sets []labels, series int64) (err error) {
	lengths := make([]uint64, len(b.entries))
	for i := range b.entries {
		if lengths[i], src, err = b.decodeEntry(&b.entries[i], src, sets, &series); err != nil {
			return err
		}
	}
	for i, l := range lengths {
		if l > uint64(len(src)) {
			return pack.ErrForm
		}
		b.entries[i].run, src = src[:l], src[l:]
	}
	if len(src) != 0 {
		return pack.ErrForm
	}
	return nil
}

func (b *block) decodeEntry(e *entry, src []byte, sets []labels, series *int64) (length uint64, rest []byte, err error) {
	var numbers [3]uint64
	for i := range numbers {
		if numbers[i], src, err = pack.Uvarint(src); err != nil {
			return 0, nil, err
		}
	}
	first, src, err := pack.Varint(src)
	if err != nil {
		return 0, nil, err
	}
	span, src, err := pack.Uvarint(src)
	if err != nil {
		return 0, nil, err
	}
	if length, src, err = pack.Uvarint(src); err != nil {
		return 0, nil, err
	}
	if numbers[1] >= uint64(len(sets)) || numbers[2] == 0 || numbers[2] > maxRun {
		return 0, nil, pack.ErrForm
	}
	*series += int64(numbers[0])
	e.series, e.labels, e.n = *series, &sets[numbers[1]], int(numbers[2])
	e.first = model.Micros(b.baseTime + first)
	e.last = e.first + model.Micros(span)
	return length, src, nil
}

func (b *block) decodeRun(e *entry, c *columns, d depth) error {
	rest, err := decodeRun(e.run, e.n, b.baseTime, b.baseOffset, c, d)
	if err != nil {
		return err
	}
	if d == everything && len(rest) != 0 || model.Micros(c.Times[0]) != e.first || model.Micros(c.Times[e.n-1]) != e.last {
		return pack.ErrForm
	}
	return nil
}
