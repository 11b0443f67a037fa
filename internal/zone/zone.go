// Package zone has the time zones that rules may name: those of the table that is a part of the program, so that a rule means the same on
// each machine. What the machine has of zone files, and the variables TZ and ZONEINFO, count for nothing.
package zone

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"weir/internal/similar"
)

//go:embed zoneinfo.zip
var table []byte // the table of Go's distribution (lib/time), which the IANA has put into the public domain

// Zones finds zones by their names. It is safe for concurrent use.
type Zones struct {
	files func() (map[string]*zip.File, error)
	mu    sync.Mutex
	found map[string]*time.Location // at most as many as the table has
}

// New returns the zones of the program.
func New() *Zones {
	return &Zones{found: map[string]*time.Location{}, files: sync.OnceValues(func() (map[string]*zip.File, error) {
		r, err := zip.NewReader(bytes.NewReader(table), int64(len(table)))
		if err != nil {
			return nil, err
		}
		files := make(map[string]*zip.File, len(r.File))
		for _, f := range r.File {
			if !strings.HasSuffix(f.Name, "/") {
				files[f.Name] = f
			}
		}
		return files, nil
	})}
}

// Find returns the zone of a name of the IANA, as Europe/Berlin, or of an offset from UTC: a sign, hours up to 23 and minutes, as
// +02:00. The error of an unknown name says which one may be meant.
func (z *Zones) Find(name string) (*time.Location, error) {
	if strings.Contains(name, ":") {
		return offset(name)
	}
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if at := z.found[name]; at != nil {
		return at, nil
	}
	files, err := z.files()
	if err != nil {
		return nil, err
	}
	f := files[name]
	if f == nil {
		return nil, unknown(name, files)
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	at, err := time.LoadLocationFromTZData(name, data)
	if err == nil {
		z.found[name] = at
	}
	return at, err
}

func unknown(name string, files map[string]*zip.File) error {
	known := make([]string, 0, len(files))
	for n := range files {
		known = append(known, n)
	}
	err := fmt.Errorf("%.64q is no time zone", name)
	if meant := similar.Nearest(name, known); meant != "" {
		err = fmt.Errorf("%w (did you mean %s?)", err, meant)
	}
	return err
}

// offset reads ±HH:MM, the sign and a second digit of the hours being optional.
func offset(text string) (*time.Location, error) {
	var hours, minutes int
	unsigned := strings.TrimLeft(text, "+-")
	sign := 1
	if strings.HasPrefix(text, "-") {
		sign = -1
	}
	h, m, _ := strings.Cut(unsigned, ":")
	if len(text)-len(unsigned) > 1 || !digits(h, &hours) || !digits(m, &minutes) || hours > 23 || minutes > 59 {
		return nil, fmt.Errorf("%.64q is no offset of a time zone: a sign, hours up to 23, a colon and minutes were expected, as +02:00", text)
	}
	return time.FixedZone("", sign*(hours*60+minutes)*60), nil
}

// digits reads one or two digits.
func digits(text string, n *int) bool {
	if len(text) < 1 || len(text) > 2 {
		return false
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return false
		}
		*n = *n*10 + int(c-'0')
	}
	return true
}
