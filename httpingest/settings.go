package httpingest

import (
	"time"

	"weir/internal/setting"
)

// Settings are the keys of HTTP ingest, in the section ingest.
type Settings struct {
	//limit:what HTTP headers
	//limit:chapter Connections
	//limit:bound 16 KiB within {}, the request within 60 s
	//limit:keys ingest.http_request_timeout
	//limit:met weir_eventsources_total_http_connections_closed_before_request
	//limit:then 431, or the connection is closed
	//limit:cost of the connection
	HeaderTimeout  time.Duration `yaml:"http_header_timeout" default:"5s" zero:"no" doc:"Timeout for the headers of a request."`
	RequestTimeout time.Duration `yaml:"http_request_timeout" default:"1m" zero:"no" doc:"Timeout for a whole request."`
	Commands       bool          `yaml:"commands" doc:"Devices may fetch their commands over HTTP, and answer them: POST …/{tenant}/commands and …/{tenant}/command-responses; and read their attributes: GET …/{tenant}/device-attributes/{device}."`

	//limit:what an HTTP body
	//limit:chapter What devices send
	//limit:bound {}, 1,000 events
	//limit:met weir_ingest_refused_messages_total{reason="too-large"}
	//limit:then 400
	//limit:cost grows with what has arrived
	MaxBody setting.Size `yaml:"max_body" default:"1MiB" min:"1KiB" max:"1MiB" doc:"Largest body of HTTP ingest." reload:"yes"`
}
