package report

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"weir/model"
)

func keys(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"k%d":%d`, i, i))
	}
	return `{"attributes":{` + strings.Join(all, ",") + `}}`
}

func one(value string) string { return `{"attributes":{"k":` + value + `}}` }

func TestReportsAreDecoded(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]model.Reported{
		`"v1.2"`:                   {Type: model.ReportedString, Value: "v1.2"},
		`""`:                       {Type: model.ReportedString},
		`7`:                        {Type: model.ReportedLong, Value: "7"},
		`-0`:                       {Type: model.ReportedLong, Value: "0"},
		`9223372036854775807`:      {Type: model.ReportedLong, Value: "9223372036854775807"},
		`9223372036854775808`:      {Type: model.ReportedDouble, Value: "9223372036854775808"},
		`7.0`:                      {Type: model.ReportedDouble, Value: "7.0"},
		`1e3`:                      {Type: model.ReportedDouble, Value: "1e3"},
		`true`:                     {Type: model.ReportedBoolean, Value: "true"},
		`false`:                    {Type: model.ReportedBoolean, Value: "false"},
		` { "a" : [ 1 , null ] } `: {Type: model.ReportedJSON, Value: `{"a":[1,null]}`},
		`[]`:                       {Type: model.ReportedJSON, Value: `[]`},
		`null`:                     {Type: model.ReportedNull},
	} {
		want.Key = "k"
		r, err := Decode([]byte(one(value)))
		if err != nil || len(r.Attributes) != 1 || r.Attributes[0] != want {
			t.Errorf("%s: %+v, %v; want %+v", value, r, err, want)
		}
	}
	if r, err := Decode([]byte(`{"x":1,"attributes":{},"y":[{}]}`)); err != nil || len(r.Attributes) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := Decode([]byte(keys(model.MaxReported))); err != nil || len(r.Attributes) != model.MaxReported {
		t.Errorf("%d attributes: %v", model.MaxReported, err)
	}
	if _, err := Decode([]byte(one(`"` + strings.Repeat("x", MaxValue) + `"`))); err != nil {
		t.Error(err)
	}
}

func TestReportsAreRefused(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                                  "an object",
		`[]`:                                "an object",
		`{}`:                                "attributes is required",
		`{"attributes":null}`:               "an object",
		`{"attributes":[]}`:                 "an object",
		`{"attributes":{},"attributes":{}}`: "given twice",
		`{"attributes":{"k":1,"k":1}}`:      "given twice",
		`{"attributes":{"":1}}`:             "1 to 128 characters",
		`{"attributes":{" ":1}}`:            "1 to 128 characters",
		`{"attributes":{"a\u0000":1}}`:      "cannot be stored",
		`{"attributes":{"k":"\u0000"}}`:     "cannot be stored",
		`{"attributes":{"k":1e999}}`:        "no DOUBLE",
		`{"attributes":{"k":}}`:             "a value",
		`{"attributes":{"k":nul}}`:          "a value",
		`{"attributes":{"k":[1,]}}`:         "a value",
		one("1") + "x":                      "after the document",
		keys(model.MaxReported + 1):         "at most 64 attributes",
		one(`"` + strings.Repeat("x", MaxValue+1) + `"`):             "larger than 16384 bytes",
		one(strings.Repeat("[", 80) + strings.Repeat("]", 80)):       "nesting deeper",
		`{"attributes":{"` + strings.Repeat("é", MaxKey+1) + `":1}}`: "1 to 128 characters",
	} {
		r, err := Decode([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %+v, %v; want %q", body, r, err, want)
		}
	}
}

// A report that a transport decoded is held against the same bounds.
func TestDecodedReportsAreChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []model.Reported{{Key: "k", Type: model.ReportedNull, Value: "x"}, {Key: "k", Type: model.ReportedLong, Value: "1.5"},
		{Key: "k", Type: model.ReportedDouble, Value: "Inf"}, {Key: "k", Type: model.ReportedDouble, Value: "0x1p4"}, {Key: "k", Type: model.ReportedBoolean, Value: "yes"},
		{Key: "k", Type: model.ReportedJSON, Value: "7"}, {Key: "k", Type: model.ReportedJSON, Value: "{"}, {Key: "k", Type: 9}, {Key: "k\xff", Type: model.ReportedString},
		{Type: model.ReportedString}, {Key: "before", Type: model.ReportedString}} {
		if why := Check(&model.Report{Attributes: []model.Reported{{Key: "before", Type: model.ReportedString}, bad}}); why == "" {
			t.Errorf("%+v is taken", bad)
		}
	}
	if why := Check(&model.Report{Attributes: []model.Reported{{Key: "k", Type: model.ReportedDouble, Value: "1.5e3"}, {Key: "l"}}}); why != "" {
		t.Error(why)
	}
}

// FuzzDecode: whatever a device sends is refused in one line, or is a report within its bounds that fits a record, and that says
// what an ordinary reader of JSON finds in it.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{keys(3), keys(65), one(`"v"`), one(`null`), one(`{"a":[true,{}]}`), one(`-1.5e3`), one(`9223372036854775808`), `{"attributes":{"a\u0000":1}}`,
		`{"attributes":{"\ud800":"\ud83d\ude00"}}`, one(strings.Repeat("[", 80)), `{"attributes":{},"attributes":{}}`, `{"x":{"attributes":{}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Decode(body)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("the refusal takes more than one line: %q", err)
			}
			return
		}
		if why := Check(r); why != "" {
			t.Fatalf("what was decoded is refused: %s", why)
		}
		back, err := model.DecodeRecord(model.AppendRecord(nil, &model.Record{Kind: model.KindDeviceReport, Report: r}))
		if err != nil || len(back.Report.Attributes) != len(r.Attributes) || len(r.Attributes) > 0 && !reflect.DeepEqual(back.Report, r) {
			t.Fatalf("a record of %+v holds %+v: %v", r, back, err)
		}
		var members, plain map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(members["attributes"], &plain); err != nil || len(plain) != len(r.Attributes) {
			t.Fatalf("%d attributes, want %d: %v", len(r.Attributes), len(plain), err)
		}
		for _, a := range r.Attributes {
			if v, known := plain[a.Key]; !known || (string(v) == "null") != (a.Type == model.ReportedNull) {
				t.Errorf("%q is %s and was read as %s", a.Key, v, a.Type)
			}
		}
	})
}
