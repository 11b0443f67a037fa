package httpingest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/model"
	"weir/registry/shared"
)

// sets has what devices may read of themselves.
type sets struct {
	of  map[int64]string // the value of the attribute "a"; "" for none
	err error
}

func (s *sets) SharedSets(_ context.Context, devices ...model.Binding) (all []shared.Set, err error) {
	for _, d := range devices {
		var of []shared.Attribute
		if value := s.of[d.DeviceID]; value != "" {
			of = append(of, shared.Attribute{Key: "a", Text: &value})
		}
		all = append(all, shared.SetOf(of))
	}
	return all, s.err
}

// reading returns an instance whose devices read their attributes.
func reading(t *testing.T, cfg Config) (*instance, *sets) {
	d, s := open(t, cfg), &sets{of: map[int64]string{}}
	d.handler.deps.Attributes = s
	return d, s
}

// read asks for the attributes at a path; the fields are names and values by turns.
func (d *instance) read(t *testing.T, method, path string, fields ...string) (res *http.Response, body string) {
	t.Helper()
	req, err := http.NewRequest(method, d.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	if res, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

const attributesPath = "/weir/acme/device-attributes/d1"

func TestADeviceReadsItsAttributesWhenTheyHaveChanged(t *testing.T) {
	t.Parallel()
	d, s := reading(t, commanding())
	read := func(fields ...string) (*http.Response, string) {
		return d.read(t, http.MethodGet, attributesPath, append([]string{"Authorization", "Bearer t1"}, fields...)...)
	}
	res, body := read()
	empty := res.Header.Get("ETag")
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/json" || body != `{"revision":`+empty+`,"attributes":{}}`+"\n" || len(empty) != 34 {
		t.Errorf("nothing is set: %d %q, ETag %s", res.StatusCode, body, empty)
	}
	for _, has := range []string{empty, "W/" + empty, `"other", ` + empty, "*"} {
		if res, body = read("If-None-Match", has); res.StatusCode != 304 || body != "" || res.Header.Get("ETag") != empty {
			t.Errorf("a device that has %s: %d %q", has, res.StatusCode, body)
		}
	}
	s.of[1], s.of[2] = "21", "another"
	if res, body = read("If-None-Match", empty); res.StatusCode != 200 || !strings.HasSuffix(body, `"attributes":{"a":"21"}}`+"\n") || res.Header.Get("ETag") == empty {
		t.Errorf("a change: %d %q", res.StatusCode, body)
	}
	s.of[1] = strings.Repeat("x", shared.MaxBytes)
	if res, body = read(); res.StatusCode != 200 || body != `{"revision":`+res.Header.Get("ETag")+`,"tooLarge":true,"bytes":65605}`+"\n" {
		t.Errorf("too large: %d %.200q", res.StatusCode, body)
	}
	s.err = errors.New("broken")
	if res, body = read(); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || strings.Contains(body, "broken") {
		t.Errorf("a failing store: %d %q", res.StatusCode, body)
	}
	if n := len(d.intake.received); n != 0 {
		t.Errorf("%d messages of the ledger", n)
	}
}

func TestAttributesThatAreNotHandedOut(t *testing.T) {
	t.Parallel()
	d, s := reading(t, commanding())
	s.of[1], s.of[2] = "21", "another"
	for _, c := range []struct {
		method, path, credential string
		status                   int
		text                     string
	}{
		{"GET", attributesPath, "", 403, "the credential is not that of the device"},
		{"GET", attributesPath, "Bearer t2", 403, "the credential is not that of the device"},
		{"GET", attributesPath, "Bearer guessed", 403, "the credential is not that of the device"},
		{"GET", "/weir/globex/device-attributes/d1", "Bearer t1", 403, "the credential is not that of the device"},
		{"GET", attributesPath, "Digest t1", 400, wrongAuthorization},
		{"GET", attributesPath, "Bearer slow", 429, "too many wrong passwords"},
		{"GET", attributesPath, "Bearer busy", 503, "too many credentials are being checked"},
		{"GET", "/weir/ac.me/device-attributes/d1", "Bearer t1", 400, "the tenant is not a valid tenant id"},
		{"GET", "/weir/acme/device-attributes/d%2F1", "Bearer t1", 400, "the device is not a valid device token"},
		{"GET", "/other/acme/device-attributes/d1", "Bearer t1", 404, "no such path"},
		{"POST", attributesPath, "Bearer t1", 405, "only GET is allowed here"},
	} {
		fields := []string{"Authorization", c.credential}
		if c.credential == "" {
			fields = nil
		}
		if res, body := d.read(t, c.method, c.path, fields...); res.StatusCode != c.status || body != c.text+"\n" || res.Header.Get("ETag") != "" {
			t.Errorf("%s %s as %q: %d %q", c.method, c.path, c.credential, res.StatusCode, body)
		}
	}
	d.intake.full = true
	if res, _ := d.read(t, "GET", attributesPath, "Authorization", "Bearer t1"); res.StatusCode != 429 {
		t.Errorf("over the ceiling: %d", res.StatusCode)
	}
	off, _ := reading(t, Config{})
	if res, _ := off.read(t, "GET", attributesPath, "Authorization", "Bearer t1"); res.StatusCode != 404 {
		t.Errorf("without ingest.commands: %d", res.StatusCode)
	}
}

func FuzzIfNoneMatch(f *testing.F) {
	f.Add(`"a", W/"tag"`)
	f.Add("*")
	f.Fuzz(func(t *testing.T, field string) {
		if got := hasTag([]string{field}, `"tag"`); got && !strings.Contains(field, `"tag"`) && !strings.Contains(field, "*") {
			t.Fatalf("%q has the tag", field)
		}
	})
}
