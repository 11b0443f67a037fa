package config

import (
	"strings"
	"testing"
)

// TestTheStrongestGiverCounts takes the givers of a key away one by one.
func TestTheStrongestGiverCounts(t *testing.T) {
	t.Parallel()
	src := disk{"weir.yaml": {text: "data_dir: file\n"}, "conf.d/10.yaml": {text: "data_dir: overlay\n"}}.source("data_dir=set", "WEIR_DATA_DIR=variable")
	src.DataDir = "data"
	for _, step := range []struct {
		want string
		take func()
	}{
		{"data", func() { src.DataDir = "" }},
		{"set", func() { src.Set = nil }},
		{"variable", func() { src.Environ = nil }},
		{"overlay", func() { src.ReadDir = nil }},
		{"file", func() { src.File = "" }},
		{"./weir-data", func() {}},
	} {
		c, err := Load(src)
		if err != nil || c.DataDir != step.want {
			t.Fatalf("got %+v, %v, want %s", c, err, step.want)
		}
		step.take()
	}
}

// TestAKeyInAnotherCaseIsUnknown: viper would take it.
func TestAKeyInAnotherCaseIsUnknown(t *testing.T) {
	t.Parallel()
	_, err := load("Data_Dir: x\nbroker: {ENABLED: false}\n")
	for _, want := range []string{"weir.yaml:1:1: Data_Dir: is not a key", "weir.yaml:2:10: broker.ENABLED: is not a key"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestTheEnvironmentOfTheProcessIsNotRead: a configuration comes from its Source alone.
func TestTheEnvironmentOfTheProcessIsNotRead(t *testing.T) {
	t.Setenv("WEIR_DATA_DIR", "elsewhere")
	t.Setenv("DATA_DIR", "elsewhere")
	if c, err := load("{}\n"); err != nil || c.DataDir != "./weir-data" {
		t.Errorf("got %+v, %v", c, err)
	}
}
