package sparkplug

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// golden are payloads of one metric "x" with the alias 3, the time 1700000000001 and the seq 7, as sparkplug-payload 1.0.3 (npm) encodes them.
var golden = []struct {
	hex   string
	kind  DataType
	value float64
	text  string
}{
	{"0880d095ffbc3112140a017810031881d095ffbc31200150fbffffff0f1807", Int8, -5, ""},
	{"0880d095ffbc3112140a017810031881d095ffbc31200250d4fdffff0f1807", Int16, -300, ""},
	{"0880d095ffbc3112140a017810031881d095ffbc3120035090ddfbff0f1807", Int32, -70000, ""},
	{"0880d095ffbc3112190a017810031881d095ffbc31200458809ce8afedffffffff011807", Int64, -5e9, ""},
	{"0880d095ffbc3112110a017810031881d095ffbc31200550fa011807", UInt8, 250, ""},
	{"0880d095ffbc3112120a017810031881d095ffbc31200650e8fb031807", UInt16, 65000, ""},
	{"0880d095ffbc3112140a017810031881d095ffbc3120075880d0acf30e1807", UInt32, 4e9, ""},
	{"0880d095ffbc3112140a017810031881d095ffbc3120085880e497d0121807", UInt64, 5e9, ""},
	{"0880d095ffbc3112130a017810031881d095ffbc312009650000c03f1807", Float, 1.5, ""},
	{"0880d095ffbc3112170a017810031881d095ffbc31200a6900000000000002c01807", Double, -2.25, ""},
	{"0880d095ffbc3112100a017810031881d095ffbc31200b70011807", Boolean, 1, ""},
	{"0880d095ffbc3112140a017810031881d095ffbc31200c7a04746578741807", String, 0, "text"},
	{"0880d095ffbc3112150a017810031881d095ffbc31200d5880d095ffbc311807", DateTime, 1.7e12, ""},
	{"0880d095ffbc3112190a017810031881d095ffbc31200e7a096c6f6e6720746578741807", Text, 0, "long text"},
	{"0880d095ffbc3112130a017810031881d095ffbc31200f7a03612d621807", UUID, 0, "a-b"},
	{"0880d095ffbc3112370a017810031881d095ffbc3120108a01260802120161120162180c180322090a033201780a020801220d0a033201790a0608feffffff0f1807", DataSet, 0,
		`{"columns":["a","b"],"types":[12,3],"rows":[["x",1],["y",-2]]}`},
	{"0880d095ffbc3112140a017810031881d095ffbc3120118201030102031807", Bytes, 0, "\x01\x02\x03"},
	{"0880d095ffbc3112120a017810031881d095ffbc312012820101091807", File, 0, "\x09"},
	{"0880d095ffbc3112310a017810031881d095ffbc3120139201200a0131120b0a016d200350f9ffffff0f1a070a0170100b3801220372656628001807", Template, 0,
		`{"isDefinition":false,"version":"1","templateRef":"ref","parameters":{"p":true},"metrics":{"m":-7}}`},
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPayloadsOfEveryType(t *testing.T) {
	t.Parallel()
	for _, g := range golden {
		p, err := Decode(unhex(t, g.hex))
		if err != nil || len(p.Metrics) != 1 || p.Seq != 7 || p.Timestamp != 1700000000000 {
			t.Errorf("type %d: %+v, %v", g.kind, p, err)
			continue
		}
		m := p.Metrics[0]
		if m.Name != "x" || !m.HasAlias || m.Alias != 3 || m.Timestamp != 1700000000001 || m.Type != g.kind || !m.Good || m.Null || m.Text != g.text {
			t.Errorf("type %d: %+v", g.kind, m)
		}
		if v, ok := m.number(m.Type); g.kind.isNumber() != ok || v != g.value {
			t.Errorf("type %d: %v %v", g.kind, v, ok)
		}
		if g.kind.isJSON() && !json.Valid([]byte(m.Text)) {
			t.Errorf("type %d: %s is no JSON", g.kind, m.Text)
		}
	}
}

// TestWholeNumbersInEitherField: edge nodes differ in where they put those of 32 bits.
func TestWholeNumbersInEitherField(t *testing.T) {
	t.Parallel()
	for _, v := range []Value{{Form: FormInt, Bits: 4000000000}, {Form: FormLong, Bits: 4000000000}} {
		if n, ok := v.number(UInt32); !ok || n != 4e9 {
			t.Errorf("%+v: %v %v", v, n, ok)
		}
	}
	minus := int64(-1)
	if n, ok := (&Value{Form: FormLong, Bits: uint64(minus)}).number(Int8); !ok || n != -1 {
		t.Error(n, ok)
	}
	for _, bad := range []struct {
		v Value
		t DataType
	}{{Value{Form: FormString, Text: "1"}, Int32}, {Value{Form: FormInt, Bits: 1}, Double}, {Value{Form: FormDouble}, Int32}, {Value{Form: FormBool}, Int32},
		{Value{Form: FormDouble, Bits: math.Float64bits(math.NaN())}, Double}, {Value{Form: FormFloat, Bits: uint64(math.Float32bits(float32(math.Inf(1))))}, Float}} {
		if n, ok := bad.v.number(bad.t); ok {
			t.Errorf("%+v is taken as %v of the type %d", bad.v, n, bad.t)
		}
	}
}

// arrays are those of the specification, section 6.4.17; those of floats with the lowest byte first, as all others.
var arrays = []struct {
	kind   DataType
	packed string
	want   string
}{
	{Int8Array, "e97b", "[-23,123]"},
	{Int16Array, "d08a3075", "[-30000,30000]"},
	{Int32Array, "ffffffff8738d112", "[-1,315701383]"},
	{Int64Array, "f4d8a5c1e0f5ffff0a00000000000000", "[-11129306359564,10]"},
	{UInt8Array, "17fa", "[23,250]"},
	{UInt16Array, "1e0088ff", "[30,65416]"},
	{UInt32Array, "3400000049fb55c4", "[52,3293969225]"},
	{UInt64Array, "3400000000000000ffffffffffffffff", "[52,18446744073709551615]"},
	{FloatArray, "a4709d3f98aeb242", "[1.23,89.341]"},
	{DoubleArray, "000000000000f03f000000000000f0ff", "[1,null]"},
	{BooleanArray, "0c00000034d0", "[false,false,true,true,false,true,false,false,true,true,false,true]"},
	{StringArray, "4142430068656c6c6f00", `["ABC","hello"]`},
	{StringArray, "", `[]`},
	{DateTimeArray, "00e8e5cf8b010000", "[1700000032768]"},
}

func TestArraysAsJSON(t *testing.T) {
	t.Parallel()
	for _, a := range arrays {
		got, ok := arrayJSON(a.kind, string(unhex(t, a.packed)))
		if !ok || got != a.want {
			t.Errorf("type %d: %s %v, want %s", a.kind, got, ok, a.want)
		}
	}
	for kind, packed := range map[DataType]string{Int16Array: "01", BooleanArray: "0c00000034", StringArray: "4142", DoubleArray: "0000", Bytes: "00", BooleanArray + 100: ""} {
		if got, ok := arrayJSON(kind, string(unhex(t, packed))); ok {
			t.Errorf("type %d of %s is taken as %s", kind, packed, got)
		}
	}
	for _, kind := range []DataType{Int8Array, BooleanArray} {
		packed := binary.LittleEndian.AppendUint32(nil, 1<<16)
		if got, ok := arrayJSON(kind, string(append(packed, make([]byte, 1<<13)...))); !ok || got != "" {
			t.Errorf("type %d beyond the bound: %v, %d bytes", kind, ok, len(got))
		}
	}
}

// pb builds messages of Protocol Buffers for tests.
type pb []byte

func (b pb) varint(n protowire.Number, v uint64) pb {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}
func (b pb) text(n protowire.Number, s string) pb {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}
func (b pb) msg(n protowire.Number, m pb) pb {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), m)
}
func (b pb) double(n protowire.Number, v float64) pb {
	return protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), math.Float64bits(v))
}

// nested is a template of n templates within one another.
func nested(n int) pb {
	inner := pb{}.text(4, "ref")
	for range n - 1 {
		inner = pb{}.text(4, "ref").msg(2, pb{}.text(1, "t").varint(4, 19).msg(18, inner))
	}
	return pb{}.msg(2, pb{}.text(1, "t").varint(4, 19).msg(18, inner))
}

// bad are payloads that are refused.
var bad = map[string]pb{
	"no protobuf":                      pb("hello"),
	"ends too early":                   {0x12, 5, 1},
	"seq over 255":                     pb{}.varint(3, 256),
	"seq that is a text":               pb{}.text(3, "1"),
	"a metric that is a number":        pb{}.varint(2, 1),
	"a name of 129 characters":         pb{}.msg(2, pb{}.text(1, strings.Repeat("ü", 129))),
	"a name that is not UTF-8":         pb{}.msg(2, pb{}.text(1, "\xff")),
	"an alias that is a text":          pb{}.msg(2, pb{}.text(2, "x")),
	"an int that is a text":            pb{}.msg(2, pb{}.text(10, "x")),
	"9 templates within one another":   nested(9),
	"a data set with a type too few":   pb{}.msg(2, pb{}.msg(17, pb{}.varint(1, 2).text(2, "a").text(2, "b").varint(3, 3))),
	"a data set with other columns":    pb{}.msg(2, pb{}.msg(17, pb{}.varint(1, 1).text(2, "a").text(2, "b").varint(3, 3).varint(3, 3))),
	"a row too short":                  pb{}.msg(2, pb{}.msg(17, pb{}.varint(1, 1).text(2, "a").varint(3, 3).msg(4, nil))),
	"a row too long":                   pb{}.msg(2, pb{}.msg(17, pb{}.varint(1, 1).text(2, "a").varint(3, 3).msg(4, pb{}.msg(1, nil).msg(1, nil)))),
	"a definition with a reference":    pb{}.msg(2, pb{}.msg(18, pb{}.text(4, "r").varint(5, 1))),
	"properties without values":        pb{}.msg(2, pb{}.msg(9, pb{}.text(1, "Quality"))),
	"a group that does not end":        {0x0b},
	"a group that was not begun":       {0x0c},
	"a tag without a field":            {0x00},
	"a varint of 11 bytes":             {0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
	"a length beyond the message":      {0x12, 0xff, 0xff, 0xff, 0xff, 0x0f},
	"more than 16,384 metrics":         []byte(strings.Repeat("\x12\x00", maxMetrics+1)),
	"more bytes than are taken":        make(pb, maxPayload+1),
	"a parameter that is malformed":    pb{}.msg(2, pb{}.msg(18, pb{}.msg(3, pb{}.text(2, "x")))),
	"a value of a row that is no text": pb{}.msg(2, pb{}.msg(17, pb{}.text(2, "a").varint(3, 12).msg(4, pb{}.msg(1, pb{}.varint(6, 1))))),
}

func TestMalformedPayloads(t *testing.T) {
	t.Parallel()
	for name, b := range bad {
		if p, err := Decode(b); !errors.Is(err, ErrPayload) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	if _, err := Decode(nested(8)); err != nil {
		t.Errorf("8 templates within one another: %v", err)
	}
}

// TestQuality: tck-id-payloads-propertyset-quality-value-value.
func TestQuality(t *testing.T) {
	t.Parallel()
	property := func(quality pb) pb {
		return pb{}.msg(2, pb{}.text(1, "x").msg(9, pb{}.text(1, "other").text(1, "Quality").msg(2, pb{}.varint(1, 12).text(8, "192")).msg(2, quality)))
	}
	for _, c := range []struct {
		name string
		b    pb
		good bool
	}{
		{"none", pb{}.msg(2, pb{}.text(1, "x")), true},
		{"good", property(pb{}.varint(1, 3).varint(3, 192)), true},
		{"good, long", property(pb{}.varint(1, 4).varint(4, 192)), true},
		{"bad", property(pb{}.varint(1, 3).varint(3, 0)), false},
		{"stale", property(pb{}.varint(1, 3).varint(3, 500)), false},
	} {
		p, err := Decode(c.b)
		if err != nil || p.Metrics[0].Good != c.good {
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
	}
}

func TestADocumentBeyondTheBoundIsNotKept(t *testing.T) {
	t.Parallel()
	big := pb{}.varint(1, 1).text(2, "a").varint(3, 12)
	for range 100 {
		big = big.msg(4, pb{}.msg(1, pb{}.text(6, strings.Repeat("x", 50))))
	}
	p, err := Decode(pb{}.msg(2, pb{}.text(1, "x").varint(4, 16).msg(17, big)))
	if err != nil || p.Metrics[0].Form != FormJSON || p.Metrics[0].Text != "" {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestTheRequestForARebirth: tck-id-operational-behavior-data-commands-ncmd-rebirth-name, -value, -rebirth-name-aliases,
// tck-id-payloads-ncmd-timestamp, tck-id-payloads-ncmd-seq.
func TestTheRequestForARebirth(t *testing.T) {
	t.Parallel()
	p, err := Decode(appendRebirth(nil, 1700000000000))
	if err != nil || p.HasSeq || p.Timestamp != 1700000000000 || len(p.Metrics) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	m := p.Metrics[0]
	if m.Name != "Node Control/Rebirth" || m.HasAlias || m.Type != Boolean || m.Form != FormBool || m.Bits != 1 {
		t.Errorf("%+v", m)
	}
}

// descriptor describes the payload to the library of Google, from the numbers of the specification.
func descriptor(t testing.TB) protoreflect.MessageDescriptor {
	t.Helper()
	type f = descriptorpb.FieldDescriptorProto
	one, many := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	fieldOf := func(name string, n int32, kind descriptorpb.FieldDescriptorProto_Type, label *descriptorpb.FieldDescriptorProto_Label, of string) *f {
		out := &f{Name: &name, Number: &n, Label: label, Type: &kind}
		if of != "" {
			full := ".p." + of
			out.TypeName = &full
		}
		return out
	}
	const (
		u64, u32 = descriptorpb.FieldDescriptorProto_TYPE_UINT64, descriptorpb.FieldDescriptorProto_TYPE_UINT32
		str, bin = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_BYTES
		flag     = descriptorpb.FieldDescriptorProto_TYPE_BOOL
		f32, f64 = descriptorpb.FieldDescriptorProto_TYPE_FLOAT, descriptorpb.FieldDescriptorProto_TYPE_DOUBLE
		msg      = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	)
	message := func(name string, fields ...*f) *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: &name, Field: fields}
	}
	syntax, name, pack := "proto2", "p.proto", "p"
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Syntax: &syntax, Name: &name, Package: &pack, MessageType: []*descriptorpb.DescriptorProto{
		message("Payload", fieldOf("timestamp", 1, u64, one, ""), fieldOf("metrics", 2, msg, many, "Metric"), fieldOf("seq", 3, u64, one, "")),
		message("Metric", fieldOf("name", 1, str, one, ""), fieldOf("alias", 2, u64, one, ""), fieldOf("timestamp", 3, u64, one, ""), fieldOf("datatype", 4, u32, one, ""),
			fieldOf("is_historical", 5, flag, one, ""), fieldOf("is_null", 7, flag, one, ""), fieldOf("int", 10, u32, one, ""), fieldOf("long", 11, u64, one, ""),
			fieldOf("float", 12, f32, one, ""), fieldOf("double", 13, f64, one, ""), fieldOf("bool", 14, flag, one, ""), fieldOf("string", 15, str, one, ""),
			fieldOf("bytes", 16, bin, one, "")),
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file.Messages().ByName("Payload")
}

// FuzzDecode holds the decoder against the library: what it takes the library takes, with the same metrics.
func FuzzDecode(f *testing.F) {
	for _, g := range golden {
		f.Add(unhex(f, g.hex))
	}
	for _, b := range bad {
		if len(b) < 1<<12 {
			f.Add([]byte(b))
		}
	}
	f.Add([]byte(nested(8)))
	payload := descriptor(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrPayload) {
				t.Fatalf("%v", err)
			}
			return
		}
		theirs := dynamicpb.NewMessage(payload)
		if err := proto.Unmarshal(b, theirs); err != nil {
			t.Fatalf("the library does not read it: %v", err)
		}
		fields := payload.Fields()
		if got := theirs.Get(fields.ByName("timestamp")).Uint(); got != p.Timestamp {
			t.Fatalf("timestamp %d, want %d", p.Timestamp, got)
		}
		metrics := theirs.Get(fields.ByName("metrics")).List()
		if metrics.Len() != len(p.Metrics) {
			t.Fatalf("%d metrics, want %d", len(p.Metrics), metrics.Len())
		}
		for i := range p.Metrics {
			m, want := &p.Metrics[i], metrics.Get(i).Message()
			get := func(name protoreflect.Name) protoreflect.Value {
				return want.Get(want.Descriptor().Fields().ByName(name))
			}
			if m.Name != get("name").String() || m.Alias != get("alias").Uint() || m.Timestamp != get("timestamp").Uint() || m.Null != get("is_null").Bool() ||
				m.Historical != get("is_historical").Bool() {
				t.Fatalf("metric %d: %+v, want %v", i, m, want)
			}
			if len(m.Text) > maxPayload || m.Form == FormJSON && m.Text != "" && !json.Valid([]byte(m.Text)) {
				t.Fatalf("metric %d: %q", i, m.Text)
			}
			if m.Type.isNumber() {
				m.number(m.Type)
			}
			if m.Type.isArray() {
				if text, ok := arrayJSON(m.Type, m.Text); ok && text != "" && !json.Valid([]byte(text)) {
					t.Fatalf("metric %d: %q", i, text)
				}
			}
		}
	})
}

// BenchmarkDecodeAndResolve decodes and resolves one NDATA of 100 metrics by alias.
func BenchmarkDecodeAndResolve(b *testing.B) {
	m, now := NewMachine(Rules{RebirthsPerSecond: 10}), start
	birth, data := pb{}.varint(1, 1700000000000).varint(3, 0), pb{}.varint(1, 1700000000000)
	for i := range uint64(100) {
		birth = birth.msg(2, pb{}.text(1, "metric "+string(rune('a'+i%26))+string(rune('a'+i/26))).varint(2, i).varint(4, 10).double(13, 1))
		data = data.msg(2, pb{}.varint(2, i).varint(3, 1700000000000).double(13, float64(i)))
	}
	nbirth, _ := ParseTopic("spBv1.0/g/NBIRTH/n")
	ndata, _ := ParseTopic("spBv1.0/g/NDATA/n")
	m.Message(nbirth, birth, now)
	bodies := make([][]byte, 256)
	for i := range bodies {
		bodies[i] = append(pb(nil), data.varint(3, uint64(i))...)
	}
	b.ReportAllocs()
	readings := 0
	for i := 0; b.Loop(); i++ {
		for _, e := range m.Message(ndata, bodies[(i+1)%256], now) {
			readings += len(e.Samples)
		}
	}
	b.ReportMetric(float64(readings)/b.Elapsed().Seconds(), "metrics/s")
}
