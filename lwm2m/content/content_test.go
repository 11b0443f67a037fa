package content

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

const now = 1_700_000_000

// show writes records as tests expect them.
func show(records []Record) string {
	var all []string
	for _, r := range records {
		s := r.Path.String() + "="
		switch v := r.Value; v.Kind {
		case Bytes:
			s += fmt.Sprintf("x%x", v.Bytes)
		case String:
			s += fmt.Sprintf("%q", v.Text)
		case Link:
			s += v.Text
		case Boolean:
			s += fmt.Sprint(v.Bool)
		case Float:
			s += fmt.Sprintf("%gf", v.Float)
		case Time:
			s += fmt.Sprintf("%dt", v.Int)
		case Unsigned:
			s += fmt.Sprintf("%du", uint64(v.Int))
		default:
			s += fmt.Sprint(v.Int)
		}
		if r.HasTime {
			s += fmt.Sprintf("@%g", r.At)
		}
		all = append(all, s)
	}
	return strings.Join(all, " ")
}

// golden are payloads of clients and of the examples of the enabler. "" stands for a payload that is refused.
var golden = []struct {
	name   string
	format uint16
	base   string
	hex    string // or text after a !
	want   string
}{
	{"TLV of the device object, from the enabler 1.0", TLV, "/3/0", "c800144f70656e204d6f62696c6520416c6c69616e6365" + "c801164c69676874776569676874204d324d20436c69656e74" + "c80209333435303030313233" + "c303312e30" +
		"860641000141010" + "5" + "88070842000ed842011388" + "8708410" + "07d42010384" + "c10964" + "c10a0f" + "830b410000" + "c40d5182428f" + "c60e2b30323a3030" + "c11055",
		`/3/0/0="Open Mobile Alliance" /3/0/1="Lightweight M2M Client" /3/0/2="345000123" /3/0/3="1.0" /3/0/6/0=1 /3/0/6/1=5 /3/0/7/0=3800 /3/0/7/1=5000 /3/0/8/0=125 /3/0/8/1=900 /3/0/9=100 /3/0/10=15 /3/0/11/0=0 /3/0/13=1367491215t /3/0/14="+02:00" /3/0/16="U"`},
	{"TLV of an object with two instances", TLV, "/2", "080012" + "c10001" + "c10100" + "830241" + "7f07" + "c1037f" + "000000", ""},
	{"TLV of several instances", TLV, "/3303", "0800" + "08" + "e41644" + "41c80000" + "00" + "080100", ""},
	{"TLV of a sensor, wrapped", TLV, "/3303/0", "070" + "0" + "e41644" + "41c80000", "/3303/0/5700=25f"},
	{"TLV of a sensor, bare", TLV, "/3303/0", "e41644" + "41c80000", "/3303/0/5700=25f"},
	{"TLV of a resource", TLV, "/3303/0/5700", "e8164408" + "4039000000000000", "/3303/0/5700=25f"},
	{"TLV of an object", TLV, "/3303", "0700e4164441c80000" + "0701e4164441c80000", "/3303/0/5700=25f /3303/1/5700=25f"},
	{"TLV, old number", 1542, "/3303/0/5700", "e4164441c80000", "/3303/0/5700=25f"},
	{"TLV of a resource that is not known", TLV, "/4000/0/1", "c10105", "/4000/0/1=x05"},
	{"TLV of an integer without a byte", TLV, "/3/0/9", "c009", "/3/0/9=0"},
	{"TLV of a negative integer", TLV, "/3/0/9", "c109ff", "/3/0/9=-1"},
	{"TLV of a boolean", TLV, "/3342/0/5500", "e1157c01", "/3342/0/5500=true"},
	{"TLV of an object link", TLV, "/3/0/22", "8616" + "440000030001", "/3/0/22/0=3:1"},
	{"TLV of an instance of a resource", TLV, "/3/0/6/1", "410105", "/3/0/6/1=5"},
	{"TLV of an instance of a resource, wrapped", TLV, "/3/0/6/1", "8306410105", "/3/0/6/1=5"},
	{"TLV of nothing", TLV, "/3303/0", "", "-"},
	{"TLV of another resource", TLV, "/3303/0/5700", "e4164541c80000", ""},
	{"TLV of another instance", TLV, "/3303/0", "0701e4164441c80000", ""},
	{"TLV, cut off", TLV, "/3303/0", "e4164441c8", ""},
	{"TLV with a float of 3 bytes", TLV, "/3303/0/5700", "e3164441c800", ""},
	{"TLV with an integer of 3 bytes", TLV, "/3/0/9", "c309000001", ""},
	{"TLV with a boolean of 2", TLV, "/3342/0/5500", "e1157c02", ""},
	{"text", Text, "/3303/0/5700", "!21.5", "/3303/0/5700=21.5f"},
	{"text of an integer", Text, "/3/0/9", "!80", "/3/0/9=80"},
	{"text of a boolean", Text, "/3342/0/5500", "!1", "/3342/0/5500=true"},
	{"text of a string of digits", Text, "/3/0/2", "!345000123", `/3/0/2="345000123"`},
	{"text of what is not known", Text, "/4000/0/1", "!x", `/4000/0/1="x"`},
	{"text for an instance", Text, "/3303/0", "!21.5", ""},
	{"opaque", Opaque, "/5/0/0", "0102", "/5/0/0=x0102"},
	{"CBOR of a float", CBOR, "/3303/0/5700", "fb4035800000000000", "/3303/0/5700=21.5f"},
	{"CBOR of half a float", CBOR, "/3303/0/5700", "f94d60", "/3303/0/5700=21.5f"},
	{"CBOR of an integer for a float", CBOR, "/3303/0/5700", "1815", "/3303/0/5700=21f"},
	{"CBOR of a time", CBOR, "/3/0/13", "c11a514b67b0", "/3/0/13=1363896240t"},
	{"CBOR of a text in chunks", CBOR, "/3/0/0", "7f6161" + "6162ff", `/3/0/0="ab"`},
	{"CBOR with more behind it", CBOR, "/3/0/9", "0101", ""},
	{"CBOR cut off", CBOR, "/3/0/9", "18", ""},
	{"SenML-JSON", SenMLJSON, "/3303/0", `![{"bn":"/3303/0/","n":"5700","v":21.5},{"n":"5601","v":-3},{"n":"5701","vs":"Cel"}]`, `/3303/0/5700=21.5f /3303/0/5601=-3f /3303/0/5701="Cel"`},
	{"SenML-JSON with all of them", SenMLJSON, "/", `![{"bn":"/3/0/","n":"9","v":80},{"n":"0","vs":"W"},{"bn":"/3342/0/5500","vb":true},{"bn":"/5/0/0","vd":"AQI"},{"bn":"/3/0/22/0","vlo":"3:1"}]`,
		`/3/0/9=80 /3/0/0="W" /3342/0/5500=true /5/0/0=x0102 /3/0/22/0=3:1`},
	{"SenML-JSON, slashes doubled and missing", SenMLJSON, "/", `![{"bn":"3303/0//","n":"/5700","v":1}]`, "/3303/0/5700=1f"},
	{"SenML-JSON with an absolute time", SenMLJSON, "/", `![{"bn":"/3303/0/5700","bt":1600000000,"v":1},{"t":5,"v":2}]`, "/3303/0/5700=1f@1.6e+09 /3303/0/5700=2f@1.600000005e+09"},
	{"SenML-JSON with a relative time", SenMLJSON, "/", `![{"bn":"/3303/0/5700","t":-10,"v":1}]`, "/3303/0/5700=1f@1.69999999e+09"},
	{"SenML-JSON with a time beyond all", SenMLJSON, "/", `![{"bn":"/3303/0/5700","t":1e300,"v":1}]`, "/3303/0/5700=1f"},
	{"SenML-JSON with a base value", SenMLJSON, "/", `![{"bn":"/3303/0/5700","bv":20,"v":1.5}]`, "/3303/0/5700=21.5f"},
	{"SenML-JSON of version 10", SenMLJSON, "/", `![{"bver":10,"bn":"/3303/0/5700","v":1}]`, "/3303/0/5700=1f"},
	{"SenML-JSON of version 11", SenMLJSON, "/", `![{"bver":11,"bn":"/3303/0/5700","v":1}]`, ""},
	{"SenML-JSON without a resource", SenMLJSON, "/", `![{"bn":"/3303/0","v":1}]`, ""},
	{"SenML-JSON with another name", SenMLJSON, "/", `![{"n":"temperature","v":1}]`, ""},
	{"SenML-JSON of no array", SenMLJSON, "/", `!{"n":"/3303/0/5700","v":1}`, ""},
	{"SenML-JSON and more", SenMLJSON, "/", `![] []`, ""},
	{"SenML-JSON of a number that is too large", SenMLJSON, "/", `![{"n":"/3303/0/5700","v":1e400}]`, ""},
	{"SenML-CBOR", SenMLCBOR, "/3303/0", "82" + "a3" + "21682f333330332f302f" + "006435373030" + "02fb4035800000000000" + "a2" + "006435363031" + "0222", "/3303/0/5700=21.5f /3303/0/5601=-3f"},
	{"SenML-CBOR with a boolean, a time and a link", SenMLCBOR, "/", "82" + "a3" + "006c2f333334322f302f35353030" + "04f5" + "061a5f5e1000" + "a2" + "00692f332f302f32322f30" + "63766c6f63333a31", "/3342/0/5500=true@1.6e+09 /3/0/22/0=3:1"},
	{"SenML-CBOR of no array", SenMLCBOR, "/", "a0", ""},
	{"SenML-CBOR that nests", SenMLCBOR, "/", "81a10081818181818181818181818181", ""},
	{"SenML-CBOR of a long array", SenMLCBOR, "/", "9affffffff", ""},
	{"LwM2M JSON", JSON, "/3303/0", `!{"bn":"/3303/0","e":[{"n":"5700","v":21.5},{"n":"5701","sv":"Cel"}]}`, `/3303/0/5700=21.5f /3303/0/5701="Cel"`},
	{"LwM2M JSON without a base", JSON, "/3303/0", `!{"e":[{"n":"5700","v":21.5}]}`, "/3303/0/5700=21.5f"},
	{"LwM2M JSON of a resource", JSON, "/3342/0/5500", `!{"e":[{"bv":true}]}`, "/3342/0/5500=true"},
	{"LwM2M CBOR", LwM2MCBOR, "/3303", "a1" + "190ce7" + "a2" + "00a1" + "191644" + "fb4035800000000000" + "01a1" + "191644" + "01", "/3303/0/5700=21.5f /3303/1/5700=1f"},
	{"LwM2M CBOR with keys of several numbers", LwM2MCBOR, "/3/0", "a1" + "820300" + "a1" + "091850", "/3/0/9=80"},
	{"LwM2M CBOR of another object", LwM2MCBOR, "/3303", "a1" + "820300" + "a1" + "091850", ""},
	{"LwM2M CBOR too deep", LwM2MCBOR, "/3", "a103a100a109a101a10105", ""},
	{"a format that is not known", 65000, "/3/0", "00", ""},
}

func payload(t testing.TB, s string) []byte {
	t.Helper()
	if text, ok := strings.CutPrefix(s, "!"); ok {
		return []byte(text)
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPayloads(t *testing.T) {
	t.Parallel()
	for _, tc := range golden {
		base, _ := ParsePath(tc.base)
		got, err := Decode(tc.format, base, payload(t, tc.hex), now)
		switch {
		case tc.want == "":
			if err == nil || !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnknownFormat) {
				t.Errorf("%s: %s, %v, want a refusal", tc.name, show(got), err)
			}
		case err != nil || show(got) != strings.Trim(tc.want, "-") && show(got) != tc.want:
			t.Errorf("%s:\n%s, %v, want\n%s", tc.name, show(got), err, tc.want)
		}
	}
}

// TestWhatIsWrittenIsRead: each format reads what it has written.
func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	records := []Record{
		{Path: Path{3, 0, 0}, Value: Value{Kind: String, Text: "W"}}, {Path: Path{3, 0, 6, 0}, Value: Value{Kind: Integer, Int: 1}}, {Path: Path{3, 0, 6, 300}, Value: Value{Kind: Integer, Int: -70000}},
		{Path: Path{3, 0, 9}, Value: Value{Kind: Integer, Int: 1 << 40}}, {Path: Path{3, 0, 13}, Value: Value{Kind: Time, Int: 1_700_000_000}}, {Path: Path{3, 0, 22, 0}, Value: Value{Kind: Link, Text: "3:1"}},
	}
	sensor := []Record{{Path: Path{3303, 0, 5700}, Value: Value{Kind: Float, Float: 0.1}}, {Path: Path{3303, 0, 5701}, Value: Value{Kind: String, Text: strings.Repeat("x", 300)}}, {Path: Path{3303, 2, 5700}, Value: Value{Kind: Float, Float: math.MaxFloat64}}}
	for _, format := range []uint16{TLV, SenMLJSON, SenMLCBOR} {
		for _, tc := range []struct {
			base    Path
			records []Record
		}{{Path{3, 0}, records}, {Path{3303}, sensor}, {Path{3342, 0}, []Record{{Path: Path{3342, 0, 5500}, Value: Value{Kind: Boolean, Bool: true}}}}, {Path{5, 0}, []Record{{Path: Path{5, 0, 0}, Value: Value{Kind: Bytes, Bytes: make([]byte, 70_000)}}}}} {
			b, err := Encode(format, tc.base, tc.records)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(format, tc.base, b, now)
			if err != nil || show(got) != show(tc.records) {
				t.Errorf("%s of %s:\n%.300s, %v, want\n%.300s", Name(format), tc.base, show(got), err, show(tc.records))
			}
		}
	}
	for _, format := range []uint16{Text, CBOR} {
		for _, r := range records {
			b, err := Encode(format, r.Path, []Record{r})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Decode(format, r.Path, b, now); err != nil || show(got) != show([]Record{r}) && format == Text {
				t.Errorf("%s of %s: %s, %v, want %s", Name(format), r.Path, show(got), err, show([]Record{r}))
			}
		}
	}
	if _, err := Encode(Text, nil, records); err == nil {
		t.Error("several values as text")
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{"/3": "/3", "3/0": "/3/0", "/3303/0/5700": "/3303/0/5700", "/3/0/6/1": "/3/0/6/1", "/65535": "/65535"} {
		if p, ok := ParsePath(s); !ok || p.String() != want {
			t.Errorf("%s: %s %v", s, p, ok)
		}
	}
	for _, s := range []string{"", "/", "/03", "/3/", "//3", "/3/0/6/1/2", "/65536", "/-1", "/+1", "/3/x", "/3 /0", "/3/0/5?x", strings.Repeat("/1", 100)} {
		if p, ok := ParsePath(s); ok {
			t.Errorf("%q is %s", s, p)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	all, err := ParseLinks([]byte(`</lwm2m>;rt="oma.lwm2m";ct="60 110 112 11542 11543",</lwm2m/1/0>,</lwm2m/3>;ver=1.1;x,</lwm2m/3303/0>, </other>`))
	if err != nil || len(all) != 5 {
		t.Fatal(all, err)
	}
	if all[1].Path.String() != "/1/0" || all[3].Path.String() != "/3303/0" || all[4].Path != nil || all[0].Path != nil {
		t.Errorf("%+v", all)
	}
	if v, ok := all[2].Get("ver"); !ok || v != "1.1" {
		t.Error(v, ok)
	}
	if ct, _ := all[0].Get("ct"); ct != "60 110 112 11542 11543" {
		t.Error(ct)
	}
	all, err = ParseLinks([]byte(`</3/0>;pmin=10;pmax=60,</3/0/6>;dim=8,</3/0/9>;gt=50;st="a\"b"`))
	if err != nil || len(all) != 3 || all[2].Path.String() != "/3/0/9" || all[2].Attributes[1].Value != `a"b` {
		t.Errorf("%+v %v", all, err)
	}
	for _, s := range []string{"x", "<", "</3/0", "</3/0>,", "</3/0>x", `</3>;a="x`, `</3>;a="x\`, "</3>;=1", "</3>" + strings.Repeat(";a", 40), strings.Repeat("</1>,", 2000) + "</1>"} {
		if all, err := ParseLinks([]byte(s)); !errors.Is(err, ErrFormat) {
			t.Errorf("%.30s: %v %v", s, all, err)
		}
	}
}

// FuzzDecode: no payload of any format makes Decode fail otherwise than with an error.
func FuzzDecode(f *testing.F) {
	for _, tc := range golden {
		f.Add(tc.format, tc.base, payload(f, tc.hex))
	}
	f.Fuzz(func(t *testing.T, format uint16, base string, b []byte) {
		at, _ := ParsePath(base)
		records, err := Decode(format, at, b, now)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnknownFormat) {
				t.Fatal(err)
			}
			return
		}
		if len(records) > MaxRecords {
			t.Fatal(len(records))
		}
		for _, r := range records {
			if len(r.Path) < 3 {
				t.Fatalf("%s", r.Path)
			}
			r.Value.Number()
			FormatText(r.Value)
		}
		for _, to := range []uint16{TLV, SenMLJSON, SenMLCBOR} {
			if _, err := Encode(to, nil, records); err != nil && to == SenMLCBOR {
				t.Fatal(err)
			}
		}
	})
}

// FuzzLinks is FuzzDecode for link format.
func FuzzLinks(f *testing.F) {
	f.Add(`</lwm2m>;rt="oma.lwm2m";ct="60 110",</lwm2m/1/0>,</lwm2m/3>;ver=1.1;x`)
	f.Add(`</3/0/9>;gt=50;st="a\"b"`)
	f.Fuzz(func(t *testing.T, s string) {
		if all, err := ParseLinks([]byte(s)); err != nil && !errors.Is(err, ErrFormat) || len(all) > maxLinks {
			t.Fatal(len(all), err)
		}
	})
}
