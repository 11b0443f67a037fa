package setting

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written as a plain number or with KiB, MiB, GiB or TiB.
type Size int64

var sizeUnits = []struct {
	suffix string
	shift  uint
}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(b []byte) error {
	text, shift := strings.TrimSpace(string(b)), uint(0)
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(text, u.suffix); ok {
			text, shift = strings.TrimSpace(n), u.shift
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > (1<<62)>>shift {
		return fmt.Errorf("must be a size such as 512KiB, 64MiB or 1GiB")
	}
	*s = Size(n << shift)
	return nil
}

// String writes the size with the largest unit that divides it.
func (s Size) String() string {
	for i := len(sizeUnits) - 1; i >= 0; i-- {
		if u := sizeUnits[i]; s != 0 && s%(1<<u.shift) == 0 {
			return strconv.FormatInt(int64(s>>u.shift), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Memory is a size, or 0 for auto.
type Memory int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Memory) UnmarshalText(b []byte) error {
	if string(b) == "auto" {
		*m = 0
		return nil
	}
	var s Size
	if err := s.UnmarshalText(b); err != nil || s < 64<<20 {
		return fmt.Errorf("must be auto or a size of at least 64MiB")
	}
	*m = Memory(s)
	return nil
}

func (m Memory) String() string {
	if m == 0 {
		return "auto"
	}
	return Size(m).String()
}

// Interval is a duration, or Auto.
type Interval time.Duration

// Auto is the interval that follows the disk.
const Auto Interval = -1

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *Interval) UnmarshalText(b []byte) error {
	if string(b) == "auto" {
		*i = Auto
		return nil
	}
	d, err := time.ParseDuration(string(b))
	if err != nil || d < 0 {
		return fmt.Errorf("must be auto or a duration such as 5ms")
	}
	*i = Interval(d)
	return nil
}

func (i Interval) String() string {
	if i == Auto {
		return "auto"
	}
	return time.Duration(i).String()
}

// Secret is a value that is never shown: not by String, not in JSON, not in a log.
type Secret struct{ value string }

// NewSecret returns a secret that holds s.
func NewSecret(s string) Secret { return Secret{s} }

// Reveal returns the value.
func (s Secret) Reveal() string { return s.value }

// Set reports whether there is one.
func (s Secret) Set() bool { return s.value != "" }

func (s Secret) String() string {
	if s.value == "" {
		return ""
	}
	return "(set)"
}

// MarshalJSON implements json.Marshaler.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Secret) UnmarshalText(b []byte) error {
	s.value = string(b)
	return nil
}

// Texts are texts by names that the operator chooses.
type Texts map[string]string
