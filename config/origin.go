package config

import (
	"fmt"
	"slices"
)

// provenance is what the loader knows of a configuration besides its values.
type provenance struct {
	given    map[string][]given
	warnings []Warning
	// fingerprint is that of the Reading.
	fingerprint Fingerprint
}

// Fingerprint is that of the files as they were when this was read.
func (c *Config) Fingerprint() Fingerprint {
	if c.from == nil {
		return Fingerprint{}
	}
	return c.from.fingerprint
}

// The kinds of origin.
const (
	OriginDefault  = "default"
	OriginFile     = "file"
	OriginVariable = "variable"
	OriginFlag     = "flag"
)

// Origin is where a value comes from.
type Origin struct {
	Kind string `json:"kind"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Name string `json:"name,omitempty"` // of the variable or flag
}

func (o Origin) String() string {
	switch o.Kind {
	case OriginFile:
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	case OriginVariable, OriginFlag:
		return o.Name
	}
	return OriginDefault
}

// Origins returns where the value of a key comes from, followed by what it has overridden.
func (c *Config) Origins(path string) []Origin {
	var out []Origin
	if c.from != nil {
		for _, g := range slices.Backward(c.from.given[path]) {
			out = append(out, g.origin())
		}
	}
	if len(out) == 0 {
		out = append(out, Origin{Kind: OriginDefault})
	}
	return out
}

// origin is the first of Origins.
func (c *Config) origin(path string) Origin { return c.Origins(path)[0] }

func (g given) origin() Origin {
	switch {
	case g.file && g.at.File != nil:
		return Origin{Kind: OriginFile, File: g.at.File.Name, Line: g.at.Line}
	case len(g.name) > 2 && g.name[:2] == "--":
		return Origin{Kind: OriginFlag, Name: g.name}
	}
	return Origin{Kind: OriginVariable, Name: g.name}
}
