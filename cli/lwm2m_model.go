package cli

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/operate"
)

// maxModelFile is how much of a definition file is read at most: a larger one is refused by its size.
const maxModelFile = 1<<20 + 1

func newLwM2MModelGroup(c *command) *cobra.Command {
	return group("model", "Objects that definition files describe", newLwM2MModelAdd(c), newLwM2MModelList(c))
}

func newLwM2MModelAdd(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "add FILE",
		Short: "Add a definition file of LwM2M objects",
		Long: "Check a definition file of LwM2M objects, XML as the registry of the OMA has it, and put it\n" +
			"where the server reads those: lwm2m.models_dir. It counts within some seconds, without a\n" +
			"restart, and replaces an earlier file of the same objects. It says of which type the\n" +
			"resources are, for values in TLV and text, which do not.",
		Example: "  weir lwm2m model add 32769.xml",
		Args:    exactly("the definition file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readModel(args[0])
			if err != nil {
				return err
			}
			return c.models(cmd, func(to operate.Target) ([]operate.LwM2MModel, error) {
				return operate.AddLwM2MModel.Ask(cmd.Context(), to, operate.NewLwM2MModel{Text: text})
			})
		},
	}
}

func newLwM2MModelList(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the objects of definition files, and files that do not count",
		Long:    "List the LwM2M objects that definition files describe beside those that are built in, and\nfiles that do not count, with the reason.",
		Example: "  weir lwm2m model list",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.models(cmd, func(to operate.Target) ([]operate.LwM2MModel, error) {
				return operate.ListLwM2MModels.Ask(cmd.Context(), to, operate.None{})
			})
		},
	}
}

// readModel reads a definition file as text.
func readModel(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxModelFile))
	return string(b), err
}

// models asks for definitions and shows them.
func (c *command) models(cmd *cobra.Command, ask func(operate.Target) ([]operate.LwM2MModel, error)) error {
	to, err := c.operator(cmd.Context())
	if err != nil {
		return err
	}
	defer to.Close()
	all, err := ask(to)
	if err != nil {
		return err
	}
	c.show(all, func(w io.Writer) { printModels(w, all) })
	return nil
}

func printModels(w io.Writer, all []operate.LwM2MModel) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no object is defined beside those that are built in")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "OBJECT\tVERSION\tRESOURCES\tNAME\tFILE")
	for _, m := range all {
		if m.Fault != "" {
			fmt.Fprintf(t, "-\t-\t-\t%s\t%s\n", printable(m.Fault), printable(m.File))
			continue
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\n", m.ObjectID, m.Version, m.Resources, printable(m.Name), printable(m.File))
	}
	_ = t.Flush() // the reader has gone
}
