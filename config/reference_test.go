package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"weir/internal/test/made"
)

const referencePath = "../docs/configuration.md"

func TestTheReferenceSaysWhatTheConfigurationIs(t *testing.T) {
	t.Parallel()
	made.Part(t, referencePath, "", referencePage(), "make generate")
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
	b.WriteString("\n| key | default | bounds | meaning |\n|---|---|---|---|\n")
	for _, k := range described(ofConfig(&c)) {
		note := k.doc()
		if k.kind == fieldSections {
			note += " A list of sections."
		}
		if k.kind == fieldTexts {
			note += " A mapping of names and texts."
		}
		if k.kind == fieldList {
			note += " A list."
		}
		if k.secret() {
			note += " A secret; also `" + k.name() + "_file` (a file that holds it), `" + k.name() + "_env` (a variable) or `" + k.name() + "_credential` (a systemd credential)."
		}
		if k.reloadable() {
			note += " *Reload.*"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.path, code(text(k.value)), boundsOf(k), strings.ReplaceAll(note, "|", `\|`))
	}
	fmt.Fprintf(&b, "\n*Reload*: a running instance takes it from a reload; every other key waits for a restart.\n"+
		"\nA file that sets every key to its default:\n\n```yaml\n%s```\n\n", defaultsAsYAML())
	return b.String()
}

// boundsOf says what the loader holds a value of the key against, as far as its tags say it.
func boundsOf(k key) string {
	lowest, highest := k.bound("min"), k.bound("max")
	switch {
	case len(k.enum()) > 0:
		return "`" + strings.Join(k.enum(), "`, `") + "`"
	case lowest != nil && highest != nil:
		return text(*lowest) + " to " + text(*highest)
	case lowest != nil:
		return "at least " + text(*lowest)
	case k.of.Tag.Get("zero") == "no":
		return "longer than 0s"
	}
	return ""
}

// TestTheReferenceNamesEveryBound: what a tag bounds is refused beyond it, and the page says so.
func TestTheReferenceNamesEveryBound(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	c := Default()
	bounded := 0
	for _, k := range c.keys() {
		lowest := k.bound("min")
		if lowest == nil {
			continue
		}
		bounded++
		if !strings.Contains(string(b), "| `"+k.path+"` | "+code(text(k.value))+" | "+boundsOf(k)+" |") {
			t.Errorf("%s: its bounds are not in the table", k.path)
		}
		if !lowest.CanInt() || lowest.Int() == 0 {
			continue
		}
		section, name, _ := strings.Cut(k.path, ".")
		if _, err := load(fmt.Sprintf("%s:\n  %s: -1\n", section, name)); err == nil && k.of.Tag.Get("zero") != "default" {
			t.Errorf("%s: a value under %s is taken", k.path, text(*lowest))
		}
	}
	if bounded < 5 {
		t.Errorf("only %d keys have bounds", bounded)
	}
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
