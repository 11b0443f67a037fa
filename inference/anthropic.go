package inference

import (
	"encoding/json"
	"net/http"
	"strings"
)

// anthropic is the Messages API of Anthropic, version 2023-06-01.
type anthropic struct{}

func (anthropic) name() string       { return "anthropic" }
func (anthropic) base() string       { return "https://api.anthropic.com" }
func (anthropic) path() string       { return "v1/messages" }
func (anthropic) lengthName() string { return "max_tokens" }

func (anthropic) sign(h http.Header, secret string) {
	h.Set("X-Api-Key", secret)
	h.Set("Anthropic-Version", "2023-06-01")
}

func (anthropic) body(model string, r Request) map[string]any {
	body := map[string]any{"model": model, "messages": []message{{"user", r.Prompt}}}
	if r.System != "" {
		body["system"] = r.System
	}
	return body
}

func (anthropic) read(reply []byte) (a answer, err error) {
	var r struct {
		Type    string `json:"type"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
		Usage struct {
			Input  float64 `json:"input_tokens"`
			Output float64 `json:"output_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(reply, &r) != nil || r.Type != "message" {
		return a, errMalformed
	}
	var text strings.Builder
	for _, c := range r.Content { // there are others: what the model has thought
		if c.Type == "text" {
			text.WriteString(c.Text)
		}
	}
	a = answer{text.String(), tokens(r.Usage.Input), tokens(r.Usage.Output)}
	if a.text == "" {
		return a, errEmpty
	}
	return a, nil
}
