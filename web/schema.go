package web

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"weir/docs"
)

// index is /schema/index.json.
type index struct {
	Description     string           `json:"description"`
	EndpointPattern string           `json:"endpointPattern"`
	BaseURL         string           `json:"baseUrl"`
	Planes          map[string]plane `json:"planes"`
	Areas           []indexEntry     `json:"areas"`
	Device          []deviceSchema   `json:"device"` // what devices send and receive
}

// deviceSchema is a JSON Schema of a message.
type deviceSchema struct {
	Message string `json:"message"`
	Schema  string `json:"schema"`
}

type plane struct {
	Token       string `json:"token"`
	Description string `json:"description"`
}

type indexEntry struct {
	Area     string `json:"area"`
	API      *bool  `json:"api,omitempty"` // false where there is none
	Plane    string `json:"plane,omitempty"`
	Token    string `json:"token,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Schema   string `json:"schema,omitempty"`
	Note     string `json:"note,omitempty"`
}

var planes = map[string]plane{
	"tenant":   {"access", "Operations of one tenant. Authorization: Bearer <access token> from selectTenant or refresh."},
	"identity": {"identity", "Operations of the instance. Authorization: Bearer <identity token> of an identity with a system role, from login."},
	"service":  {"service", "Calls between services. Authorization: Bearer <service token>, the tenant in X-Weir-Tenant."},
}

func (s *Server) schemaIndex() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		urls := s.urls.Load()
		base := cmp.Or(urls.BaseURL, baseOf(r))
		public(w, "application/json")
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		_ = enc.Encode(s.indexAt(base, cmp.Or(urls.DocsURL, base))) // the caller has left
	})
}

func (s *Server) indexAt(base, docsURL string) index {
	ix := index{
		Description:     "The GraphQL areas of this instance. " + s.introspection(),
		EndpointPattern: "{base_url}/api/<area>/graphql",
		BaseURL:         base, Planes: planes,
	}
	for _, a := range s.cfg.Areas {
		ix.Areas = append(ix.Areas, indexEntry{Area: a.Name, Plane: a.Plane, Token: a.Token, Note: a.Note,
			Endpoint: base + a.prefix() + "/graphql", Schema: docsURL + "/schema/" + a.file() + ".graphql"})
	}
	for _, a := range s.cfg.Absent {
		// An area whose route exists but serves a placeholder is listed as having no API.
		ix.Areas = slices.DeleteFunc(ix.Areas, func(e indexEntry) bool { return e.Area == a.Area })
		ix.Areas = append(ix.Areas, indexEntry{Area: a.Area, API: new(false), Note: a.Note})
	}
	for _, file := range slices.Sorted(maps.Keys(docs.Schemas())) {
		ix.Device = append(ix.Device, deviceSchema{Message: strings.TrimSuffix(file, ".json"), Schema: docsURL + devicePath + file})
	}
	return ix
}

// introspection says whether the schema can be asked for, too: the developer tools open it.
func (s *Server) introspection() string {
	if s.cfg.DevTools {
		return "Introspection is on; the schema files are the same schema."
	}
	return "Introspection is off: the schema files are the reference."
}

// baseOf is how the caller has reached us.
func baseOf(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// devicePath is where the JSON Schemas of what devices send and receive are.
const devicePath = "/schema/device/"

// schemaFile serves a schema: SDL as plain text, a JSON Schema with its own type. The console reads it to make its lists and forms.
func schemaFile(contentType, text string) http.Handler {
	packed := sync.OnceValue(func() []byte { return gzipped([]byte(text)) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		public(w, contentType)
		w.Header().Set("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Values("Accept-Encoding")) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed()) // the caller has left
			return
		}
		_, _ = strings.NewReader(text).WriteTo(w)
	})
}

// public marks an answer that any page may read.
func public(w http.ResponseWriter, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
