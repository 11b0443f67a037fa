package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func newMan(c *command) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man [COMMAND…]",
		Short: "Print a manual page, or write all of them",
		Long: "Print the manual page of weir, or of one of its commands, in the format of\n" +
			"man(1). --dir writes the pages of all commands into a directory, which it\n" +
			"creates if necessary; existing pages of the same name are replaced.",
		Example: "  weir man | man -l -\n  weir man device add > weir-device-add.1\n  weir man --dir /usr/local/share/man/man1",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir == "" {
				of, err := named(cmd.Root(), args)
				if err != nil {
					return err
				}
				_, err = io.WriteString(c.io.Stdout, manPage(of))
				return err
			}
			if len(args) > 0 {
				return usageError{errors.New("--dir writes the pages of all commands; name none")}
			}
			return c.writeManPages(dir, cmd.Root())
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write the pages of all commands into this `directory`")
	return cmd
}

// named finds the command that the words name.
func named(root *cobra.Command, words []string) (*cobra.Command, error) {
	at := root
	for _, w := range words {
		i := slices.IndexFunc(children(at), func(c *cobra.Command) bool { return c.Name() == w })
		if i < 0 {
			return nil, usageError{fmt.Errorf("%s has no command %q", at.CommandPath(), w)}
		}
		at = children(at)[i]
	}
	return at, nil
}

func (c *command) writeManPages(dir string, root *cobra.Command) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	all := reachable(root)
	for _, cmd := range all {
		if err := os.WriteFile(filepath.Join(dir, manName(cmd)+".1"), []byte(manPage(cmd)), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.io.Stderr, "%s written to %s\n", count(len(all), "page"), dir)
	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage writes a page in the macros of man(7). It has no date: the same source gives the same bytes.
func manPage(cmd *cobra.Command) string {
	p := &roff{}
	p.line(`.TH "%s" 1 "" "weir %s" "Weir"`, strings.ToUpper(manName(cmd)), Version)
	p.section("NAME")
	p.text(manName(cmd) + ` \- ` + escape(cmd.Short))
	p.section("SYNOPSIS")
	p.line(".B %s", escape(synopsis(cmd)))
	if cmd.Long != "" {
		p.section("DESCRIPTION")
		for _, para := range paragraphs(cmd.Long) {
			p.paragraph(para)
		}
	}
	if subs := children(cmd); len(subs) > 0 {
		p.section("COMMANDS")
		for _, s := range subs {
			p.item(s.CommandPath(), sentence(s.Short))
		}
	}
	p.options("OPTIONS", cmd)
	if cmd.HasParent() {
		p.options("GLOBAL OPTIONS", cmd.Root())
	}
	p.section("EXIT STATUS")
	for _, e := range exitCodes {
		p.item(fmt.Sprint(e.code), e.what)
	}
	p.section("ENVIRONMENT")
	for _, v := range variables {
		p.item(v.name, v.what)
	}
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.verbatim(example(cmd))
	}
	p.related(cmd)
	return p.out.String()
}

// roff writes requests and text, one a line.
type roff struct{ out strings.Builder }

func (p *roff) line(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

func (p *roff) section(name string) { p.line(".SH %s", name) }

// text writes a line of text that is escaped already. One that begins like a request is kept from being one.
func (p *roff) text(s string) {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	p.line("%s", s)
}

func (p *roff) paragraph(s string) {
	if indented(s) {
		p.verbatim(s)
		return
	}
	p.line(".PP")
	p.text(escape(s))
}

func (p *roff) item(name, what string) {
	p.line(".TP")
	p.line(".B %s", escape(name))
	p.text(escape(what))
}

func (p *roff) verbatim(s string) {
	p.line(".PP\n.nf")
	for line := range strings.SplitSeq(s, "\n") {
		p.text(escape(line))
	}
	p.line(".fi")
}

func (p *roff) options(section string, cmd *cobra.Command) {
	all := options(cmd)
	if len(all) == 0 {
		return
	}
	p.section(section)
	for _, o := range all {
		p.item(o.names, o.usage)
	}
}

func (p *roff) related(cmd *cobra.Command) {
	var names []string
	if cmd.HasParent() {
		names = append(names, manName(cmd.Parent()))
	}
	for _, s := range children(cmd) {
		names = append(names, manName(s))
	}
	if len(names) == 0 {
		return
	}
	p.section("SEE ALSO")
	for i, n := range names {
		names[i] = `\fB` + escape(n) + `\fR(1)`
	}
	p.text(strings.Join(names, ", "))
}

// roffEscapes: backslashes are written out, hyphens are those that people copy, what is not ASCII is named.
var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\&...`, "’", `\(cq`, "–", `\(en`, "→", `\(->`, "≤", `\(<=`, "≥", `\(>=`, "µ", `\(mc`)

func escape(s string) string { return roffEscapes.Replace(s) }
