package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// LwM2MProfile says what is observed of the LwM2M devices of a profile. Its JSON is the field lwm2m of a device profile.
type LwM2MProfile struct {
	Observe    []LwM2MObserve `json:"observe"`
	Attributes []string       `json:"attributes"` // paths whose values are attributes of the device, and no readings
	Location   bool           `json:"location"`   // the objects 6 and 3336 are observed, too
}

// LwM2MObserve is something that is observed: an object, an instance, a resource or a resource instance. The numbers are notification attributes
// (OMA-TS-LightweightM2M-Core section 7.3), which are written before.
type LwM2MObserve struct {
	Path      string   `json:"path"`
	Pmin      *int64   `json:"pmin"` // seconds
	Pmax      *int64   `json:"pmax"`
	Gt        *float64 `json:"gt"`
	Lt        *float64 `json:"lt"`
	St        *float64 `json:"st"`
	Format    string   `json:"format"`    // asked for first; "" by what the device can
	Composite bool     `json:"composite"` // observed together with the others that are, from LwM2M 1.1 on
}

// Bounds of a profile.
const (
	maxLwM2MObserve    = 256
	maxLwM2MAttributes = 64
)

// LwM2MFormats are the content formats that a profile may ask for.
var lwM2MFormats = []string{"cbor", "json", "lwm2m-cbor", "opaque", "senml-cbor", "senml-json", "text", "tlv"}

// ParseLwM2MProfile reads the JSON of a profile. The error says where it is wrong.
func ParseLwM2MProfile(b []byte) (*LwM2MProfile, error) {
	var p LwM2MProfile
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("%w; it is {\"observe\": [{\"path\": \"/3303/0\", \"pmin\": 60}], \"attributes\": [\"/3/0/2\"], \"location\": true}", err)
	}
	if len(p.Observe) > maxLwM2MObserve || len(p.Attributes) > maxLwM2MAttributes {
		return nil, fmt.Errorf("observe has at most %d entries, attributes %d", maxLwM2MObserve, maxLwM2MAttributes)
	}
	seen := map[string]bool{}
	for i := range p.Observe {
		o := &p.Observe[i]
		if err := o.check(); err != nil {
			return nil, fmt.Errorf("observe[%d].%w", i, err)
		}
		if seen[o.Path] {
			return nil, fmt.Errorf("observe[%d].path: %s is observed already", i, o.Path)
		}
		seen[o.Path] = true
	}
	for i, path := range p.Attributes {
		if !lwM2MPath(path, 3) {
			return nil, fmt.Errorf("attributes[%d]: %.40q must be /object/instance/resource, numbers in 0..65535 without leading zeros", i, path)
		}
	}
	return &p, nil
}

func (o *LwM2MObserve) check() error {
	switch {
	case !lwM2MPath(o.Path, 1):
		return fmt.Errorf("path: %.40q must be /object, /object/instance or a resource below, numbers in 0..65535 without leading zeros", o.Path)
	case o.Pmin != nil && *o.Pmin < 0, o.Pmax != nil && *o.Pmax < 0:
		return fmt.Errorf("pmin: seconds must not be below 0")
	case o.Pmin != nil && o.Pmax != nil && *o.Pmax < *o.Pmin:
		return fmt.Errorf("pmax: %d is below pmin, devices would ignore it", *o.Pmax)
	case o.St != nil && *o.St <= 0:
		return fmt.Errorf("st: a step must be above 0")
	case o.Gt != nil && o.Lt != nil && *o.Lt >= *o.Gt, o.Gt != nil && o.Lt != nil && o.St != nil && *o.Lt+2**o.St >= *o.Gt:
		return fmt.Errorf("lt: lt + 2 st must be below gt")
	case o.Format != "" && !slices.Contains(lwM2MFormats, o.Format):
		return fmt.Errorf("format: %.40q is none; there are %s", o.Format, strings.Join(lwM2MFormats, ", "))
	case (o.Gt != nil || o.Lt != nil || o.St != nil) && !lwM2MPath(o.Path, 3):
		return fmt.Errorf("path: gt, lt and st are those of a resource, %s is none", o.Path)
	}
	return nil
}

// Queries are the notification attributes as they are written.
func (o *LwM2MObserve) Queries() (all []string) {
	for _, a := range []struct {
		name  string
		value *int64
	}{{"pmin", o.Pmin}, {"pmax", o.Pmax}} {
		if a.value != nil {
			all = append(all, a.name+"="+strconv.FormatInt(*a.value, 10))
		}
	}
	for _, a := range []struct {
		name  string
		value *float64
	}{{"gt", o.Gt}, {"lt", o.Lt}, {"st", o.St}} {
		if a.value != nil {
			all = append(all, a.name+"="+strconv.FormatFloat(*a.value, 'f', -1, 64))
		}
	}
	return all
}

// lwM2MPath reports whether s is a path of at least so many numbers.
func lwM2MPath(s string, least int) bool {
	rest, ok := strings.CutPrefix(s, "/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < least || len(parts) > 4 {
		return false
	}
	for _, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || strconv.FormatUint(n, 10) != part {
			return false
		}
	}
	return true
}
