package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
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
	made := referencePage()
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
	if err != nil || !isDefault(c) {
		t.Errorf("the file of all defaults is read as %+v, %v", c, err)
	}
}

// referencePage is the tables of all keys, and a file that sets each to its default.
func referencePage() string {
	var b strings.Builder
	c := Default()
	b.WriteString("\n| key | default | meaning |\n|---|---|---|\n")
	for _, k := range c.keys() {
		note := k.doc()
		if k.kind == fieldList {
			note += " A list."
		}
		if k.secret() {
			note += " A secret; also `" + k.name() + "_file` (a file that holds it), `" + k.name() + "_env` (a variable) or `" + k.name() + "_credential` (a systemd credential)."
		}
		if k.reloadable() {
			note += " *Reload.*"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.path, code(text(k.value)), strings.ReplaceAll(note, "|", `\|`))
	}
	fmt.Fprintf(&b, "\n*Reload*: a running instance takes it from a reload; every other key waits for a restart.\n"+
		"\nA file that sets every key to its default:\n\n```yaml\n%s```\n\n", defaultsAsYAML())
	return b.String()
}

func defaultsAsYAML() string {
	c := Default()
	return document(c.keys(), func(b *strings.Builder, indent string, k key) {
		if k.secret() {
			fmt.Fprintf(b, "%s# %s_file: /run/secrets/%s\n", indent, k.name(), k.name())
			return
		}
		fmt.Fprintf(b, "%s%s: %s\n", indent, k.name(), k.yaml())
	})
}

func code(s string) string {
	if s == "" {
		return "empty"
	}
	return "`" + s + "`"
}
