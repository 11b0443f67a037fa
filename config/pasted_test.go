package config

import (
	"io/fs"
	"slices"
	"testing"
)

// A text in place of the file is checked as the file would be, and nothing that it names is read.
func TestAPastedTextIsCheckedAndReadsNothing(t *testing.T) {
	t.Parallel()
	var read []string
	src := Source{File: "/etc/weir/weir.yaml", ReadFile: func(name string) ([]byte, error) {
		read = append(read, name)
		return nil, fs.ErrNotExist
	}, Environ: []string{"WEIR_LOGGING_FORMAT=json", "OTHER=secret"}}
	for _, c := range []struct{ text, key, reason string }{
		{"logging: {level: debug}", "", ""},
		{"logging: {level: loud}", "logging.level", ""},
		{"loging: {level: debug}", "loging", "is not a key that this Weir knows"},
		{"tls: {cert_file: /etc/ssl/cert.pem, key_file: /etc/shadow}", "", ""},
		{"auth: {superuser_email: a@example.org, superuser_password_file: /etc/shadow}", "", ""},
		{"auth: {superuser_email: a@example.org, superuser_password_env: NOT_SET}", "", ""},
		{"site: [/root/secret.yaml]", "", ""},
		{"a: [", "", "?"},
	} {
		r := Read(src.Pasted(c.text))
		if c.key == "" && c.reason == "" {
			if r.Problems != nil || r.Config == nil || r.Config.Logging.Format != "json" {
				t.Errorf("%s: %v", c.text, r.Problems)
			}
			continue
		}
		if len(r.Problems) == 0 || r.Problems[0].Line != 1 || c.key != "" && r.Problems[0].Path != c.key || r.Problems[0].File != "/etc/weir/weir.yaml" {
			t.Errorf("%s: %+v", c.text, r.Problems)
		}
	}
	if len(slices.DeleteFunc(read, func(name string) bool { return name == "/etc/weir/weir.yaml" })) > 0 {
		t.Errorf("these were read: %v", read)
	}
	if r := Read(Source{}.Pasted("nothing: 1")); len(r.Problems) != 1 || r.Problems[0].File != PastedFile("") {
		t.Errorf("without a file: %+v", r.Problems)
	}
}
