package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"weir/gql"
)

// NewArtifact is a file that devices are given.
type NewArtifact struct {
	Tenant  string
	Token   string
	Name    string // "" for none
	Version string // "" for none
	SHA256  string // what the bytes must have
}

// ArtifactKept is an artifact that is kept. Made is false when there was one with these bytes, whose name and version are set.
type ArtifactKept struct {
	Tenant  string `json:"tenant"`
	Token   string `json:"token"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	SHA256  string `json:"sha256"`
	Bytes   int64  `json:"bytes"`
	Made    bool   `json:"made"`
}

// ArtifactVerb keeps an artifact. Its bytes are the body of the request, written as they come; what it is called is in the query.
type ArtifactVerb struct{ Name string }

func (v *ArtifactVerb) path() string { return v.Name }

func (v *ArtifactVerb) handler(s *Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST only", http.StatusMethodNotAllowed)
			return
		}
		ctx, _, done := s.untilStop(w, r)
		defer done()
		q := r.URL.Query()
		by, err := s.o.deps.Entities.Within(Local(), q.Get("tenant"))
		if err != nil {
			s.failed(w, r, err)
			return
		}
		a, made, err := s.o.deps.Entities.Artifacts.Put(ctx, by, gql.UploadOf(q.Get("token"), q), r.Body)
		switch {
		case err != nil && s.streaming.Err() != nil:
			s.failed(w, r, errStopping)
		case err != nil:
			s.failed(w, r, err)
		default:
			reply(w, http.StatusOK, ArtifactKept{Tenant: q.Get("tenant"), Token: a.Token, Name: a.Name, Version: a.Version, SHA256: a.SHA256, Bytes: a.Bytes, Made: made})
		}
	})
}

// Ask keeps what r holds as an artifact on a running instance.
func (v *ArtifactVerb) Ask(ctx context.Context, to Target, n NewArtifact, r io.Reader) (*ArtifactKept, error) {
	if err := checkText(n); err != nil {
		return nil, err
	}
	c, running := to.(*Client)
	if !running {
		return nil, ErrNotRunning
	}
	q := url.Values{"tenant": {n.Tenant}, "token": {n.Token}, "name": {n.Name}, "version": {n.Version}, "sha256": {n.SHA256}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://weir/v1/"+v.Name+"?"+q.Encode(), r)
	if err != nil {
		return nil, err
	}
	resp, err := c.do(ctx, req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var kept ArtifactKept
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(&kept); err != nil {
		return nil, fmt.Errorf("the answer of the instance does not read: %w", err)
	}
	return &kept, nil
}
