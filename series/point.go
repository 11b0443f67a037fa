package series

import (
	"strconv"
	"strings"

	"weir/internal/pack"
	"weir/model"
)

// Point is one reading, resolved. Device is the row id: a token that is used again after a delete starts a new history.
type Point struct {
	TenantID    int64
	Device      int64
	DeviceToken string
	Metric      string
	Source      string // event source id
	// Anchors is the set of anchors recorded with the reading, Profile the row id of the profile version that
	// judged it; both 0 as long as there are none.
	Anchors, Profile int64
	Occurred         model.Micros
	Received         model.Micros
	Offset           model.Offset
	Index            uint32 // in the record
	Value            float64
	AltID            string
	Classifier       int32
	HasClassifier    bool
	Unit             string
	DataType         string
	Mark             model.RangeMark
}

func (p *Point) codedClassifier() int64 {
	if !p.HasClassifier {
		return 0
	}
	return int64(pack.Zigzag(int64(p.Classifier))) + 1
}

func classifierOf(code int64) (int32, bool) {
	if code == 0 {
		return 0, false
	}
	return int32(pack.Unzigzag(uint64(code - 1))), true
}

func (p *Point) labels() labels {
	return labels{source: p.Source, unit: p.Unit, dataType: p.DataType, anchors: p.Anchors, profile: p.Profile, mark: p.Mark}
}

// EventID composes the id of an event, opaque to clients.
func EventID(device string, t model.EventType, at model.Micros, offset model.Offset, index uint32) string {
	b := make([]byte, 0, len(device)+48)
	b = strconv.AppendInt(append(append(b, device...), ':'), int64(t), 10)
	b = strconv.AppendInt(append(b, ':'), int64(at.Nanos()), 10)
	b = strconv.AppendUint(append(b, ':'), uint64(offset), 10)
	return string(strconv.AppendUint(append(b, '.'), uint64(index), 10))
}

// parseEventID returns the position that an id names.
func parseEventID(id string) (place, error) {
	bad := model.Invalid("before", "%q is not the id of an event", shortened(id))
	parts := strings.Split(id, ":")
	if len(parts) != 4 {
		return place{}, bad
	}
	offset, index, ok := strings.Cut(parts[3], ".")
	ns, err1 := strconv.ParseInt(parts[2], 10, 64)
	o, err2 := strconv.ParseUint(offset, 10, 63)
	i, err3 := strconv.ParseUint(index, 10, 32)
	if !ok || err1 != nil || err2 != nil || err3 != nil {
		return place{}, bad
	}
	return place{model.Nanos(ns).Micros(), model.Offset(o), uint32(i)}, nil
}

func shortened(s string) string {
	const most = 60
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
