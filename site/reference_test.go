package site

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/test/made"
)

// TestTheSiteFileReferenceSaysWhatTheKindsHave holds the tables of docs/site-files.md against the descriptions; -update writes them.
func TestTheSiteFileReferenceSaysWhatTheKindsHave(t *testing.T) {
	t.Parallel()
	f := DefaultFormat()
	for name, text := range map[string]string{"lists": listTable(f), "fields": fieldTable(f)} {
		made.Part(t, "../docs/site-files.md", name, text, "make generate")
	}
}

// each calls with every kind that is declared below one.
func each(k *kind, with func(*kind)) {
	for _, inner := range k.lists {
		with(inner)
		each(inner, with)
	}
}

func listTable(f *Format) string {
	var b strings.Builder
	b.WriteString("\n| list | declared in | names one | contains |\n|---|---|---|---|\n")
	each(f.root, func(k *kind) {
		var inner []string
		for _, l := range k.lists {
			inner = append(inner, l.list)
		}
		if k == f.tenant {
			inner = append(inner, keyFrom)
		}
		outer := "the file"
		if k.outer != nil && k.outer != f.root {
			outer = quoted(k.outer.list)
		}
		if k == f.membership {
			outer = quoted(f.identity.list)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.list, outer, quoted(k.ids...), quoted(inner...))
	})
	return b.String() + "\n"
}

func fieldTable(f *Format) string {
	var b strings.Builder
	b.WriteString("\n| list | fields |\n|---|---|\n")
	each(f.root, func(k *kind) {
		var names []string
		for i := range k.fields {
			names = append(names, fieldText(&k.fields[i]))
		}
		if len(names) == 0 {
			names = []string{"–"}
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", k.list, strings.Join(names, ", "))
	})
	return b.String() + "\n"
}

// fieldText is a field with what its values are; a text has none.
func fieldText(f *field) string {
	text := "`" + f.name + "`"
	if f.secret {
		text = "`" + f.name + "_file` or `" + f.name + "_env`"
	}
	var notes []string
	if f.required && f.fresh == nil {
		notes = append(notes, "required")
	}
	if f.ref != "" {
		notes = append(notes, "of `"+f.ref+"`")
	}
	if what := map[fieldType]string{boolField: "true or false", integerField: "whole number", numberField: "number", instantField: "time", listField: "list",
		setField: "list", documentField: "YAML or JSON"}[f.typ]; what != "" {
		notes = append(notes, what)
	}
	if n := len(f.oneOf); n > 0 && n <= 8 {
		notes = append(notes, strings.Join(f.oneOf, ", "))
	}
	if f.fresh != nil {
		notes = append(notes, fmt.Sprintf("new: %v", f.fresh))
	}
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, "; ") + ")"
	}
	return text
}

func quoted(names ...string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

func TestEveryKeyThatIsNotOneSaysWhichThereAre(t *testing.T) {
	t.Parallel()
	f := DefaultFormat()
	each(f.root, func(k *kind) {
		hint := suggestOr("zzzzzzzzzzzzzzzz", k.keys())
		for _, key := range k.keys() {
			if !strings.Contains(hint, key) {
				t.Errorf("%s: the hint does not name %s: %s", k.name, key, hint)
			}
		}
	})
}
