package registry

import (
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// MetricDefinition declares a metric of a profile: readings of its key get unit and data type stamped, and values outside
// of what it allows are refused. A profile declares a key once.
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
	Enum        *string  `store:"enum,clear,json,max=16384" gql:"enum"`
	Descriptor  *string  `store:"descriptor,clear,max=16384" gql:"descriptor"`
	Metadata    *string  `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (r *Registry) metricDefinitions() *entity.Kind[MetricDefinition] {
	return entity.New(r.base(), entity.Desc[MetricDefinition]{
		Kind: "metric definition", Type: "MetricDefinition", Plural: "metricDefinitions", Area: area, Table: "metric_definitions",
		Read: mayRead, Write: mayWrite,
		Valid: (*MetricDefinition).check,
		Check: func(tx store.Tx, m *MetricDefinition, changed store.Changed) error {
			if !changed.Has("profile_id") {
				return nil
			}
			return checkCount(tx, r.Metrics, m.TenantID, "profile_id", m.ProfileID, m.ID, r.config.MetricsPerProfile, "metric definitions of a device profile")
		},
	})
}

// check holds the fields against each other.
func (m *MetricDefinition) check() error {
	if m.MinValue != nil && m.MaxValue != nil && *m.MinValue > *m.MaxValue {
		return model.Invalid("minValue", "%v is above maxValue %v", *m.MinValue, *m.MaxValue)
	}
	_, err := m.allowed()
	return err
}

// allowed returns the allowed strings, nil when there is no enum.
func (m *MetricDefinition) allowed() ([]string, error) {
	if m.Enum == nil {
		return nil, nil
	}
	return checkStrings("enum", *m.Enum)
}

// frozen is the definition as a snapshot keeps it.
func (m *MetricDefinition) frozen() (SnapshotMetric, error) {
	allowed, err := m.allowed()
	if err != nil {
		return SnapshotMetric{}, err
	}
	return SnapshotMetric{
		MetricView: model.MetricView{Key: m.MetricKey, DataType: m.DataType, Unit: text(m.Unit), Min: m.MinValue, Max: m.MaxValue, Enum: allowed},
		Token:      m.Token, Name: text(m.Name), Description: text(m.Description), Descriptor: text(m.Descriptor),
	}, nil
}
