// Package aiprovider is an AI provider for tests: it speaks the protocols of the real ones strictly, checks what it is sent, and answers
// what a test tells it to.
package aiprovider

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Kinds of providers.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai-compatible"
)

// Request is one that was received.
type Request struct {
	Kind, Model, System, Prompt string
	MaxTokens                   int
	Key                         string
	Body                        map[string]any
}

// Reply writes the answer to a request.
type Reply func(w http.ResponseWriter, r *http.Request, kind string)

// Server is a provider. Requests with another key than Key are answered with 401, those that the real ones would refuse with 400.
type Server struct {
	*httptest.Server
	Key string

	mu       sync.Mutex
	replies  []Reply
	requests []Request
}

// Start starts a provider that ends with the test.
func Start(t testing.TB, key string) *Server {
	t.Helper()
	s := &Server{Key: key}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// Endpoint is the URL below which the API of a kind is.
func (s *Server) Endpoint(kind string) string {
	if kind == OpenAI {
		return s.URL + "/v1"
	}
	return s.URL
}

// Destination is the entry of egress.allowed_destinations.
func (s *Server) Destination() string {
	host, port, _ := net.SplitHostPort(s.Listener.Addr().String()) // it is a listener's
	return host + "/32:" + port
}

// Answer sets the replies to the requests that come next; the last one is repeated.
func (s *Server) Answer(replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies = replies
}

// Requests are those that were received, refused ones included.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request{}, s.requests...)
}

// SetKey makes another key the right one.
func (s *Server) SetKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Key = key
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	got, status, why := parse(r)
	s.mu.Lock()
	s.requests = append(s.requests, got)
	if status == 0 && got.Key != s.Key {
		status, why = http.StatusUnauthorized, "invalid key "+got.Key
	}
	reply := Text("ok")
	if len(s.replies) > 0 {
		reply = s.replies[0]
	}
	if len(s.replies) > 1 && status == 0 {
		s.replies = s.replies[1:]
	}
	s.mu.Unlock()
	if status != 0 {
		reply = Refuse(status, why)
	}
	reply(w, r, got.Kind)
}

func parse(r *http.Request) (got Request, status int, why string) {
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/messages":
		got.Kind, got.Key = Anthropic, r.Header.Get("X-Api-Key")
		if r.Header.Get("Anthropic-Version") != "2023-06-01" {
			return got, http.StatusBadRequest, "anthropic-version: header is required"
		}
	case "POST /v1/chat/completions":
		got.Kind = OpenAI
		if _, err := fmt.Sscanf(r.Header.Get("Authorization"), "Bearer %s", &got.Key); err != nil {
			return got, http.StatusUnauthorized, "no key"
		}
	default:
		return got, http.StatusNotFound, "not found"
	}
	if r.Header.Get("Content-Type") != "application/json" {
		return got, http.StatusUnsupportedMediaType, "content type"
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &got.Body) != nil {
		return got, http.StatusBadRequest, "no JSON"
	}
	var in struct {
		Model     string `json:"model"`
		System    string `json:"system"`
		MaxTokens int    `json:"max_tokens"`
		Other     int    `json:"max_completion_tokens"`
		Messages  []struct{ Role, Content string }
	}
	if err := json.Unmarshal(body, &in); err != nil || in.Model == "" || in.MaxTokens+in.Other < 1 || len(in.Messages) == 0 {
		return got, http.StatusBadRequest, "a member is missing"
	}
	got.Model, got.System, got.MaxTokens = in.Model, in.System, in.MaxTokens+in.Other
	for _, m := range in.Messages {
		switch {
		case m.Role == "user":
			got.Prompt = m.Content
		case m.Role == "system" && got.Kind == OpenAI:
			got.System = m.Content
		default:
			return got, http.StatusBadRequest, "messages: unexpected role " + m.Role
		}
	}
	return got, 0, ""
}

// Text answers with a text.
func Text(text string) Reply {
	return func(w http.ResponseWriter, _ *http.Request, kind string) {
		w.Header().Set("Content-Type", "application/json")
		var reply any = map[string]any{"id": "msg_1", "type": "message", "role": "assistant", "model": "served-1", "stop_reason": "end_turn",
			"content": []any{map[string]any{"type": "text", "text": text}}, "usage": map[string]any{"input_tokens": 11, "output_tokens": 7}}
		if kind == OpenAI {
			reply = map[string]any{"id": "chatcmpl-1", "object": "chat.completion", "model": "served-1",
				"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": text, "refusal": nil}}},
				"usage":   map[string]any{"prompt_tokens": 11, "completion_tokens": 7}}
		}
		_ = json.NewEncoder(w).Encode(reply) // the client has gone
	}
}

// Refuse answers with a status and an error as the real ones send it.
func Refuse(status int, message string) Reply {
	return func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "error", "error": map[string]any{"type": "error", "message": message}})
	}
}

// Raw answers with bytes.
func Raw(body string) Reply {
	return func(w http.ResponseWriter, _ *http.Request, _ string) { _, _ = io.WriteString(w, body) }
}
