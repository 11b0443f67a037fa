package response

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/model"
)

func TestAnswersAreDecoded(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]model.Response{
		`{"commandToken":"c-1","success":true}`:                                                        {Command: "c-1", Success: true},
		`{"commandToken":"c-1","success":false,"error":"jammed"}`:                                      {Command: "c-1", Error: "jammed"},
		`{"commandToken":"c-1","success":true,"error":"unused"}`:                                       {Command: "c-1", Success: true},
		`{"commandToken":"c-1","success":true,"dispatchNonce":"n","payload":{ "a" : [1, 2] }}`:         {Command: "c-1", Success: true, Nonce: "n", Payload: `{"a":[1,2]}`},
		`{"commandToken":"c-1","success":true,"payload":21.5}`:                                         {Command: "c-1", Success: true, Payload: `21.5`},
		`{"commandToken":"c-1","success":true,"payload":"21.5"}`:                                       {Command: "c-1", Success: true, Payload: `21.5`},
		`{"commandToken":"c-1","success":true,"payload":"{\"a\": 1}"}`:                                 {Command: "c-1", Success: true, Payload: `{"a":1}`},
		`{"commandToken":"c-1","success":true,"payload":"it \"opened\""}`:                              {Command: "c-1", Success: true, Payload: `"it \"opened\""`},
		`{"commandToken":"c-1","success":true,"payload":""}`:                                           {Command: "c-1", Success: true, Payload: `""`},
		`{"commandToken":"c-1","success":true,"payload":null,"dispatchNonce":null,"error":null,"x":1}`: {Command: "c-1", Success: true},
	} {
		r, _, err := Decode([]byte(body))
		if err != nil || *r != want {
			t.Errorf("%s: %+v, %v; want %+v", body, r, err, want)
		}
	}
	_, who, err := Decode([]byte(`{"device":"d1","credentialType":"MQTT_BASIC","credentialId":"u","credentialSecret":"s","commandToken":"c","success":true}`))
	if err != nil || who.Device != "d1" || who.Credential != (Credential{"MQTT_BASIC", "u", "s"}) {
		t.Errorf("%+v, %v", who, err)
	}
}

func TestAnswersAreRefused(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                                      "an object",
		`[]`:                                    "an object",
		`{}`:                                    "commandToken is required",
		`{"commandToken":"c-1"}`:                "success is required",
		`{"commandToken":"c 1","success":true}`: "not the token",
		`{"commandToken":1,"success":true}`:     "must be a string",
		`{"commandToken":null,"success":true}`:  "must be a string",
		`{"commandToken":"c","success":"true"}`: "true or false",
		`{"commandToken":"c","success":true,"success":false}`:                                                     "given twice",
		`{"commandToken":"c","success":true,"payload":1,"payload":2}`:                                             "given twice",
		`{"commandToken":"c","success":true,"payload":{]}`:                                                        "member name",
		`{"commandToken":"c","success":true,"dispatchNonce":7}`:                                                   "must be a string",
		`{"commandToken":"c","success":false,"error":"a\u0000"}`:                                                  "cannot be stored",
		`{"commandToken":"c","success":true} x`:                                                                   "after the document",
		`{"commandToken":"c","success":true,"device":"d 1"}`:                                                      "not a device token",
		`{"commandToken":"c","success":true,"device":"d1","device":"d1"}`:                                         "given twice",
		`{"commandToken":"c","success":true,"payload":"` + strings.Repeat("x", MaxPayload) + `"}`:                 "larger than 65536 bytes",
		`{"commandToken":"c","success":false,"error":"` + strings.Repeat("x", MaxError+1) + `"}`:                  "larger than 4096 bytes",
		`{"commandToken":"c","success":true,"dispatchNonce":"` + strings.Repeat("x", MaxNonce+1) + `"}`:           "at most 128 characters",
		`{"commandToken":"c","success":true,"payload":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `}`: "nesting deeper",
	} {
		r, _, err := Decode([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %+v, %v; want %q", body, r, err, want)
		}
	}
}

func TestDecodedAnswersAreChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []model.Response{{Success: true}, {Command: "c", Success: true, Payload: "{"}, {Command: "c", Success: true, Error: "e"},
		{Command: "c", Success: true, Nonce: "\xff"}} {
		if Check(&bad) == "" {
			t.Errorf("%+v is taken", bad)
		}
	}
	if why := Check(&model.Response{Command: "c", Error: "e", Payload: "[1]", Nonce: "n"}); why != "" {
		t.Error(why)
	}
}

func FuzzDecode(f *testing.F) {
	for _, body := range []string{`{"commandToken":"c-1","success":true,"dispatchNonce":"n","payload":{"a":[1,"x"]}}`, `{"commandToken":"c-1","success":false,"error":"e"}`,
		`{"commandToken":"c-1","success":true,"payload":"\"\\u0041\"","credentialId":"u","device":"d1"}`, `{`, `{"commandToken":"c","success":true,"payload":" 1 "}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, _, err := Decode(body)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("the error has several lines: %q", err)
			}
			return
		}
		if why := Check(r); why != "" {
			t.Errorf("%+v was decoded: %s", r, why)
		}
		if r.Payload != "" && !json.Valid([]byte(r.Payload)) {
			t.Errorf("the payload %q is no JSON text", r.Payload)
		}
		if strings.HasPrefix(r.Payload, `"`) { // sent once more, it would be read once more
			return
		}
		again, _, err := Decode(fmtResponse(t, r))
		if err != nil || *again != *r {
			t.Errorf("%+v reads back as %+v, %v", r, again, err)
		}
	})
}

// fmtResponse writes an answer as a device would.
func fmtResponse(t *testing.T, r *model.Response) []byte {
	m := map[string]any{"commandToken": r.Command, "success": r.Success, "dispatchNonce": r.Nonce, "error": r.Error}
	if r.Payload != "" {
		m["payload"] = json.RawMessage(r.Payload)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
