package web

// URLs are the keys of the front, at the top of the configuration.
type URLs struct {
	// BaseURL ends without a slash.
	BaseURL string `yaml:"base_url" format:"url" doc:"Public URL of the API; empty: taken from the request." reload:"yes"`
	DocsURL string `yaml:"docs_url" format:"url" doc:"Public URL of the schema files; empty: base_url." reload:"yes"`
}

// SetURLs changes the URLs in the index of the schemas.
func (s *Server) SetURLs(now URLs) { s.urls.Store(&now) }
