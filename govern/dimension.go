package govern

// Dimension is a pair of governance keys, a rate and its burst, as operators see it.
type Dimension struct {
	Name       string `gql:"name"`
	Label      string `gql:"label"`
	RateField  string `gql:"rateField"`
	BurstField string `gql:"burstField"`
	RateUnit   string `gql:"rateUnit"`

	rate  func(*Values) *float64
	burst func(*Values) *int64
}

// Dimensions are the pairs that there are.
func Dimensions() []Dimension {
	return []Dimension{
		{"ingest", "Ingest", "ingestMessagesPerSecond", "ingestBurst", "readings/sec",
			func(v *Values) *float64 { return v.IngestMessagesPerSecond }, func(v *Values) *int64 { return v.IngestBurst }},
		{"outbound", "Outbound", "outboundMessagesPerSecond", "outboundBurst", "calls/sec",
			func(v *Values) *float64 { return v.OutboundMessagesPerSecond }, func(v *Values) *int64 { return v.OutboundBurst }},
		{"ai-inference", "AI inference", "aiInferenceRequestsPerMinute", "aiInferenceBurst", "requests/min",
			func(v *Values) *float64 { return v.AIInferenceRequestsPerMinute }, func(v *Values) *int64 { return v.AIInferenceBurst }},
	}
}

// Sources of a value of the cascade.
const (
	SourceOverride = "override"
	SourceTier     = "tier"
	SourcePlatform = "platform-default"
)

// Cascaded is a value with the level that it comes from. A nil Value means the platform's default.
type Cascaded[T float64 | int64] struct {
	Source   string `gql:"source"`
	Value    *T     `gql:"value"`
	Tier     *T     `gql:"tier"`
	Override *T     `gql:"override"`
}

func cascade[T float64 | int64](override, tier *T) Cascaded[T] {
	c := Cascaded[T]{SourcePlatform, nil, tier, override}
	switch {
	case override != nil:
		c.Source, c.Value = SourceOverride, override
	case tier != nil:
		c.Source, c.Value = SourceTier, tier
	}
	return c
}

// DimensionSetting is what the cascade makes of a dimension for a tenant.
type DimensionSetting struct {
	Dimension Dimension         `gql:"dimension"`
	Rate      Cascaded[float64] `gql:"rate"`
	Burst     Cascaded[int64]   `gql:"burst"`
}

// EffectiveSettings returns what the cascade makes of each dimension for a tenant.
func (g *Govern) EffectiveSettings(t *Tenant) []DimensionSetting {
	overrides := t.Overrides().usable()
	tier := g.index.tierValues(t.TierID)
	dimensions := Dimensions()
	out := make([]DimensionSetting, len(dimensions))
	for i, d := range dimensions {
		out[i] = DimensionSetting{d, cascade(d.rate(&overrides), d.rate(&tier)), cascade(d.burst(&overrides), d.burst(&tier))}
	}
	return out
}
