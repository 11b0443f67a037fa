// Package origin tells requests that a page of another host makes a browser send from all others.
package origin

import (
	"net/http"
	"net/url"
	"strings"
)

// Foreign reports whether a page of another host has sent the request, as a browser says in one header or the other; on plain http in
// Origin alone. Programs send neither. baseURL is the public URL of the instance, "" for none: its host is accepted, too, since a proxy in
// front may pass another Host.
func Foreign(r *http.Request, baseURL string) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return true
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return false
	}
	from, err := url.Parse(origins[0])
	if err != nil || len(origins) > 1 || from.Host == "" {
		return true
	}
	if strings.EqualFold(from.Host, r.Host) {
		return false
	}
	base, err := url.Parse(baseURL)
	return err != nil || !strings.EqualFold(from.Host, base.Host)
}
