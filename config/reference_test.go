package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

const (
	referencePath = "../docs/configuration.md"
	// What stands between these lines of the page is made from the structs; the rest is written by hand.
	referenceBegin = "<!-- begin: made from config.Config by make generate -->\n"
	referenceEnd   = "<!-- end -->\n"
)

func TestTheReferenceSaysWhatTheConfigurationIs(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), referenceBegin)
	old, tail, closed := strings.Cut(rest, referenceEnd)
	if !ok || !closed {
		t.Fatalf("%s has lost the lines between which it is made", referencePath)
	}
	made := reference()
	if *update {
		if err := os.WriteFile(referencePath, []byte(head+referenceBegin+made+referenceEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != made {
		t.Errorf("%s is not what config.Config says; make generate writes it", referencePath)
	}
}

func TestTheReferencesDefaultsAreTheDefaults(t *testing.T) {
	t.Parallel()
	c, err := load(defaultsAsYAML())
	if err != nil || *c != Default() {
		t.Errorf("the file of all defaults is read as %+v, %v", c, err)
	}
}

// reference is the tables of all keys, and a file that sets each to its default.
func reference() string {
	var b strings.Builder
	c := Default()
	b.WriteString("\n| key | default | meaning |\n|---|---|---|\n")
	for _, l := range listed(&c) {
		note := l.doc
		if l.secret() {
			note += " A secret; also `" + l.name + "_file` (a file that holds it) or `" + l.name + "_env` (a variable)."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", l.path, code(text(l.value)), strings.ReplaceAll(note, "|", `\|`))
	}
	fmt.Fprintf(&b, "\nA file that sets every key to its default:\n\n```yaml\n%s```\n\n", defaultsAsYAML())
	return b.String()
}

type listedKey struct {
	field
	path, name string
}

// listed is every key that holds a value, a secret once.
func listed(c *Config) []listedKey {
	var out []listedKey
	leaves(ofConfig(c), "", func(path string, f field) {
		if f.kind == fieldScalar {
			out = append(out, listedKey{f, path, path[strings.LastIndexByte(path, '.')+1:]})
		}
	})
	return out
}

func defaultsAsYAML() string {
	var b strings.Builder
	c, section := Default(), ""
	for _, l := range listed(&c) {
		at, indent := strings.TrimSuffix(strings.TrimSuffix(l.path, l.name), "."), ""
		if at != "" {
			indent = "  "
		}
		if at != section {
			if section = at; at != "" {
				fmt.Fprintf(&b, "%s:\n", at)
			}
		}
		value := text(l.value)
		if l.secret() {
			fmt.Fprintf(&b, "%s# %s_file: /run/secrets/%s\n", indent, l.name, l.name)
			continue
		}
		if value == "" || l.value.Kind() == reflect.String {
			value = fmt.Sprintf("%q", value)
		}
		fmt.Fprintf(&b, "%s%s: %s\n", indent, l.name, value)
	}
	return b.String()
}

// text writes a value as the file takes it.
func text(v reflect.Value) string {
	if d, ok := v.Interface().(time.Duration); ok {
		return duration(d)
	}
	return fmt.Sprint(v.Interface())
}

// duration drops the zeros that time.Duration writes behind the unit that matters.
func duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func code(s string) string {
	if s == "" {
		return "empty"
	}
	return "`" + s + "`"
}
