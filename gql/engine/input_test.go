package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"weir/internal/test/conformance"
)

const updateByVariable = `mutation($r: DeviceUpdateRequest!) { updateDevice(token: "d1", request: $r) }`

// Each update in every way in which it can be written must be understood alike.
func TestAnUpdateKnowsAbsentNullAndValueApartInLiteralsAndVariables(t *testing.T) {
	w := newWorld(t, Config{})
	for _, c := range []struct{ fields, literal, want string }{
		{`{}`, `{}`, `{}`},
		{`{"name":null}`, `{name: null}`, `{"name":null}`},
		{`{"name":""}`, `{name: ""}`, `{"name":""}`},
		{`{"name":"x","state":"RETIRED"}`, `{name: "x", state: RETIRED}`, `{"name":"x","state":"RETIRED"}`},
		{`{"where":{"lat":1,"lon":null}}`, `{where: {lat: 1, lon: null}}`, `{"where":{"lat":1,"lon":null}}`},
		{`{"points":[{"lat":1.5},{"lat":-2e3,"label":"b"}]}`, `{points: [{lat: 1.5}, {lat: -2e3, label: "b"}]}`,
			`{"points":[{"lat":1.5},{"label":"b","lat":-2000}]}`},
		{`{"points":{"lat":1}}`, `{points: {lat: 1}}`, `{"points":[{"lat":1}]}`},
		{`{"points":[]}`, `{points: []}`, `{"points":[]}`},
		{`{"enabled":false,"limit":-2147483648,"ratio":3,"kindId":12}`, `{enabled: false, limit: -2147483648, ratio: 3, kindId: 12}`,
			`{"enabled":false,"kindId":"12","limit":-2147483648,"ratio":3}`},
	} {
		fields := testVars(t, c.fields)
		var names, uses []string
		for _, name := range sortedKeys(fields) {
			typ := w.engine.schema.Types["DeviceUpdateRequest"].Fields.ForName(name).Type
			names, uses = append(names, fmt.Sprintf("$%s: %s", name, typ)), append(uses, fmt.Sprintf("%s: $%s", name, name))
		}
		// One more that is declared and not sent must stay absent.
		one := fmt.Sprintf(`mutation(%s, $metadata: String) { updateDevice(token: "d1", request: {%s, metadata: $metadata}) }`,
			strings.Join(names, ", "), strings.Join(uses, ", "))
		for how, got := range map[string]string{
			"literal":         w.do(`mutation { updateDevice(token: "d1", request: `+c.literal+`) }`, ``),
			"variable":        w.do(updateByVariable, `{"r":`+c.fields+`}`),
			"field by field":  w.do(one, c.fields),
			"variable before": w.do(`mutation($r: DeviceUpdateRequest! = `+c.literal+`) { updateDevice(token: "d1", request: $r) }`, ``),
		} {
			want, _ := json.Marshal(map[string]any{"data": map[string]any{"updateDevice": c.want}})
			if got != string(want) {
				t.Errorf("%s as %s:\ngot  %s\nwant %s", c.fields, how, got, want)
			}
		}
	}
}

func TestInputsAreRefusedWithTheWordsOfGraphqlJS(t *testing.T) {
	w := newWorld(t, Config{})
	for _, c := range []struct{ query, variables, want string }{
		// Unknown fields: literal, variable, nested, in a list.
		{`mutation { updateDevice(token: "d1", request: {nmae: "x"}) }`, ``,
			`Field "nmae" is not defined by type "DeviceUpdateRequest". Did you mean "name"?`},
		{updateByVariable, `{"r":{"nmae":"x"}}`,
			`Variable "$r" got invalid value { nmae: "x" }; Field "nmae" is not defined by type "DeviceUpdateRequest". Did you mean "name"?`},
		{updateByVariable, `{"r":{"where":{"lat":1,"lno":2}}}`,
			`Variable "$r" got invalid value { lat: 1, lno: 2 } at "r.where"; Field "lno" is not defined by type "Where". Did you mean "lon" or "lat"?`},
		{updateByVariable, `{"r":{"points":[{"lat":1},{"lat":1,"lebel":"a"}]}}`,
			`Variable "$r" got invalid value { lat: 1, lebel: "a" } at "r.points[1]"; Field "lebel" is not defined by type "Where". Did you mean "label"?`},
		{updateByVariable, `{"r":{"token":"d2"}}`,
			`Variable "$r" got invalid value { token: "d2" }; Field "token" is not defined by type "DeviceUpdateRequest".`},
		{`mutation { updateDevice(token: "d1", request: {token: "d2"}) }`, ``,
			`Field "token" is not defined by type "DeviceUpdateRequest".`},
		// Missing and null.
		{updateByVariable, ``, `Variable "$r" of required type "DeviceUpdateRequest!" was not provided.`},
		{updateByVariable, `{"r":null}`, `Variable "$r" of non-null type "DeviceUpdateRequest!" must not be null.`},
		{updateByVariable, `{"r":5}`, `Variable "$r" got invalid value 5; Expected type "DeviceUpdateRequest" to be an object.`},
		{updateByVariable, `{"r":{"where":{}}}`,
			`Variable "$r" got invalid value {} at "r.where"; Field "lat" of required type "Float!" was not provided.`},
		{updateByVariable, `{"r":{"where":{"lat":null}}}`,
			`Variable "$r" got invalid value null at "r.where.lat"; Expected non-nullable type "Float!" not to be null.`},
		{`mutation { updateDevice(token: "d1", request: {where: {}}) }`, ``, `Field "Where.lat" of required type "Float!" was not provided.`},
		{`mutation { updateDevice(token: "d1", request: {where: {lat: null}}) }`, ``, `Expected value of type "Float!", found null.`},
		{`mutation { updateDevice(token: "d1", request: 5) }`, ``, `Expected value of type "DeviceUpdateRequest", found 5.`},
		{`{ device(token: null) { id } }`, ``, `Expected value of type "String!", found null.`},
		{`{ device { id } }`, ``, `Field "device" argument "token" of type "String!" is required, but it was not provided.`},
		{`query($t: String = "d1") { device(token: $t) { id } }`, `{"t":null}`, `Expected value of type "String!", found null.`},
		{`query($b: Boolean = true) { ping @skip(if: $b) }`, `{"b":null}`, `Expected value of type "Boolean!", found null.`},
		{`query($x: Int) { echo(list: [1, $x]) }`, `{}`, `Variable "$x" of type "Int" used in position expecting type "Int!".`},
		// Leaves.
		{`query($x: Int) { echo(int: $x) }`, `{"x":"5"}`, `Variable "$x" got invalid value "5"; Int cannot represent non-integer value: "5"`},
		{`query($x: Int) { echo(int: $x) }`, `{"x":1.5}`, `Variable "$x" got invalid value 1.5; Int cannot represent non-integer value: 1.5`},
		{`query($x: Int) { echo(int: $x) }`, `{"x":2147483648}`,
			`Variable "$x" got invalid value 2147483648; Int cannot represent non 32-bit signed integer value: 2147483648`},
		{`{ echo(int: 2147483648) }`, ``, `Int cannot represent non 32-bit signed integer value: 2147483648`},
		{`{ echo(int: "5") }`, ``, `Int cannot represent non-integer value: "5"`},
		{`{ echo(int: 5.0) }`, ``, `Int cannot represent non-integer value: 5.0`},
		{`{ echo(int: [5]) }`, ``, `Int cannot represent non-integer value: [5]`},
		{`{ echo(float: "5") }`, ``, `Float cannot represent non numeric value: "5"`},
		{`{ echo(float: 1e999) }`, ``, `Float cannot represent non numeric value: 1e999`},
		{`query($x: Float) { echo(float: $x) }`, `{"x":1e999}`, `Variable "$x" got invalid value 1e999; Float cannot represent non numeric value: 1e999`},
		{`{ echo(string: 5) }`, ``, `String cannot represent a non string value: 5`},
		{`{ echo(bool: "true") }`, ``, `Boolean cannot represent a non boolean value: "true"`},
		{`query($x: Boolean) { echo(bool: $x) }`, `{"x":1}`, `Variable "$x" got invalid value 1; Boolean cannot represent a non boolean value: 1`},
		{`{ echo(id: 1.5) }`, ``, `ID cannot represent a non-string and non-integer value: 1.5`},
		{`query($x: State) { echo(state: $x) }`, `{"x":"active"}`,
			`Variable "$x" got invalid value "active"; Value "active" does not exist in "State" enum. Did you mean the enum value "ACTIVE"?`},
		{`query($x: State) { echo(state: $x) }`, `{"x":1}`, `Variable "$x" got invalid value 1; Enum "State" cannot represent non-string value: 1.`},
		{`{ echo(state: RETIERD) }`, ``, `Value "RETIERD" does not exist in "State" enum. Did you mean the enum value "RETIRED"?`},
		{`{ echo(state: "ACTIVE") }`, ``, `Enum "State" cannot represent non-enum value: "ACTIVE". Did you mean the enum value "ACTIVE"?`},
		{`query($x: [Int!]) { echo(list: $x) }`, `{"x":[1,null]}`,
			`Variable "$x" got invalid value null at "x[1]"; Expected non-nullable type "Int!" not to be null.`},
		{`query($x: Int = "a") { echo(int: $x) }`, ``, `Int cannot represent non-integer value: "a"`},
		// Secrets are not quoted back.
		{`query($x: Credential) { echo(c: $x) }`, `{"x":{"secret":"s3cret","nmae":1}}`,
			`Variable "$x" got invalid value { nmae: 1, secret: *** }; Field "nmae" is not defined by type "Credential". Did you mean "name"?`},
		// Names.
		{`{ pign }`, ``, `Cannot query field "pign" on type "Query". Did you mean "ping"?`},
		{`{ device(tokn: "a", token: "b") { id } }`, ``, `Unknown argument "tokn" on field "Query.device". Did you mean "token"?`},
		{`query($r: Devices) { ping }`, ``, `Unknown type "Devices".`},
		{`{ ping @defer }`, ``, `Unknown directive "@defer".`},
	} {
		got := w.do(c.query, c.variables)
		want, _ := json.Marshal(c.want)
		if !strings.Contains(got, `{"message":`+string(want)) || strings.Contains(got, `"data"`) {
			t.Errorf("%s %s\ngot  %s\nwant %s", c.query, c.variables, got, want)
		}
	}
	if w.calls != 0 {
		t.Errorf("%d resolvers ran", w.calls)
	}
	conformance.Shown(t, "S3-103", "S3-104")
}

func TestNoFieldOfARefusedRequestRuns(t *testing.T) {
	w := newWorld(t, Config{})
	for _, query := range []string{
		`mutation($r: DeviceUpdateRequest!) { touch(token: "a") { id } updateDevice(token: "d1", request: $r) }`,
		`mutation { touch(token: "a") { id } updateDevice(token: "d1", request: {nmae: "x"}) }`,
	} {
		got := w.do(query, `{"r":{"nmae":"x"}}`)
		if !strings.Contains(got, "nmae") || strings.Contains(got, `"data"`) || len(w.touched) != 0 {
			t.Errorf("%s: %s, touched %v", query, got, w.touched)
		}
	}
	conformance.Shown(t, "S3-105")
}

func TestDefaultsAndMissingVariables(t *testing.T) {
	w := newWorld(t, Config{})
	for _, c := range []struct{ query, variables, want string }{
		{`{ echo(d: {}) }`, ``, `{"d":{"size":7,"state":"ACTIVE","unit":"mm"}}`},
		{`{ echo(d: {unit: null, size: 1}) }`, ``, `{"d":{"size":1,"state":"ACTIVE","unit":null}}`},
		{`query($d: WithDefaults) { echo(d: $d) }`, `{"d":{"unit":null}}`, `{"d":{"size":7,"state":"ACTIVE","unit":null}}`},
		{`query($s: Int, $u: String) { echo(d: {size: 2, unit: $u}, int: $s) }`, `{}`, `{"d":{"size":2,"state":"ACTIVE","unit":"mm"}}`},
		{`query($s: Int) { echo(int: $s) }`, `{"s":null}`, `{"int":null}`},
		{`query($s: Int = 4) { echo(int: $s) }`, `{"s":null}`, `{"int":null}`},
		{`query($s: Int = 4) { echo(int: $s) }`, ``, `{"int":4}`},
		{`query($s: Int) { echo(lists: [[1, $s], null, $s]) }`, ``, ``},
		{`{ echo(lists: [[1], null, [2, null]]) }`, ``, `{"lists":[[1],null,[2,null]]}`},
		{`query($x: [[Int]]) { echo(lists: $x) }`, `{"x":3}`, `{"lists":[[3]]}`},
		{`{ echo(list: 3, id: 5, float: 4) }`, ``, `{"float":4,"id":"5","list":[3]}`},
		{`query($x: Int) { echo(int: $x) }`, `{"x":5.0}`, `{"int":5}`},
		{`query($x: Int) { echo(int: $x) }`, `{"x":1e3,"unasked":1}`, `{"int":1000}`},
		{`{ echo(string: """
			block
			  "text"
			""") }`, ``, `{"string":"block\n  \"text\""}`},
	} {
		got := w.do(c.query, c.variables)
		want, _ := json.Marshal(map[string]any{"data": map[string]any{"echo": c.want}})
		if c.want == "" { // an Int where a list stands: refused
			if strings.Contains(got, `"data"`) {
				t.Errorf("%s: %s", c.query, got)
			}
			continue
		}
		if got != string(want) {
			t.Errorf("%s %s\ngot  %s\nwant %s", c.query, c.variables, got, want)
		}
	}
}

func TestDocumentSyntaxThatOtherLanguagesAllowIsRefused(t *testing.T) {
	w := newWorld(t, Config{})
	for _, query := range []string{
		"{ ping } // comment", "{ ping /* comment */ }", "{ echo(string: `x`) }", "{ echo(string: 'x') }",
		`{ echo(string: "a" "b") }`, `{ echo(string: "a""b") }`, "", " ", "# only a comment", "{", "{ }", "query", "{ ping } }", "fragment F on Query { ping }",
		`{ echo(string: "\x") }`, "{ echo(string: \"a\nb\") }", "{ ping }\x00", `{ echo(int: 01) }`, `{ echo(int: 0x1) }`, `subscription { counts refused }`,
		`query A { ping } query A { ping }`, `query A { ping } { ping }`, `{ ...F } fragment F on Query { ...F }`,
	} {
		got := w.do(query, ``)
		if !strings.HasPrefix(got, `{"errors":[{"message":"`) || strings.Contains(got, "internal error") {
			t.Errorf("%q: %s", query, got)
		}
	}
	for _, query := range []string{"# comment\n{ ping }", "\ufeff{ping}", `"what it does" query { ping }`, "{,,ping,,}"} {
		if got := w.do(query, ``); got != `{"data":{"ping":"pong"}}` {
			t.Errorf("%q: %s", query, got)
		}
	}
	if w.log.String() != "" {
		t.Error(w.log.String())
	}
}

// Whatever value is sent, as a variable or written into the document, is understood or refused alike.
func TestLiteralsAndVariablesAgree(t *testing.T) {
	w := newWorld(t, Config{})
	enum := rapid.SampledFrom([]string{"ACTIVE", "RETIRED", "GONE"})
	rapid.Check(t, func(rt *rapid.T) {
		typ := rapid.SampledFrom([]string{"Int", "Float", "String", "Boolean", "ID", "[Int!]", "[[Int]]", "Where", "WithDefaults", "State"}).Draw(rt, "type")
		arg := map[string]string{"Int": "int", "Float": "float", "String": "string", "Boolean": "bool", "ID": "id", "[Int!]": "list",
			"[[Int]]": "lists", "Where": "where", "WithDefaults": "d", "State": "state"}[typ]
		var literal, value string
		if typ == "State" {
			name := enum.Draw(rt, "enum")
			literal, value = name, strconv.Quote(name)
		} else {
			literal, value = drawValue(rt, 0)
		}
		byLiteral := w.do(fmt.Sprintf(`{ echo(%s: %s) }`, arg, literal), ``)
		byVariable := w.do(fmt.Sprintf(`query($v: %s) { echo(%s: $v) }`, typ, arg), `{"v":`+value+`}`)
		ok := strings.HasPrefix(byLiteral, `{"data"`)
		if ok != strings.HasPrefix(byVariable, `{"data"`) || ok && byLiteral != byVariable {
			rt.Fatalf("%s as %s:\n%s\n%s", value, typ, byLiteral, byVariable)
		}
	})
}

// drawValue draws a value as a GraphQL literal and as JSON. Whole numbers are written without a point, because only
// there do the two notations differ on purpose.
func drawValue(t *rapid.T, depth int) (literal, value string) {
	kinds := []string{"null", "int", "float", "string", "bool", "list", "object"}
	if depth > 2 {
		kinds = kinds[:5]
	}
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "int":
		s := strconv.FormatInt(rapid.OneOf(rapid.Int64Range(-5, 5), rapid.Int64Range(math.MinInt32-2, math.MinInt32+2),
			rapid.Int64Range(math.MaxInt32-2, math.MaxInt32+2), rapid.Int64()).Draw(t, "int"), 10)
		return s, s
	case "float":
		f := rapid.Float64Range(-1e6, 1e6).Filter(func(f float64) bool { return f != math.Trunc(f) }).Draw(t, "float")
		s := strconv.FormatFloat(f, 'f', -1, 64)
		return s, s
	case "string":
		s := rapid.StringMatching(`[a-z "\\/é]{0,5}`).Draw(t, "string")
		b, _ := json.Marshal(s)
		return string(b), string(b)
	case "bool":
		s := strconv.FormatBool(rapid.Bool().Draw(t, "bool"))
		return s, s
	case "list":
		var ls, vs []string
		for range rapid.IntRange(0, 3).Draw(t, "len") {
			l, v := drawValue(t, depth+1)
			ls, vs = append(ls, l), append(vs, v)
		}
		return "[" + strings.Join(ls, ", ") + "]", "[" + strings.Join(vs, ",") + "]"
	case "object":
		var ls, vs []string
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"lat", "lon", "label", "size", "unit", "lta"}), rapid.ID).Draw(t, "fields") {
			l, v := drawValue(t, depth+1)
			ls, vs = append(ls, name+": "+l), append(vs, strconv.Quote(name)+":"+v)
		}
		return "{" + strings.Join(ls, ", ") + "}", "{" + strings.Join(vs, ",") + "}"
	}
	return "null", "null"
}

func TestManyErrorsAndLongValuesStayShort(t *testing.T) {
	w := newWorld(t, Config{})
	var long strings.Builder
	long.WriteString(`{"r":{"` + strings.Repeat("é", 500) + `":"` + strings.Repeat("v", 5000) + `",`)
	for i := range 300 {
		fmt.Fprintf(&long, `"f%d":1,`, i)
	}
	got := w.do(updateByVariable, long.String()+`"points":[`+strings.Repeat("5,", 900)+`5]}}`)
	if len(got) > 20_000 || !strings.Contains(got, "error limit reached") || !utf8.ValidString(got) {
		t.Errorf("%d bytes: %.300s", len(got), got)
	}
}

func FuzzRequest(f *testing.F) {
	w := newWorld(f, Config{Limits: Limits{Cost: 5000}})
	for _, seed := range [][2]string{
		{updateByVariable, `{"r":{"name":null,"where":{"lat":1}}}`},
		{`query($n: String!) { device(token: $n) { ...B note(prefix: $n) @skip(if: false) } } fragment B on Device { id }`, `{"n":"d1"}`},
		{`{ echo(lists: [[1], null], state: ACTIVE, where: {lat: 1e3}, string: """b""") }`, `{}`},
		{`{ entities { ... on Kind { devices(pageSize: 3) { broken } } } }`, `{"a":[{}]}`},
		{"{ ping } // x", `[]`}, {`query A($x: Int = 3) { a: echo(int: $x) } query B { ping }`, `{"x":1e5}`}, {`{a(b:"\ud800")}`, ``},
		{`subscription { counts }`, ``}, {`{ __schema { types { name } } }`, ``}, {"\xff{", "{\"a\":\"\xff\"}"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, query, variables string) {
		body, err := json.Marshal(map[string]any{"query": query})
		if err != nil {
			t.Fatal(err) // every text has a JSON form
		}
		body = append(body[:len(body)-1], []byte(`,"variables":`+variables+`}`)...)
		req, err := ParseRequest(body)
		if err != nil {
			req = Request{Query: query}
		}
		resp := w.engine.Execute(t.Context(), req)
		b, err := resp.MarshalJSON()
		if err != nil || !json.Valid(b) {
			t.Fatalf("%v: %s", err, b)
		}
		if len(resp.Errors) == 0 && resp.data == nil {
			t.Fatal("neither data nor errors")
		}
	})
}
