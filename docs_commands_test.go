package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/testweir"
)

// pages are all pages of the documentation, by the path of their file.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, more...)
	}
	return found
}

// TestDocumentsNameOnlyCommandsThatExist asks the program itself about every command and flag that the pages name.
func TestDocumentsNameOnlyCommandsThatExist(t *testing.T) {
	t.Parallel()
	needs(t)
	tree := commandTree{binary: testweir.Binary(t), flags: map[string][]string{}, subs: map[string][]string{}}
	tree.read(t)
	known := 0
	for _, page := range pages(t) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, said := range commandsIn(string(b)) {
			if why := tree.check(said); why != "" {
				t.Errorf("%s: weir %s: %s", page, said, why)
			}
			known++
		}
	}
	if known < 20 {
		t.Errorf("the pages name only %d commands; does this test still see them?", known)
	}
}

// inline is a span between backticks that calls weir.
var inline = regexp.MustCompile("`(?:\\./)?weir ([a-z-][^`]*)`")

// called is a call of weir in a line of commands.
var called = regexp.MustCompile(`(?:^|[\s(|&;$/])weir +([a-z-][^#|;)&>]*)`)

// commandsIn returns what follows weir, wherever a page calls it.
func commandsIn(page string) (said []string) {
	block := ""
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if info, ok := strings.CutPrefix(line, "```"); ok {
			if block != "" {
				block = ""
			} else {
				block = "block " + strings.Fields(info + " plain")[0]
			}
			continue
		}
		finder := called
		switch block {
		case "":
			finder = inline
		case "block sh", "block console":
		default:
			continue
		}
		for _, m := range finder.FindAllStringSubmatch(line, -1) {
			said = append(said, strings.TrimSpace(m[1]))
		}
	}
	return said
}

// commandTree is what the program says it has.
type commandTree struct {
	binary string
	subs   map[string][]string // by path, "" for the root
	flags  map[string][]string
}

var (
	subLine  = regexp.MustCompile(`(?m)^  ([a-z0-9-]+) +\S`)
	flagLine = regexp.MustCompile(`--[a-z][a-z-]*`)
)

func (c *commandTree) read(t *testing.T, path ...string) {
	t.Helper()
	out, err := exec.Command(c.binary, append(slices.Clone(path), "--help")...).Output()
	if err != nil {
		t.Fatalf("weir %s --help: %v", strings.Join(path, " "), err)
	}
	at := strings.Join(path, " ")
	c.flags[at] = flagLine.FindAllString(string(out), -1)
	for section := range strings.SplitSeq(string(out), "\n\n") {
		title, list, _ := strings.Cut(section, "\n")
		if !strings.HasSuffix(title, ":") || strings.HasSuffix(title, "Flags:") || slices.Contains([]string{"Usage:", "Examples:"}, title) {
			continue // commands stand below "Available Commands:", those of the root below the names of their groups
		}
		for _, m := range subLine.FindAllStringSubmatch(list, -1) {
			c.subs[at] = append(c.subs[at], m[1])
			if m[1] != "help" {
				c.read(t, append(slices.Clone(path), m[1])...)
			}
		}
	}
}

// check says what is wrong with a command line; "" when nothing is.
func (c *commandTree) check(said string) string {
	at := ""
	words := strings.Fields(said)
	for len(words) > 0 && slices.Contains(c.subs[at], words[0]) {
		at, words = strings.TrimSpace(at+" "+words[0]), words[1:]
	}
	if len(words) > 0 && strings.Contains(words[0], "|") && len(c.subs[at]) > 0 { // list|show|rm
		for one := range strings.SplitSeq(words[0], "|") {
			if !slices.Contains(c.subs[at], one) {
				return "there is no command " + one
			}
		}
		return ""
	}
	if len(c.subs[at]) > 0 && len(words) > 0 && !strings.HasPrefix(words[0], "-") && words[0] != "…" {
		return "there is no command " + words[0]
	}
	for _, w := range words {
		flag, _, _ := strings.Cut(strings.Trim(w, `[]"'`), "=")
		if strings.HasPrefix(flag, "--") && len(flag) > 2 && !slices.Contains(c.flags[at], flag) {
			return "it has no flag " + flag
		}
	}
	return ""
}

// keyRow is a row of the reference of the configuration; key is a dotted name between backticks, with or without a value.
var (
	keyRow = regexp.MustCompile("(?m)^\\| `([a-z_]+(?:\\.[a-zA-Z_0-9]+)*)` \\|")
	key    = regexp.MustCompile("`([a-z_]+(?:\\.[a-z_0-9]+)+)(?:: [^`]*)?`")
)

func TestDocumentsNameOnlyKeysThatExist(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	known, sections := map[string]bool{}, map[string]bool{}
	for _, m := range keyRow.FindAllStringSubmatch(string(b), -1) {
		known[m[1]] = true
		section, _, _ := strings.Cut(m[1], ".")
		sections[section] = true
	}
	if len(known) < 40 {
		t.Fatalf("the reference has only %d keys", len(known))
	}
	for _, page := range pages(t) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range key.FindAllStringSubmatch(string(b), -1) {
			section, rest, _ := strings.Cut(m[1], ".")
			if sections[section] && !known[m[1]] && !isFile(rest) {
				t.Errorf("%s names the key %s, which is not in docs/configuration.md", page, m[1])
			}
		}
	}
}

// isFile reports whether what follows a section's name is the end of a file's name, as in config.go.
func isFile(rest string) bool {
	return slices.Contains([]string{"go", "md", "yaml", "db", "key"}, rest)
}

// anchored is a link to a heading; heading is one.
var (
	anchored = regexp.MustCompile(`\]\(([^)#:]*)#([^)]+)\)`)
	heading  = regexp.MustCompile("(?m)^#+ (.*)$")
)

func TestDocumentsLinkOnlyToHeadingsThatExist(t *testing.T) {
	t.Parallel()
	anchors := map[string][]string{}
	for _, page := range pages(t) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range heading.FindAllStringSubmatch(string(b), -1) {
			anchors[page] = append(anchors[page], anchor(m[1]))
		}
	}
	for _, page := range pages(t) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range anchored.FindAllStringSubmatch(string(b), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if !slices.Contains(anchors[target], m[2]) {
				t.Errorf("%s links to #%s of %s, which has no such heading", page, m[2], target)
			}
		}
	}
}

// anchor is how a forge names a heading: lower case, spaces as dashes, everything but letters, digits, - and _ left out.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', r >= '0' && r <= '9', r >= 'a' && r <= 'z', r > 127:
			return r
		}
		return -1
	}, strings.ToLower(heading))
}
