package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestSiteFilesAreRelativeToTheConfigurationThatNamesThem(t *testing.T) {
	t.Parallel()
	read := func(file, text string, environ ...string) (*Config, error) {
		return Load(Source{File: file, Environ: environ, ReadFile: func(string) ([]byte, error) { return []byte(text), nil }})
	}
	c, err := read("/etc/weir/weir.yaml", "site: [site.yaml, /srv/devices.yaml, ../more.yaml]")
	if want := []string{"/etc/weir/site.yaml", "/srv/devices.yaml", "/etc/more.yaml"}; err != nil || !reflect.DeepEqual(c.Site, want) {
		t.Errorf("%v, %v", c, err)
	}
	c, err = read("/etc/weir/weir.yaml", "site: [site.yaml]", "WEIR_SITE=a.yaml,b.yaml")
	if want := []string{"a.yaml", "b.yaml"}; err != nil || !reflect.DeepEqual(c.Site, want) {
		t.Errorf("%v, %v", c, err)
	}
	if _, err := read("weir.yaml", "site: [{a: b}]"); err == nil || !strings.Contains(err.Error(), "site[0]") {
		t.Error(err)
	}
}
