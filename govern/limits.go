package govern

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"

	"weir/internal/setting"
	"weir/model"
)

// minBurst is the minimum size of a tenant's ingest bucket: the readings of one legal message.
const minBurst = model.MaxReadings

// Values are the governance values that one level of the cascade sets. nil means that the next level decides: a
// tenant's own value, then its tier's, then the platform's default.
type Values struct {
	IngestMessagesPerSecond      *float64 `json:"ingestMessagesPerSecond,omitempty" gql:"ingestMessagesPerSecond"`
	IngestBurst                  *int64   `json:"ingestBurst,omitempty" gql:"ingestBurst"`
	OutboundMessagesPerSecond    *float64 `json:"outboundMessagesPerSecond,omitempty" gql:"outboundMessagesPerSecond"`
	OutboundBurst                *int64   `json:"outboundBurst,omitempty" gql:"outboundBurst"`
	AIInferenceRequestsPerMinute *float64 `json:"aiInferenceRequestsPerMinute,omitempty" gql:"aiInferenceRequestsPerMinute"`
	AIInferenceBurst             *int64   `json:"aiInferenceBurst,omitempty" gql:"aiInferenceBurst"`
	ShedPriority                 *int64   `json:"shedPriority,omitempty" gql:"shedPriority"`
	HeldCommandCeiling           *int64   `json:"heldCommandCeiling,omitempty" gql:"heldCommandCeiling"`
	GeoFenceCeiling              *int64   `json:"geoFenceCeiling,omitempty" gql:"geoFenceCeiling"`
	GeoFencePositionCeiling      *int64   `json:"geoFencePositionCeiling,omitempty" gql:"geoFencePositionCeiling"`
	GeoFencePositionBudget       *int64   `json:"geoFencePositionBudget,omitempty" gql:"geoFencePositionBudget"`
	RegistryBytes                *int64   `json:"registryBytes,omitempty"`
}

// Config holds the platform's defaults, the last level of the cascade, and the operator's shedding level.
type Config struct {
	Settings
	OutboundMessagesPerSecond float64
	OutboundBurst             int64
}

// DefaultConfig returns the defaults of the interface.
func DefaultConfig() Config {
	c := Config{OutboundMessagesPerSecond: 100, OutboundBurst: 200}
	setting.SetDefaults(&c.Settings)
	return c
}

// Validate returns every reason why the configuration cannot be used.
func (c Config) Validate() error {
	v := Values{&c.IngestMessagesPerSecond, &c.IngestBurst, &c.OutboundMessagesPerSecond, &c.OutboundBurst,
		&c.AIInferenceRequestsPerMinute, &c.AIInferenceBurst, &c.ShedPriority, &c.HeldCommandCeiling, &c.GeoFenceCeiling,
		&c.GeoFencePositionCeiling, &c.GeoFencePositionBudget, new(int64(c.RegistryBytes))}
	// Collect every reason, so that the operator can put all of them right at once.
	var errs []error
	for _, d := range dimensions {
		if err := d.check(&v, d.configKey); err != nil {
			errs = append(errs, err)
		}
	}
	if c.ManualFloor < 0 || c.ManualFloor >= len(shedFactors) {
		errs = append(errs, model.Invalid("manual_floor", "must be 0 to %d", len(shedFactors)-1))
	}
	return errors.Join(errs...)
}

// values returns the configuration as a level of the cascade.
func (c Config) values() Values {
	return Values{new(c.IngestMessagesPerSecond), new(c.IngestBurst), new(c.OutboundMessagesPerSecond), new(c.OutboundBurst),
		new(c.AIInferenceRequestsPerMinute), new(c.AIInferenceBurst), new(c.ShedPriority), new(c.HeldCommandCeiling),
		new(c.GeoFenceCeiling), new(c.GeoFencePositionCeiling), new(c.GeoFencePositionBudget), new(int64(c.RegistryBytes))}
}

// dimension describes one governance key: its names, its place in Values, its bounds.
type dimension struct {
	key       string // of a tier's config and of the API
	configKey string // of the configuration file
	float     func(*Values) **float64
	whole     func(*Values) **int64
	min, max  int64 // of whole ones
}

var dimensions = []dimension{
	{key: "ingestMessagesPerSecond", configKey: "ingest_messages_per_second", float: func(v *Values) **float64 { return &v.IngestMessagesPerSecond }},
	{key: "ingestBurst", configKey: "ingest_burst", whole: func(v *Values) **int64 { return &v.IngestBurst }, min: 1},
	{key: "outboundMessagesPerSecond", configKey: "outbound_messages_per_second", float: func(v *Values) **float64 { return &v.OutboundMessagesPerSecond }},
	{key: "outboundBurst", configKey: "outbound_burst", whole: func(v *Values) **int64 { return &v.OutboundBurst }, min: 1},
	{key: "aiInferenceRequestsPerMinute", configKey: "ai_inference_requests_per_minute", float: func(v *Values) **float64 { return &v.AIInferenceRequestsPerMinute }},
	{key: "aiInferenceBurst", configKey: "ai_inference_burst", whole: func(v *Values) **int64 { return &v.AIInferenceBurst }, min: 1},
	{key: "shedPriority", configKey: "shed_priority", whole: func(v *Values) **int64 { return &v.ShedPriority }, min: 1, max: 100},
	{key: "heldCommandCeiling", configKey: "held_command_ceiling", whole: func(v *Values) **int64 { return &v.HeldCommandCeiling }, min: 100},
	{key: "geoFenceCeiling", configKey: "geofence_ceiling", whole: func(v *Values) **int64 { return &v.GeoFenceCeiling }, min: 1, max: 1000},
	{key: "geoFencePositionCeiling", configKey: "geofence_position_ceiling", whole: func(v *Values) **int64 { return &v.GeoFencePositionCeiling }, min: 4, max: 4096},
	{key: "geoFencePositionBudget", configKey: "geofence_position_budget", whole: func(v *Values) **int64 { return &v.GeoFencePositionBudget }, min: 4},
	{key: "registryBytes", configKey: "registry_bytes", whole: func(v *Values) **int64 { return &v.RegistryBytes }, min: 1, max: 1 << 40},
}

// check returns an INVALID_INPUT error that names the field when the value is set and out of bounds.
func (d *dimension) check(v *Values, field string) error {
	if d.float != nil {
		if f := *d.float(v); f != nil && (!(*f > 0) || math.IsInf(*f, 0)) {
			return model.Invalid(field, "must be a finite number above 0")
		}
		return nil
	}
	most := d.max
	if most == 0 {
		most = math.MaxInt32 // an Int of the API
	}
	if w := *d.whole(v); w != nil && (*w < d.min || *w > most) {
		return model.Invalid(field, "must be a whole number from %d to %d", d.min, most)
	}
	return nil
}

// or fills what v leaves open from the next level.
func (v Values) or(next Values) Values {
	for _, d := range dimensions {
		// A value that is set stays; nil is filled in.
		if d.float != nil {
			if f := d.float(&v); *f == nil {
				*f = *d.float(&next)
			}
		} else if w := d.whole(&v); *w == nil {
			*w = *d.whole(&next)
		}
	}
	return v
}

// check returns the first value out of bounds.
func (v Values) check() error {
	for _, d := range dimensions {
		if err := d.check(&v, d.key); err != nil {
			return err
		}
	}
	return nil
}

// usable takes out what no level may say (a row written by hand): it means the next level, never unlimited.
func (v Values) usable() Values {
	for _, d := range dimensions {
		if d.check(&v, d.key) == nil {
			continue
		}
		if d.float != nil {
			*d.float(&v) = nil
		} else {
			*d.whole(&v) = nil
		}
	}
	return v
}

// ParseTierConfig reads a tier's config: a JSON object of governance keys. An unknown key, a number out of bounds and a
// null in place of the object are INVALID_INPUT on the field config; a null or zero under a key means the next level.
func ParseTierConfig(text string) (Values, error) {
	var v Values
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	var keys map[string]json.RawMessage
	if err := dec.Decode(&keys); err != nil || keys == nil {
		return v, model.Invalid("config", "must be one JSON object")
	}
	// One object and nothing after it.
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return v, model.Invalid("config", "must be one JSON object")
	}
	for key, raw := range keys {
		// An unknown key is probably a mistake: it is refused.
		i := slices.IndexFunc(dimensions, func(d dimension) bool { return d.key == key })
		if i < 0 {
			return v, model.Invalid("config", "%q is no governance key", key)
		}
		if err := dimensions[i].read(&v, raw); err != nil {
			return v, err
		}
	}
	return v, nil
}

func (d *dimension) read(v *Values, raw json.RawMessage) error {
	var number *float64
	if err := json.Unmarshal(raw, &number); err != nil {
		return model.Invalid("config", "%s must be a number", d.key)
	}
	if number == nil || *number == 0 {
		return nil
	}
	if d.float != nil {
		*d.float(v) = number
	} else {
		if *number != math.Trunc(*number) || math.Abs(*number) > float64(max(d.max, math.MaxInt32)) {
			return model.Invalid("config", "%s must be a whole number", d.key)
		}
		*d.whole(v) = new(int64(*number))
	}
	return d.check(v, "config: "+d.key)
}
