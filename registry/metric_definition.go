package registry

import (
	"context"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// MetricDefinition declares a metric of a profile: readings of its key get unit and data type stamped, and values that
// it does not allow are refused, those outside its range as OutOfRange says. A profile declares a key once.
type MetricDefinition struct {
	store.Row
	Token       string   `store:"token,token" gql:"token"`
	ProfileID   int64    `store:"profile_id,required,ref=device_profiles,parent,filter=deviceProfile" gql:"deviceProfileToken"`
	MetricKey   string   `store:"metric_key,required,nonempty,max=128,filter" gql:"metricKey"`
	Name        *string  `store:"name,clear,max=128" gql:"name"`
	Description *string  `store:"description,clear,max=1024" gql:"description"`
	DataType    string   `store:"data_type,required,oneof=DOUBLE|INT|BOOLEAN|STRING" gql:"dataType"`
	Unit        *string  `store:"unit,clear,max=128" gql:"unit"`
	MinValue    *float64 `store:"min_value,clear" gql:"minValue"`
	MaxValue    *float64 `store:"max_value,clear" gql:"maxValue"`
	OutOfRange  string   `store:"out_of_range,required,oneof=REFUSE|FLAG|CLAMP" gql:"outOfRange"`
	Enum        *string  `store:"enum,clear,json,max=16384" gql:"enum"`
	// SourceNames are other names under which devices send the metric, sorted: a reading under one of them is stored and judged under MetricKey.
	// No name stands in two definitions of a profile, as key or as source name.
	SourceNames []string `store:"source_names,clear,list,max=64" gql:"sourceNames"`
	Descriptor  *string  `store:"descriptor,clear,max=16384" gql:"descriptor"`
	Metadata    *string  `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (ps *Profiles) describeMetrics(b entity.Base) *entity.Kind[MetricDefinition] {
	return entity.New(b, entity.Desc[MetricDefinition]{
		Kind:    "metric definition",
		Type:    "MetricDefinition",
		Plural:  "metricDefinitions",
		Area:    area,
		Table:   "metric_definitions",
		Read:    mayRead,
		Write:   mayWrite,
		Prepare: refuseOutOfRange,
		Valid:   (*MetricDefinition).check,
		Advise: func(_ context.Context, _ *model.Principal, m *MetricDefinition, p store.Patch) []string {
			return m.advise(p)
		},
		Check: func(tx store.Tx, m *MetricDefinition, changed store.Changed) error {
			if changed.Has("profile_id") {
				if err := checkCount(tx, ps.metrics, m.TenantID, "profile_id", m.ProfileID, m.ID, ps.bounds.metrics, "metric definitions of a device profile"); err != nil {
					return err
				}
			}
			if changed.Has("profile_id") || changed.Has("metric_key") || changed.Has("source_names") {
				return ps.checkNames(tx, m)
			}
			return nil
		},
	})
}

// refuseOutOfRange lets a new definition refuse where the caller says nothing else.
func refuseOutOfRange(_ context.Context, _ *model.Principal, _ string, p store.Patch, create bool) error {
	if _, named := p["outOfRange"]; create && !named {
		p["outOfRange"] = model.OutOfRangeRefuse
	}
	return nil
}

// checkNames refuses a name by which readings of the profile could be those of two metrics.
func (ps *Profiles) checkNames(tx store.Tx, m *MetricDefinition) error {
	all, err := ps.metrics.Table.By(tx, m.TenantID, "profile_id", m.ProfileID)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.ID == m.ID {
			continue
		}
		// A name must mean one metric: neither key nor source name may be used twice.
		if slices.Contains(other.SourceNames, m.MetricKey) {
			return model.Invalid("metricKey", "%q is a source name of the metric definition %q already: a name belongs to one metric of a profile", m.MetricKey, other.Token)
		}
		for _, name := range m.SourceNames {
			if name == other.MetricKey || slices.Contains(other.SourceNames, name) {
				return model.Invalid("sourceNames", "%q belongs to the metric definition %q already: a name belongs to one metric of a profile", name, other.Token)
			}
		}
	}
	return nil
}

// checkSourceNames refuses what can be no name of a reading, and sorts the names.
func (m *MetricDefinition) checkSourceNames() error {
	slices.Sort(m.SourceNames)
	m.SourceNames = slices.Compact(m.SourceNames)
	for _, name := range m.SourceNames {
		switch {
		case name == "" || utf8.RuneCountInString(name) > maxSourceName:
			return model.Invalid("sourceNames", "a name must have 1 to %d characters", maxSourceName)
		case name == m.MetricKey:
			return model.Invalid("sourceNames", "%q is the metricKey itself: leave it out", name)
		}
	}
	return nil
}

// maxSourceName is how many characters the name of a reading has at most.
const maxSourceName = 128

// check holds the fields against each other.
func (m *MetricDefinition) check() error {
	if err := m.checkSourceNames(); err != nil {
		return err
	}
	if m.MinValue != nil && m.MaxValue != nil && *m.MinValue > *m.MaxValue {
		return model.Invalid("minValue", "%v is above maxValue %v", *m.MinValue, *m.MaxValue)
	}
	// Bounds are stored in place of values with CLAMP only.
	allowed, err := m.allowed()
	if err != nil || m.OutOfRange != model.OutOfRangeClamp {
		return err
	}
	if err := m.clampable("minValue", m.MinValue, allowed); err != nil {
		return err
	}
	return m.clampable("maxValue", m.MaxValue, allowed)
}

// clampable refuses a bound that could not be stored in place of a value.
func (m *MetricDefinition) clampable(name string, bound *float64, allowed []string) error {
	isBound := func(s string) bool { v, err := strconv.ParseFloat(s, 64); return err == nil && v == *bound }
	switch {
	case bound == nil, m.DataType == "STRING": // no measurement is stored
	case m.DataType == "INT" && *bound != math.Trunc(*bound):
		return model.Invalid(name, "%v is no whole number: outOfRange CLAMP would store it as a value of the type INT", *bound)
	case m.DataType == "BOOLEAN" && *bound != 0 && *bound != 1:
		return model.Invalid(name, "%v is neither 0 nor 1: outOfRange CLAMP would store it as a value of the type BOOLEAN", *bound)
	case len(allowed) > 0 && !slices.ContainsFunc(allowed, isBound):
		return model.Invalid(name, "%v is not in enum: outOfRange CLAMP would store it as a value", *bound)
	}
	return nil
}

// allowed returns the allowed strings, nil when there is no enum.
func (m *MetricDefinition) allowed() ([]string, error) {
	if m.Enum == nil {
		return nil, nil
	}
	return checkStrings("enum", *m.Enum)
}

// advise is Advice, and that a range which the caller gives refuses. Whether they asked for that is not known: the schema has it as its default.
func (m *MetricDefinition) advise(p store.Patch) (texts []string) {
	_, low := p["minValue"]
	_, high := p["maxValue"]
	if (low && m.MinValue != nil || high && m.MaxValue != nil) && m.OutOfRange == model.OutOfRangeRefuse {
		texts = append(texts, "outOfRange: REFUSE, the default, makes a message with a value outside the range a dead letter, which no rule sees; FLAG keeps and marks the value")
	}
	return append(texts, m.Advice()...)
}

// Advice says of a definition that no reading fits it, nil where one can.
func (m *MetricDefinition) Advice() []string {
	if m.DataType == "STRING" {
		return []string{"dataType: no message with a reading of a metric of the type STRING is stored, since readings are numbers: send a text as an attribute, or the number of a state"}
	}
	allowed, err := m.allowed()
	if err != nil || allowed == nil || slices.ContainsFunc(allowed, isNumber) {
		return nil
	}
	return []string{"enum: none of the values is a number, so that no reading fits: readings are numbers, as 0, 1 and 2 of an enum [\"0\", \"1\", \"2\"]"}
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// frozen is the definition as a snapshot keeps it.
func (m *MetricDefinition) frozen() (SnapshotMetric, error) {
	allowed, err := m.allowed()
	if err != nil {
		return SnapshotMetric{}, err
	}
	view := model.MetricView{
		Key:         m.MetricKey,
		DataType:    m.DataType,
		Unit:        text(m.Unit),
		Min:         m.MinValue,
		Max:         m.MaxValue,
		Enum:        allowed,
		SourceNames: m.SourceNames,
	}
	if m.OutOfRange != model.OutOfRangeRefuse { // a version that refuses is as it was before the field existed
		view.OutOfRange = m.OutOfRange
	}
	return SnapshotMetric{
		MetricView:  view,
		Token:       m.Token,
		Name:        text(m.Name),
		Description: text(m.Description),
		Descriptor:  text(m.Descriptor),
	}, nil
}
