package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/model"
)

func TestBuildNamesEverythingThatDoesNotFit(t *testing.T) {
	nothing := func(context.Context, any, Args) (any, error) { return nil, nil }
	type thing struct {
		ID   string `gql:"id"`
		Name string `gql:"name"`
	}
	const sdl = `type Query { a: Thing, b: String } type Thing { id: ID!, name: String, at: String, list: [Int!] } `
	for _, c := range []struct {
		name     string
		sdl      string
		register func(a *Schema)
		want     []string
	}{
		{"schema with a fault", `type Query { a: Nothing }`, func(*Schema) {}, []string{"Undefined type Nothing"}},
		{"schema without a query", `type Other { a: Int }`, func(*Schema) {}, []string{"query root"}},
		{"resolvers missing", sdl, func(a *Schema) { a.Type("Thing", thing{}) },
			[]string{"Query.a has no resolver", "Query.b has no resolver", `Thing.at`, `Thing.list`}},
		{"resolver without a field", `type Query { b: String }`, func(a *Schema) {
			a.Query("b", nil, nothing)
			a.Query("c", nil, nothing)
			a.Field("Thing", "x", nothing)
		}, []string{"Query.c has a resolver", "Thing.x has a resolver"}},
		{"type without a binding", `type Query { a: Thing } type Thing { id: ID! }`, func(a *Schema) { a.Query("a", nil, nothing) },
			[]string{"Thing.id has no resolver and no Go type is bound"}},
		{"binding that the schema does not know", `type Query { b: String } input In { x: Int }`, func(a *Schema) {
			a.Query("b", nil, nothing)
			a.Type("Thing", thing{})
			a.Type("In", thing{})
		}, []string{"type Thing is bound", "type In is bound"}},
		{"tag that the schema does not know", `type Query { a: Thing } type Thing { id: ID! }`, func(a *Schema) {
			a.Query("a", nil, nothing)
			a.Type("Thing", thing{})
		}, []string{`tagged gql:"name", but type Thing has none`}},
		{"Go types that cannot be shown", `type Query { a: Thing } type Thing { id: ID!, name: Int, at: String, list: [Int!], sub: Thing, e: E } enum E { X }`, func(a *Schema) {
			a.Query("a", nil, nothing)
			a.Type("Thing", struct {
				ID   bool    `gql:"id"`
				Name string  `gql:"name"`
				At   int     `gql:"at"`
				List int     `gql:"list"`
				Sub  string  `gql:"sub"`
				E    float64 `gql:"e"`
			}{})
		}, []string{"Thing.id", "bool cannot be shown as ID!", "string cannot be shown as Int", "int cannot be shown as String",
			"int cannot be shown as [Int!]", "string cannot be shown as Thing", "float64 cannot be shown as E"}},
		{"bad samples", `type Query { b: String }`, func(a *Schema) {
			a.Query("b", nil, nothing)
			a.Type("Thing", 5)
			a.Type("Thing", nil)
			a.Type("Thing", struct {
				A int `gql:"x"`
				B int `gql:"x"`
			}{})
		}, []string{"int is neither", "<nil> is neither", `two fields tagged "x"`}},
		{"registered twice, without a function", `type Query { b: String }`, func(a *Schema) {
			a.Query("b", nil, nothing)
			a.Query("b", nil, nil)
		}, []string{"registered twice", "without a function"}},
		{"wrong kind of function", `type Query { b: String } type Subscription { s: Int }`, func(a *Schema) {
			a.Query("b", nil, nothing)
			a.Field("Subscription", "s", nothing)
		}, []string{"Subscription.s: a subscription takes a Subscriber"}},
		{"custom scalar", `scalar Time type Query { b: Time }`, func(a *Schema) { a.Query("b", nil, nothing) }, []string{"scalar Time is not supported"}},
		{"ambiguous union", `type Query { u: U } union U = A | B type A { id: ID! } type B { id: ID! }`, func(a *Schema) {
			a.Query("u", nil, nothing)
			type both struct {
				ID string `gql:"id"`
			}
			a.Type("A", both{})
			a.Type("B", both{})
		}, []string{"must implement TypeNamer"}},
		{"broken interface", `type Query { u: I } interface I { id: ID!, name: String } type A implements I { id: ID! }`, func(*Schema) {}, []string{"name"}},
	} {
		s := New(Config{}).Schema("x", c.sdl)
		c.register(s)
		_, err := s.Build()
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\ndoes not name %q", c.name, err, want)
			}
		}
	}
}

type testNamed struct{ Kind, ID string }

func (n testNamed) GraphQLType() string { return n.Kind }

func TestValuesOfManyGoTypesShow(t *testing.T) {
	a := New(Config{}).Schema("x", `type Query { v: V dyn: V u: U }
		type V { s: String t: String p: String n: String id: ID uid: ID i: Int big: Int small: Int u: Int f: Float nan: Float f32: Float fi: Float b: Boolean e: E l: [String!] nl: [Int!] v: V str: String }
		enum E { X Y } union U = A | B type A { id: ID } type B { id: ID }`)
	type V struct {
		S   string       `gql:"s"`
		T   time.Time    `gql:"t"`
		P   *string      `gql:"p"`
		N   *string      `gql:"n"`
		ID  int64        `gql:"id"`
		UID uint32       `gql:"uid"`
		I   int8         `gql:"i"`
		Big int64        `gql:"big"`
		Sm  int64        `gql:"small"`
		U   uint64       `gql:"u"`
		F   float64      `gql:"f"`
		NaN float64      `gql:"nan"`
		F32 float32      `gql:"f32"`
		Fi  int          `gql:"fi"`
		B   *bool        `gql:"b"`
		E   testState    `gql:"e"`
		L   []testState  `gql:"l"`
		NL  []*int       `gql:"nl"`
		V   *V           `gql:"v"`
		Str model.Micros `gql:"str"`
	}
	zero := 0.0
	v := V{S: "<a>\u2028", T: time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)), P: new("p"), ID: -5, UID: 9, I: -1, Big: 1 << 40,
		Sm: -1 << 40, U: 1 << 63, F: 1e21, NaN: zero / zero, F32: 0.5, Fi: 3, B: new(true), E: "Y", L: []testState{"a"}, NL: []*int{new(4)}, Str: 1}
	a.Type("V", V{}, map[string]any{})
	a.Type("A", testNamed{})
	a.Type("B", testNamed{})
	a.Query("v", nil, func(context.Context, any, Args) (any, error) { w := v; w.V = &v; return w, nil })
	a.Query("dyn", nil, func(context.Context, any, Args) (any, error) { return map[string]any{"s": "dynamic", "i": 4}, nil })
	a.Query("u", nil, func(context.Context, any, Args) (any, error) { return testNamed{"B", "b1"}, nil })
	a.Field("A", "id", On(func(_ context.Context, n testNamed, _ Args) (any, error) { return n.ID, nil }))
	a.Field("B", "id", On(func(_ context.Context, n testNamed, _ Args) (any, error) { return n.ID, nil }))
	e, err := a.Build()
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Execute(t.Context(), Request{Query: `{ v { s t p n id uid i big small u f nan f32 fi b e l nl str v { v { s } } } dyn { i s f } u { __typename ... on B { id } } }`}).MarshalJSON()
	want := `{"data":{"v":{"s":"\u003ca\u003e\u2028","t":"2026-01-02T02:04:05.000000006Z","p":"p","n":null,"id":"-5","uid":"9","i":-1,"big":2147483647,` +
		`"small":-2147483648,"u":2147483647,"f":1e+21,"nan":null,"f32":0.5,"fi":3,"b":true,"e":"Y","l":["a"],"nl":[4],"str":"1970-01-01T00:00:00.000001Z",` +
		`"v":{"v":null}},"dyn":{"i":4,"s":"dynamic","f":null},"u":{"__typename":"B","id":"b1"}}}`
	if err != nil || string(b) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, b, want)
	}
}

func TestDecodeFillsStructs(t *testing.T) {
	type in struct {
		Name  Opt[string]      `gql:"name"`
		Gone  Opt[string]      `gql:"gone"`
		Keep  Opt[int32]       `gql:"keep"`
		List  Opt[[]uint8]     `gql:"list"`
		Sub   *struct{ X int } `gql:"sub"`
		Plain string           `gql:"plain"`
		Ptr   *float64         `gql:"ptr"`
		Any   any              `gql:"any"`
		Map   map[string]any   `gql:"map"`
		Inner struct {
			A Opt[bool] `gql:"a"`
		} `gql:"inner"`
	}
	args := Args{map[string]any{"name": "n", "gone": nil, "list": []any{1, 2}, "plain": nil, "ptr": 2, "any": "x", "sub": nil,
		"map": map[string]any{"k": 1}, "inner": map[string]any{"a": nil}}}
	got := in{Plain: "before"}
	if err := args.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Name != (Opt[string]{Set: true, V: "n"}) || got.Gone != (Opt[string]{Set: true, Null: true}) || got.Keep.Set ||
		string(got.List.V) != "\x01\x02" || got.Plain != "before" || *got.Ptr != 2 || got.Any != "x" || got.Map["k"] != 1 || !got.Inner.A.Null || got.Sub != nil {
		t.Errorf("%+v", got)
	}
	for _, bad := range []any{in{}, new(int), &struct {
		Name int `gql:"name"`
	}{}, &struct {
		List []string `gql:"list"`
	}{}, &struct {
		Ptr chan int `gql:"ptr"`
	}{}, &struct {
		Map int `gql:"map"`
	}{}} {
		if err := args.Decode(bad); err == nil {
			t.Errorf("decoded into %T", bad)
		}
	}
	if v := (Opt[int]{Set: true, Null: true}).Or(5); v != 0 {
		t.Errorf("null over 5 = %d", v)
	}
	if v := (Opt[int]{}).Or(5); v != 5 {
		t.Errorf("absent over 5 = %d", v)
	}
}
