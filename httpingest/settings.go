package httpingest

import (
	"time"

	"weir/internal/setting"
)

// Settings are the keys of HTTP ingest, in the section ingest.
type Settings struct {
	HeaderTimeout  time.Duration `yaml:"http_header_timeout" default:"5s" zero:"no" doc:"Timeout for the headers of a request."`
	RequestTimeout time.Duration `yaml:"http_request_timeout" default:"1m" zero:"no" doc:"Timeout for a whole request."`
	Commands       bool          `yaml:"commands" doc:"Devices may fetch their commands over HTTP, and answer them: POST …/{tenant}/commands and …/{tenant}/command-responses; and read their attributes: GET …/{tenant}/device-attributes/{device}."`
	MaxBody        setting.Size  `yaml:"max_body" default:"1MiB" min:"1KiB" max:"1MiB" doc:"Largest body of HTTP ingest." reload:"yes"`
}
