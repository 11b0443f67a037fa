package testweir

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
)

// GraphQL is a request to an area of an instance.
type GraphQL struct {
	API, Area, Token, Query string // API is http://host:port; no Token: unauthenticated
	Variables               map[string]any
	Header                  http.Header  // more of them
	Client                  *http.Client // nil: the default one
}

// Post sends the request and returns the response with its body, which is read to its end.
func (q GraphQL) Post(ctx context.Context) (*http.Response, []byte, error) {
	body, err := json.Marshal(map[string]any{"query": q.Query, "variables": q.Variables})
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, q.API+"/api/"+q.Area+"/graphql", bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(req.Header, q.Header)
	req.Header.Set("Content-Type", "application/json")
	if q.Token != "" {
		req.Header.Set("Authorization", "Bearer "+q.Token)
	}
	client := q.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, b, err
}
