package sparkplug

import (
	"cmp"
	"slices"

	"weir/model"
)

// messages puts samples into messages of at most model.MaxReadings: those of one time are one entry. A metric that comes twice at one time
// begins another entry.
func messages(samples []Sample) (out []*model.Message) {
	if !slices.IsSortedFunc(samples, byTime) {
		slices.SortStableFunc(samples, byTime)
	}
	for len(samples) > 0 {
		n := min(len(samples), model.MaxReadings)
		out = append(out, messageOf(samples[:n]))
		samples = samples[n:]
	}
	return out
}

func byTime(x, y Sample) int { return cmp.Compare(x.At, y.At) }

func messageOf(samples []Sample) *model.Message {
	m := &model.Message{Type: model.MeasurementEvent, Measurements: make([]model.Reading, 0, len(samples))}
	entry, names := uint16(0), make(map[string]struct{}, len(samples))
	for i := range samples {
		s := &samples[i]
		_, again := names[s.Name]
		if i > 0 && (again || samples[i-1].At != s.At) {
			entry++
			clear(names)
		}
		names[s.Name] = struct{}{}
		at := model.EntryTime{At: nanosOf(s.At), Has: true}
		m.Measurements = append(m.Measurements, model.Reading{Entry: entry, Metric: s.Name, Value: s.Value, Time: at})
	}
	return m
}

// nanosOf turns milliseconds into nanoseconds; what does not fit becomes the last time that does, which no limit of times admits.
func nanosOf(milliseconds int64) model.Nanos {
	const last = int64(1<<63-1) / 1_000_000
	return model.Nanos(max(min(milliseconds, last), -last) * 1_000_000)
}

// reports puts attributes into reports of at most model.MaxReported.
func reports(texts []Attribute) (out []*model.Report) {
	for part := range slices.Chunk(texts, model.MaxReported) {
		r := &model.Report{}
		for _, t := range part {
			kind := model.ReportedString
			if t.JSON {
				kind = model.ReportedJSON
			}
			r.Attributes = append(r.Attributes, model.Reported{Key: t.Key, Type: kind, Value: t.Value})
		}
		out = append(out, r)
	}
	return out
}
