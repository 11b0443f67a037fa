package registry

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// attribute is a value for an attribute of the device d.
func attribute(scope, key, typ string, value *string) AttributeSet {
	return AttributeSet{AttributeRef{"device", "d", scope, key}, typ, value}
}

func (b *bench) set(q AttributeSet) *Attribute {
	b.Helper()
	return must(b.Attributes.Set(b.Context(), acme, q))(b)
}

// stored are the columns of the attributes that selectors read.
func (b *bench) stored() []string {
	b.Helper()
	return b.rows(`SELECT entity_type, scope, key, value_type, coalesce(text_value, '-'), coalesce(number_value, '-'), coalesce(literal, '-') FROM attributes ORDER BY key, scope, entity_type`)
}

func TestTheValueOfAnAttributeHasItsType(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	for _, c := range []struct {
		typ, value, column string
	}{
		{ValueString, "", "STRING  - -"},
		{ValueString, "true", "STRING true - -"},
		{ValueLong, "-9223372036854775808", "LONG - -9.223372036854776e+18 -9223372036854775808"},
		{ValueLong, "+7", "LONG - 7 +7"},
		{ValueDouble, "1e3", "DOUBLE - 1000 1e3"},
		{ValueDouble, "-.5", "DOUBLE - -0.5 -.5"},
		{ValueBoolean, "true", "BOOLEAN - 1 -"},
		{ValueBoolean, "false", "BOOLEAN - 0 -"},
		{ValueJSON, ` {"a": [1]}`, `JSON - -  {"a": [1]}`},
	} {
		a := b.set(attribute(ScopeShared, "k", c.typ, &c.value))
		if v := a.Value(); v == nil || *v != c.value || a.Type != c.typ {
			t.Errorf("%s %q reads as %v", c.typ, c.value, v)
		}
		if got := b.stored(); !slices.Equal(got, []string{"device SHARED k " + c.column}) {
			t.Errorf("%s %q is stored as %q", c.typ, c.value, got)
		}
	}
	for _, typ := range []string{ValueString, ValueLong, ValueDouble, ValueBoolean, ValueJSON} {
		if a := b.set(attribute(ScopeShared, "k", typ, nil)); a.Value() != nil || a.Type != typ {
			t.Errorf("null of %s reads as %v", typ, a.Value())
		}
		if got := b.stored(); !slices.Equal(got, []string{"device SHARED k " + typ + " - - -"}) {
			t.Errorf("null is stored as %q", got)
		}
	}
	b.unchanged("values of another type", func() {
		for _, c := range []struct{ typ, value string }{
			{ValueLong, "1.0"}, {ValueLong, ""}, {ValueLong, " 1"}, {ValueLong, "9223372036854775808"}, {ValueLong, "0x1"}, {ValueLong, "1_0"},
			{ValueDouble, "NaN"}, {ValueDouble, "inf"}, {ValueDouble, "1e999"}, {ValueDouble, "0x1p1"}, {ValueDouble, "1_0"}, {ValueDouble, ""},
			{ValueBoolean, "TRUE"}, {ValueBoolean, "1"}, {ValueJSON, "null"}, {ValueJSON, "{"}, {ValueJSON, ""}, {ValueString, "a\x00"}, {ValueString, "\xff"},
		} {
			_, err := b.Attributes.Set(t.Context(), acme, attribute(ScopeShared, "k", c.typ, &c.value))
			b.refused(c.typ+" "+c.value, err, model.CodeInvalidInput, "value: ")
		}
		_, err := b.Attributes.Set(t.Context(), acme, attribute(ScopeShared, "k", ValueString, new(strings.Repeat("x", maxAttributeValue+1))))
		b.refused("a long value", err, model.CodeLimitExceeded, "value: is larger than 16384 bytes")
	})
}

func TestWhatAnAttributeIsNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	longest := strings.Repeat("ä", maxAttributeKey)
	b.set(attribute(ScopeServer, longest, ValueLong, new("1")))
	b.unchanged("refusals", func() {
		for _, c := range []struct {
			q    AttributeRef
			text string
		}{
			{AttributeRef{"Device", "d", ScopeServer, "k"}, "entityType: "},
			{AttributeRef{"", "d", ScopeServer, "k"}, "entityType: "},
			{AttributeRef{"device", "d", "server", "k"}, "scope: "},
			{AttributeRef{"device", "d", ScopeServer, " "}, "attrKey: must not be empty"},
			{AttributeRef{"device", "d", ScopeServer, longest + "x"}, "attrKey: is longer than 128"},
			{AttributeRef{"device", "d", ScopeServer, "\x00"}, "attrKey: holds a character"},
			{AttributeRef{"device", "nope", ScopeServer, "k"}, `entity: device "nope" does not exist`},
			{AttributeRef{"device", "", ScopeServer, "k"}, "entity: "},
			{AttributeRef{"asset", "d", ScopeServer, "k"}, `entity: asset "d" does not exist`},
		} {
			_, err := b.Attributes.Set(t.Context(), acme, AttributeSet{c.q, ValueLong, new("1")})
			b.refused(fmt.Sprint(c.q), err, model.CodeInvalidInput, c.text)
			if c.q.EntityType == "device" && c.q.Scope == ScopeServer && c.q.Key == "k" || c.q.EntityType == "asset" {
				if deleted, err := b.Attributes.Delete(t.Context(), acme, c.q); err != nil || deleted {
					t.Errorf("%v: a delete of what is not there: %v, %v", c.q, deleted, err)
				}
				continue
			}
			_, err = b.Attributes.Delete(t.Context(), acme, c.q)
			b.refused(fmt.Sprint(c.q), err, model.CodeInvalidInput, c.text)
		}
		_, err := b.Attributes.Set(t.Context(), acme, attribute(ScopeShared, "k", "INT", new("1")))
		b.refused("a type", err, model.CodeInvalidInput, "valueType: ")
		_, err = b.Attributes.Set(t.Context(), acme, attribute(ScopeShared, "k", "", nil))
		b.refused("no type", err, model.CodeInvalidInput, "valueType: ")
	})
}

func TestAnAttributeIsWrittenInOneChangeWithItsJournalRow(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	before := len(b.rows(`SELECT * FROM audit_events`))
	first := b.set(attribute(ScopeShared, "site", ValueString, new("north")))
	second := b.set(attribute(ScopeShared, "site", ValueLong, new("5")))
	b.set(attribute(ScopeServer, "site", ValueString, new("south")))
	if first.ID != second.ID || first.CreatedAt != second.CreatedAt || second.UpdatedAt <= first.UpdatedAt {
		t.Errorf("set twice: %v then %v", first.Row, second.Row)
	}
	for range 2 {
		deleted := must(b.Attributes.Delete(t.Context(), acme, AttributeRef{"device", "d", ScopeShared, "site"}))(t)
		if n := len(b.stored()); n != 1 {
			t.Errorf("deleted %v, %d attributes are left", deleted, n)
		}
	}
	want := []string{"create device d SHARED site 1 ada", "update device d SHARED site 1 ada", "create device d SERVER site 1 ada", "delete device d SHARED site 1 ada"}
	if got := b.rows(`SELECT operation, entity_label, rows_affected, actor FROM audit_events WHERE table_name = 'attributes' ORDER BY id`); !slices.Equal(got, want) || len(b.rows(`SELECT * FROM audit_events`)) != before+4 {
		t.Errorf("the journal has %q", got)
	}
	if len(b.rows(`SELECT entity_label FROM audit_events WHERE entity_label LIKE '%north%' OR entity_label LIKE '%south%'`)) > 0 {
		t.Error("the journal has a value")
	}
}

func TestWhoMayReadAndWriteAttributes(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	b.set(attribute(ScopeServer, "k", ValueLong, new("1")))
	ctx := t.Context()
	must(b.Types.Create(ctx, other, store.Patch{"token": "t"}))(t)
	b.unchanged("others", func() {
		reader := fixture.Member("eve", "acme", 1, model.DeviceRead)
		_, err := b.Attributes.Set(ctx, reader, attribute(ScopeServer, "k", ValueLong, new("2")))
		b.refused("a reader sets", err, model.CodeForbidden, "device:write")
		_, err = b.Attributes.Delete(ctx, reader, AttributeRef{"device", "d", ScopeServer, "k"})
		b.refused("a reader deletes", err, model.CodeForbidden, "device:write")
		_, _, err = b.Attributes.List(ctx, fixture.Member("eve", "acme", 1), store.Page{}, AttributeFilter{})
		b.refused("a stranger reads", err, model.CodeForbidden, "device:read")
		_, err = b.Attributes.Set(ctx, other, attribute(ScopeServer, "k", ValueLong, new("2")))
		b.refused("another tenant sets", err, model.CodeInvalidInput, "does not exist")
		if deleted, err := b.Attributes.Delete(ctx, other, AttributeRef{"device", "d", ScopeServer, "k"}); deleted || err != nil {
			t.Errorf("another tenant deletes: %v, %v", deleted, err)
		}
		for _, f := range []AttributeFilter{{}, {EntityType: new("device"), Entity: new("d")}} {
			if rows, total, err := b.Attributes.List(ctx, other, store.Page{}, f); len(rows) != 0 || total != 0 || err != nil {
				t.Errorf("another tenant reads %d of %d, %v", len(rows), total, err)
			}
		}
	})
}

func TestAttributesAreListedByCriteria(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	must(b.Kinds.Of("asset_types").Create(ctx, acme, store.Patch{"token": "at"}))(t)
	must(b.Kinds.Of("assets").Create(ctx, acme, store.Patch{"token": "d", "assetTypeToken": "at"}))(t)
	for _, q := range []AttributeSet{
		attribute(ScopeServer, "a", ValueLong, new("1")), attribute(ScopeShared, "a", ValueLong, new("2")), attribute(ScopeClient, "b", ValueLong, new("3")),
		{AttributeRef{"asset", "d", ScopeServer, "b"}, ValueLong, new("4")},
	} {
		b.set(q)
	}
	for _, c := range []struct {
		f    AttributeFilter
		want string
	}{
		{AttributeFilter{}, "4321"},
		{AttributeFilter{EntityType: new("device")}, "321"},
		{AttributeFilter{EntityType: new("device"), Entity: new("d")}, "321"},
		{AttributeFilter{EntityType: new("asset"), Entity: new("d")}, "4"},
		{AttributeFilter{EntityType: new("asset"), Entity: new("e")}, ""},
		{AttributeFilter{EntityType: new("planet")}, ""},
		{AttributeFilter{EntityType: new("planet"), Entity: new("d")}, ""},
		{AttributeFilter{Scope: new(ScopeServer)}, "41"},
		{AttributeFilter{Scope: new("none")}, ""},
		{AttributeFilter{Keys: []string{"a"}}, "21"},
		{AttributeFilter{Keys: []string{"a", "b", "c"}, Scope: new(ScopeShared)}, "2"},
		{AttributeFilter{Keys: []string{}}, "4321"},
	} {
		rows, total, err := b.Attributes.List(ctx, acme, store.Page{}, c.f)
		var got strings.Builder
		for _, a := range rows {
			got.WriteString(*a.Value())
		}
		if err != nil || got.String() != c.want || int(total) != len(got.String()) {
			t.Errorf("%+v: %s of %d, %v, want %s", c.f, got.String(), total, err, c.want)
		}
	}
	if rows, total, err := b.Attributes.List(ctx, acme, store.Page{Number: 2, Size: 3}, AttributeFilter{}); err != nil || total != 4 || len(rows) != 1 || *rows[0].Value() != "1" {
		t.Errorf("the second page has %d of %d, %v", len(rows), total, err)
	}
	_, _, err := b.Attributes.List(ctx, acme, store.Page{}, AttributeFilter{Entity: new("d")})
	b.refused("an entity without its type", err, model.CodeInvalidInput, "entity: needs entityType")
}

func TestAnEntityHasAtMostItsAttributes(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{AttributesPerEntity: 3}})
	b.seed()
	must(b.Devices.Create(t.Context(), acme, store.Patch{"token": "e", "deviceTypeToken": "t"}))(t)
	for _, scope := range []string{ScopeClient, ScopeServer, ScopeShared} {
		b.set(attribute(scope, "k", ValueLong, new("1")))
	}
	b.unchanged("one more", func() {
		_, err := b.Attributes.Set(t.Context(), acme, attribute(ScopeShared, "more", ValueLong, new("1")))
		b.refused("one more", err, model.CodeLimitExceeded, "limits.attributes_per_entity: a device has at most 3 attributes")
	})
	b.set(attribute(ScopeShared, "k", ValueLong, new("2")))
	b.set(AttributeSet{AttributeRef{"device", "e", ScopeShared, "k"}, ValueLong, new("1")})
	must(b.Attributes.Delete(t.Context(), acme, AttributeRef{"device", "d", ScopeClient, "k"}))(t)
	b.set(attribute(ScopeShared, "more", ValueLong, new("1")))
	b.SetLimits(DeviceSettings{AttributesPerEntity: 4})
	b.set(attribute(ScopeClient, "k", ValueLong, new("1")))
}

// The attributes of an entity go with it, each with its journal row; those of another entity with its row id or token stay.
func TestAttributesGoWithTheirEntity(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	must(b.Kinds.Of("asset_types").Create(ctx, acme, store.Patch{"token": "at"}))(t)
	must(b.Kinds.Of("assets").Create(ctx, acme, store.Patch{"token": "d", "assetTypeToken": "at"}))(t)
	must(b.Devices.Create(ctx, acme, store.Patch{"token": "e", "deviceTypeToken": "t"}))(t)
	fill := func() {
		for _, of := range []AttributeRef{{"device", "d", ScopeServer, "a"}, {"device", "d", ScopeShared, "b"}, {"device", "e", ScopeServer, "a"}, {"asset", "d", ScopeServer, "a"}} {
			b.set(AttributeSet{of, ValueString, new("text")})
		}
	}
	for _, c := range []struct {
		what   string
		remove func() error
		left   []string
	}{
		{"a device", func() error { _, err := b.Devices.Delete(ctx, acme, "d"); return err }, []string{"asset SERVER", "device SERVER"}},
		{"devices", func() error { _, err := b.Devices.DeleteAll(ctx, acme, []string{"e"}); return err }, []string{"asset SERVER"}},
		{"an asset", func() error { _, err := b.Kinds.Of("assets").Delete(ctx, acme, "d"); return err }, []string{}},
	} {
		if len(c.left) == 2 {
			fill()
		}
		if err := c.remove(); err != nil {
			t.Fatal(c.what, err)
		}
		if got := b.rows(`SELECT entity_type, scope FROM attributes ORDER BY entity_type`); !slices.Equal(got, c.left) {
			t.Errorf("after the delete of %s: %q, want %q", c.what, got, c.left)
		}
		b.compareBytes(t)
	}
	want := []string{"device d SERVER a", "device d SHARED b", "device e SERVER a", "asset d SERVER a"}
	if got := b.rows(`SELECT entity_label FROM audit_events WHERE table_name = 'attributes' AND operation = 'delete' ORDER BY id`); !slices.Equal(got, want) {
		t.Errorf("the journal has %q", got)
	}
}

// Any sequence of sets and deletes leaves what a map would hold.
func TestAttributesAreAMap(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{AttributesPerEntity: 5}})
	b.seed()
	ctx := t.Context()
	must(b.Devices.Create(ctx, acme, store.Patch{"token": "e", "deviceTypeToken": "t"}))(t)
	want := map[AttributeRef]string{}
	count := func(entity string) (n int) {
		for ref := range want {
			if ref.Entity == entity {
				n++
			}
		}
		return n
	}
	rapid.Check(t, func(rt *rapid.T) {
		ref := AttributeRef{"device", rapid.SampledFrom([]string{"d", "e"}).Draw(rt, "entity"), rapid.SampledFrom([]string{ScopeClient, ScopeServer, ScopeShared}).Draw(rt, "scope"),
			rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")}
		_, had := want[ref]
		if rapid.IntRange(0, 3).Draw(rt, "verb") == 0 {
			deleted, err := b.Attributes.Delete(ctx, acme, ref)
			if err != nil || deleted != had {
				rt.Fatalf("delete %v: %v, %v", ref, deleted, err)
			}
			delete(want, ref)
		} else {
			value := fmt.Sprint(rapid.IntRange(0, 1000).Draw(rt, "value"))
			_, err := b.Attributes.Set(ctx, acme, AttributeSet{ref, ValueLong, &value})
			switch full := !had && count(ref.Entity) >= 5; {
			case full != (model.CodeOf(err) == model.CodeLimitExceeded), err != nil && !full:
				rt.Fatalf("set %v: %v", ref, err)
			case !full:
				want[ref] = value
			}
		}
		rows, total, err := b.Attributes.List(ctx, acme, store.Page{}, AttributeFilter{})
		if err != nil || int(total) != len(want) {
			rt.Fatalf("%d attributes, want %d, %v", total, len(want), err)
		}
		devices := map[int64]string{}
		for _, d := range must(b.Devices.ByToken(ctx, acme, []string{"d", "e"}))(t) {
			devices[d.ID] = d.Token
		}
		for _, a := range rows {
			if ref := (AttributeRef{a.EntityType, devices[a.EntityID], a.Scope, a.Key}); want[ref] != *a.Value() {
				rt.Errorf("%v is %s, want %s", ref, *a.Value(), want[ref])
			}
		}
		b.compareBytes(rt)
	})
}

// BenchmarkSetAttribute sets attributes of 1,000 devices by eight clients: the writes that a commit takes together.
func BenchmarkSetAttribute(b *testing.B) {
	w := newBench(b, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 1 << 40}})
	w.fleet(1000)
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 8 {
		wg.Go(func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					return
				}
				q := AttributeSet{AttributeRef{"device", fmt.Sprint("f", i*7919%1000+1), ScopeServer, fmt.Sprint("key", i%10)}, ValueDouble, new(fmt.Sprint(i))}
				if _, err := w.Attributes.Set(b.Context(), acme, q); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sets/s")
}

// Whoever hands devices what they may read hears of each change, of SHARED attributes alone, and reads what was committed.
func TestAChangeOfASharedAttributeIsToldAfterItsCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	_, _, d := b.seed()
	must(b.Kinds.Of("asset_types").Create(b.Context(), acme, store.Patch{"token": "at"}))(b)
	must(b.Kinds.Of("assets").Create(b.Context(), acme, store.Patch{"token": "a", "assetTypeToken": "at"}))(b)
	var told []int64
	b.Attributes.OnShared(func(device int64) { told = append(told, device) })
	read := func() string {
		return string(must(b.Attributes.SharedSets(b.Context(), model.Binding{TenantID: acme.TenantID, DeviceID: d.ID}))(b)[0].Body)
	}
	expect := func(what string, times int, attributes string) {
		t.Helper()
		if got := read(); !strings.HasSuffix(got, `"attributes":`+attributes+"}") || len(told) != times {
			t.Errorf("%s: told %v, and the set is %s", what, told, got)
		}
		told = nil
	}
	expect("nothing", 0, `{}`)
	b.set(attribute(ScopeShared, "k", ValueLong, new("+5")))
	expect("the first", 1, `{"k":5}`)
	b.set(attribute(ScopeShared, "k", ValueLong, new("+5")))
	expect("the same once more", 0, `{"k":5}`)
	b.set(attribute(ScopeShared, "k", ValueString, new("+5")))
	b.set(attribute(ScopeShared, "on", ValueBoolean, new("false")))
	expect("two", 2, `{"k":"+5","on":false}`)
	b.set(attribute(ScopeServer, "s", ValueLong, new("1")))
	b.set(attribute(ScopeClient, "c", ValueLong, new("1")))
	b.set(AttributeSet{AttributeRef{EntityAsset, "a", ScopeShared, "k"}, ValueLong, new("1")})
	expect("other scopes and entities", 0, `{"k":"+5","on":false}`)
	b.set(attribute(ScopeShared, "k", ValueString, nil))
	expect("null", 1, `{"k":null,"on":false}`)
	must(b.Attributes.Delete(b.Context(), acme, attribute(ScopeShared, "k", "", nil).AttributeRef))(b)
	expect("a delete", 1, `{"on":false}`)
	if got := string(must(b.Attributes.SharedSets(b.Context(), model.Binding{TenantID: acme.TenantID + 1, DeviceID: d.ID}))(b)[0].Body); !strings.HasSuffix(got, `"attributes":{}}`) {
		t.Errorf("under another tenant the device has %s", got)
	}
	must(b.Devices.Delete(b.Context(), acme, "d"))(b)
	expect("the device is deleted", 1, `{}`)
}
