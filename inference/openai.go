package inference

import (
	"cmp"
	"encoding/json"
	"net/http"
)

// openAI is the Chat Completions API of OpenAI, which many servers offer, those that run models on one's own machines among them.
type openAI struct{}

func (openAI) name() string       { return "openai-compatible" }
func (openAI) base() string       { return "" }
func (openAI) path() string       { return "chat/completions" }
func (openAI) lengthName() string { return "max_tokens" }

func (openAI) sign(h http.Header, secret string) { h.Set("Authorization", "Bearer "+secret) }

func (openAI) body(model string, r Request) map[string]any {
	var messages []message
	if r.System != "" {
		messages = append(messages, message{"system", r.System})
	}
	return map[string]any{"model": model, "messages": append(messages, message{"user", r.Prompt}), "stream": false}
}

func (openAI) read(reply []byte) (a answer, err error) {
	var r struct {
		Choices []struct {
			Message struct {
				Content *string `json:"content"`
				Refusal *string `json:"refusal"` // in place of the content
			} `json:"message"`
		} `json:"choices"`
		Usage struct {
			Input  float64 `json:"prompt_tokens"`
			Output float64 `json:"completion_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(reply, &r) != nil || r.Choices == nil {
		return a, errMalformed
	}
	a = answer{input: tokens(r.Usage.Input), output: tokens(r.Usage.Output)}
	if len(r.Choices) > 0 {
		m := r.Choices[0].Message
		a.text = cmp.Or(deref(m.Content), deref(m.Refusal))
	}
	if a.text == "" {
		return a, errEmpty
	}
	return a, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
