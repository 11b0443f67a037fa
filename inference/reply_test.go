package inference

import (
	"encoding/json"
	"testing"
)

var replies = []string{
	`{"type": "message", "content": [{"type": "text", "text": "a"}, {"type": "thinking", "text": "b"}, {"type": "text", "text": "c"}], "usage": {"input_tokens": 3, "output_tokens": 4}}`,
	`{"choices": [{"message": {"content": "a", "refusal": null}}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}`,
	`{"choices": [{"message": {"content": null, "refusal": "I must not"}}]}`,
	`{"type": "error", "error": {"message": "no"}}`,
	`{"type": "message", "content": null, "usage": {"input_tokens": -1, "output_tokens": 1e300}}`,
	`[]`, `null`, ``, `{"choices": null}`, `{"choices": [null]}`,
}

// FuzzReply: whatever a provider sends, a reply is a text with numbers of tokens that a counter can take, or an error.
func FuzzReply(f *testing.F) {
	for _, r := range replies {
		f.Add([]byte(r))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		for _, p := range protocols {
			a, err := p.read(reply)
			if err == nil && a.text == "" || err != nil && a.text != "" || a.input < 0 || a.output < 0 || a.input > 1<<30 || a.output > 1<<30 {
				t.Fatalf("%s: %+v, %v", p.name(), a, err)
			}
		}
	})
}

// FuzzParams: what is sent is always one JSON object with Weir's own members, whatever the params are.
func FuzzParams(f *testing.F) {
	for _, s := range []string{`{"temperature": 0.5}`, `{"max_tokens": 5}`, `{"max_completion_tokens": 1e99}`, `{"MODEL": 1}`, `{"stop": ["a"]}`, `null`, `[]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, params string) {
		for _, p := range protocols {
			of := &Provider{Kind: p.name(), Model: "m", Params: &params}
			b, err := encode(p, of, Request{"prompt", "system"}, 100)
			if err != nil {
				continue
			}
			var body map[string]any
			if json.Unmarshal(b, &body) != nil || body["model"] != "m" {
				t.Fatalf("%q makes %s", params, b)
			}
			most := 0.0
			for _, name := range lengths {
				if n, ok := body[name].(float64); ok {
					most = max(most, n)
				}
			}
			if most < 1 || most > 100 {
				t.Fatalf("%q allows %v tokens: %s", params, most, b)
			}
		}
	})
}

func TestReplies(t *testing.T) {
	t.Parallel()
	for i, want := range []answer{{"ac", 3, 4}, {"a", 3, 4}, {"I must not", 0, 0}} {
		if a, err := protocols[min(i, 1)].read([]byte(replies[i])); err != nil || a != want {
			t.Errorf("%s: %+v %v, want %+v", replies[i], a, err, want)
		}
	}
}
