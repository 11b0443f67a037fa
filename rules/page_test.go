package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/model"
	"weir/rules/page"
)

// filled is an engine with two rules and some devices, one of them raised.
func filled(t testing.TB) *bench {
	b := newBench(t, Limits{})
	b.install(2, view("hot", hot(80)), view("odd", celThreshold(`"x" in m && m.x > 1.0`)))
	for id := int64(1); id <= 5; id++ {
		b.apply(id, model.Micros(id), readings("temp", 78.0+float64(id)))
	}
	return b
}

func TestOnlyPagesThatChangedAreFrozen(t *testing.T) {
	t.Parallel()
	b := filled(t)
	if ids := pageIDs(b.e.Freeze()); ids != "7/70/d05+ 7/70/k05+ 7/70/d15+ 7/70/d30+ 7/70/k30+ 7/70/d39+ 7/70/d54+ 7/70/k54+ 7/70/r00+" {
		t.Errorf("first: %s", ids)
	}
	if ids := pageIDs(b.e.Freeze()); ids != "" {
		t.Errorf("nothing happened: %s", ids)
	}
	b.apply(3, 100, readings("temp", 99.0))
	if ids := pageIDs(b.e.Freeze()); ids != "7/70/d54+ 7/70/r00+" {
		t.Errorf("a message without an edge: %s", ids)
	}
	b.apply(3, 101, readings("temp", 1.0))
	if ids := pageIDs(b.e.Freeze()); ids != "7/70/d54+ 7/70/k54+ 7/70/r00+" {
		t.Errorf("an edge: %s", ids)
	}
	b.e.RemoveDevice(b.place(0), 3, b.emit)
	if ids := pageIDs(b.e.Freeze()); ids != "7/70/d54- 7/70/k54-" {
		t.Errorf("a device is gone: %s", ids)
	}
	b.apply(9, 1, readings("temp", 99.0))
	b.e.RemoveDevice(b.place(0), 9, b.emit)
	if ids := pageIDs(b.e.Freeze()); ids != "7/70/r00+" {
		t.Errorf("a device that came and went: %s", ids)
	}
	b.e.Remove(b.place(0), plant.ProfileKey, b.emit)
	b.install(3, view("hot", hot(80)))
	b.apply(1, 1, readings("temp", 1.0))
	if ids := pageIDs(b.e.Freeze()); ids != "7/70/d39+ 7/70/r00+ 7/70/d05- 7/70/d15- 7/70/d30- 7/70/k05- 7/70/k30-" {
		t.Errorf("a profile is gone and another has come: %s", ids)
	}
}

func pageIDs(pages []Page) string {
	var ids []string
	for _, p := range pages {
		mark := "+"
		if p.Data == nil {
			mark = "-"
		}
		ids = append(ids, p.ID+mark)
	}
	return strings.Join(ids, " ")
}

func TestPageFormatIsFrozen(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"7/70/r00": "01720461636d650470756d700402" +
			"03686f74097468726573686f6c6400" + "%x" + "000000e05d010474656d7001" +
			"036f6464097468726573686f6c6400" + "%x" + "0000000001017800",
		"7/70/d54": "016401060205" + "6465762d33" + "06" + "00" + "00",
		"7/70/k54": "016b0103686f7401" + "06" + "0100" + "03" + "010106",
	}
	b := filled(t)
	for _, p := range b.e.Freeze() {
		text, ok := want[p.ID]
		if !ok {
			continue
		}
		delete(want, p.ID)
		if strings.HasSuffix(p.ID, "r00") {
			rs := b.e.profiles[plant.ProfileKey].rules
			text = fmt.Sprintf(text, rs[0].body[:], rs[1].body[:])
		}
		if got := fmt.Sprintf("%x", p.Data[:len(p.Data)-4]); got != text {
			t.Errorf("page %s is\n%s, not\n%s: raise page.Version and read the old form too", p.ID, got, text)
		}
	}
	if len(want) > 0 {
		t.Errorf("pages missing: %v", want)
	}
}

func TestDamagedPagesAreErrors(t *testing.T) {
	t.Parallel()
	pages := filled(t).e.Freeze()
	c := newTestCompiler(t, Limits{})
	load := func(pages []Page) error { return NewEngine(c, nil).Load(pages) }
	if err := load(pages); err != nil {
		t.Fatal(err)
	}
	for i := range pages {
		whole := pages[i].Data
		for at := range whole {
			pages[i].Data = slices.Clone(whole)
			pages[i].Data[at] ^= 0x40
			if err := load(pages); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), pages[i].ID) {
				t.Errorf("page %s, byte %d changed: %v", pages[i].ID, at, err)
			}
			pages[i].Data = whole[:at]
			if err := load(pages); !errors.Is(err, ErrDamaged) {
				t.Errorf("page %s cut at %d: %v", pages[i].ID, at, err)
			}
		}
		pages[i].Data = resealed(append(whole[:len(whole)-4:len(whole)-4], 0))
		if err := load(pages); !errors.Is(err, ErrDamaged) {
			t.Errorf("page %s with a byte more: %v", pages[i].ID, err)
		}
		pages[i].Data = whole
	}
}

func TestPagesThatDoNotAgreeAreErrors(t *testing.T) {
	t.Parallel()
	pages := filled(t).e.Freeze()
	byID := func(id string) Page { return pages[slices.IndexFunc(pages, func(p Page) bool { return p.ID == id })] }
	without := func(id string) []Page {
		return slices.DeleteFunc(slices.Clone(pages), func(p Page) bool { return p.ID == id })
	}
	moved := byID("7/70/d39") // its device has no keys that would miss it
	moved.ID = "7/70/d38"
	foreign := byID("7/70/r00")
	foreign.Tenant = 8
	for what, set := range map[string][]Page{
		"rules missing":     without("7/70/r00"),
		"devices missing":   without("7/70/d54"),
		"bucket of another": append(without("7/70/d39"), moved),
		"tenant of another": append(without("7/70/r00"), foreign),
		"twice":             append(slices.Clone(pages), pages[0]),
		"no id":             append(slices.Clone(pages), Page{Tenant: 7, ID: "7/70/x00"}),
		"bucket too high":   append(slices.Clone(pages), Page{Tenant: 7, ID: "7/70/d64"}),
		"id spelt oddly":    append(slices.Clone(pages), Page{Tenant: 7, ID: "7/070/d01"}),
	} {
		if err := NewEngine(newTestCompiler(t, Limits{}), nil).Load(set); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	newer := slices.Clone(pages)
	newer[0].Data = resealed(append([]byte{page.Version + 1}, newer[0].Data[1:len(newer[0].Data)-4]...))
	if err := NewEngine(newTestCompiler(t, Limits{}), nil).Load(newer); !errors.Is(err, ErrVersion) {
		t.Errorf("newer: %v", err)
	}
}

func resealed(body []byte) []byte {
	return page.Seal(slices.Clone(body))
}

// FuzzLoad gives a start pages with right checksums and any content. What loads must be written again as it was read.
func FuzzLoad(f *testing.F) {
	var rules, devices, keys []byte
	for _, p := range filled(f).e.Freeze() {
		body := p.Data[2 : len(p.Data)-4]
		switch p.ID {
		case "7/70/r00":
			rules = body
		case "7/70/d54":
			devices = body
		case "7/70/k54":
			keys = body
		}
	}
	f.Add(rules, devices, keys)
	f.Add(rules, devices, []byte{})
	f.Add([]byte{0, 0, 0, 0}, []byte{0}, []byte{0, 0})
	c := newTestCompiler(f, Limits{})
	f.Fuzz(func(t *testing.T, rules, devices, keys []byte) {
		page := func(kind byte, body []byte) Page {
			k := pageKey{profile: plant.ProfileKey, kind: kind, bucket: 54}
			if kind == pageRules {
				k.bucket = 0
			}
			return Page{Tenant: 7, ID: k.id(), Data: resealed(append(page.Header(kind), body...))}
		}
		e := NewEngine(c, nil)
		if err := e.Load([]Page{page(pageRules, rules), page(pageDevices, devices), page(pageKeys, keys)}); err != nil {
			return
		}
		first := e.everything()
		again := NewEngine(c, nil)
		if err := again.Load(first); err != nil {
			t.Fatalf("what was written does not load: %v", err)
		}
		if second := again.everything(); !slices.EqualFunc(first, second, func(a, b Page) bool { return a.ID == b.ID && string(a.Data) == string(b.Data) }) {
			t.Fatalf("pages change:\n%v\n%v", first, second)
		}
		again.Install(Position{Offset: 1}, plant, []model.RuleView{view("hot", hot(80))}, func(model.Edge) {})
		again.Remove(Position{Offset: 2}, plant.ProfileKey, func(model.Edge) {})
		if s := again.Stats(); s != (Stats{}) {
			t.Fatalf("after the end: %+v", s)
		}
	})
}

// everything marks all as changed and freezes it.
func (e *Engine) everything() []Page {
	for _, p := range e.profiles {
		p.rulesDirty = true
		for i := range p.parts {
			p.parts[i].devicesDirty, p.parts[i].keysDirty, p.parts[i].whole = true, true, true
		}
	}
	return slices.DeleteFunc(e.Freeze(), func(p Page) bool { return p.Data == nil })
}

// Everything is what a snapshot of all of the engine has. It follows from the state alone: no window has segments of before.
func (e *Engine) Everything() []Page { return e.everything() }

// NextUnits encodes so many units more of a snapshot.
func (s *Snapshot) NextUnits(n int) ([]Page, bool) { return s.next(n) }

// FuzzLoadRule gives a preview kept pages with right checksums and any content. What loads for all rules loads for one of them, and nothing breaks.
func FuzzLoadRule(f *testing.F) {
	kept := map[string][]byte{}
	for _, p := range filled(f).e.Freeze() {
		kept[p.ID] = p.Data[2 : len(p.Data)-4]
	}
	f.Add(kept["7/70/r00"], kept["7/70/d54"], kept["7/70/k54"])
	f.Add(kept["7/70/r00"], kept["7/70/d54"], []byte{})
	f.Add([]byte{0, 0, 0, 0}, []byte{0}, []byte{0, 0})
	c := newTestCompiler(f, Limits{})
	hash := mustDecode(f, hot(80)).BodyHash("", 0)
	f.Fuzz(func(t *testing.T, rules, devices, keys []byte) {
		var pages []Page
		for kind, body := range map[byte][]byte{pageRules: rules, pageDevices: devices, pageKeys: keys} {
			k := pageKey{profile: plant.ProfileKey, kind: kind, bucket: 54}
			if kind == pageRules {
				k.bucket = 0
			}
			pages = append(pages, Page{Tenant: 7, ID: k.id(), Data: resealed(append(page.Header(kind), body...))})
		}
		var ids []string
		byID := map[string][]byte{}
		for _, p := range pages {
			ids, byID[p.ID] = append(ids, p.ID), p.Data
		}
		read := func(id string) ([]byte, error) { return byID[id], nil }
		whole := NewEngine(c, nil).Load(pages)
		for _, body := range []BodyHash{hash, {}} {
			if err := NewEngine(c, nil).LoadRule(plant.ProfileKey, "hot", body, ids, read); err != nil && whole == nil {
				t.Errorf("all rules are loaded, one is not: %v", err)
			}
		}
	})
}
