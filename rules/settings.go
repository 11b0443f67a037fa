package rules

import "time"

// Settings are the keys of the rules, in the section detection.
type Settings struct {
	MaxDuration time.Duration `yaml:"max_rule_duration" default:"24h" zero:"no" doc:"Longest window, hold or time-out of a rule."`
	MaxRules    int           `yaml:"max_rules_per_tenant" default:"500" zero:"default" doc:"Maximum number of rules that run for a tenant."`
	MaxKeys     int           `yaml:"max_keys_per_tenant" default:"1000000" zero:"default" doc:"Maximum number of pairs of rule and device with state."`
}
