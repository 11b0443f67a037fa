package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/docs"
)

func newDocs(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "docs [PAGE]",
		Short: "List the pages of the documentation, or print one",
		Long: "List the pages of the documentation that is part of this program, or print one of\n" +
			"them as Markdown. The last part of a page's name suffices where only one page has\n" +
			"it. A running instance serves the same pages as HTML, at /docs/ of the API\n" +
			"listener.",
		Example: "  weir docs\n  weir docs getting-started\n  weir docs transports/mqtt | less",
		Args:    upTo("the name of a page"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, p := range docs.Pages() {
				names = append(names, p.Name()+"\t"+p.Title)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				pages := docs.Pages()
				c.show(map[string]any{"total": len(pages), "pages": pages}, func(w io.Writer) { listDocs(w, pages) })
				return nil
			}
			p, ok, near := docs.Find(args[0])
			if !ok {
				return noPage(args[0], near)
			}
			text, _ := docs.Read(p.Path)
			c.show(printedPage{p, text}, func(w io.Writer) { fmt.Fprint(w, text) })
			return nil
		},
	}
}

// printedPage is a page with its text.
type printedPage struct {
	docs.Page
	Text string `json:"text"` // Markdown
}

func listDocs(w io.Writer, pages []docs.Page) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range pages {
		fmt.Fprintf(t, "%s\t%s\n", p.Name(), p.Title)
	}
	_ = t.Flush() // the reader has gone
}

func noPage(word string, near []string) error {
	text := fmt.Sprintf("the documentation has no page %q, or more than one", word)
	if len(near) > 0 {
		text += ": " + strings.Join(near, ", ")
	}
	return usageError{fmt.Errorf("%s; weir docs lists all", text)}
}
