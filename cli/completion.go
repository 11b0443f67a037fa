package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/config"
	"weir/operate"
)

var shells = []string{"bash", "zsh", "fish", "powershell"}

func newCompletion(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script of a shell",
		Long: "Print the script that lets bash, zsh, fish or powershell complete the commands\n" +
			"and options of weir. While an instance runs on the data directory, the script\n" +
			"also completes the tokens of tenants, devices, profiles, types and rules.",
		Example: "  weir completion bash > /etc/bash_completion.d/weir\n  weir completion zsh > \"${fpath[1]}/_weir\"\n" +
			"  weir completion fish > ~/.config/fish/completions/weir.fish\n  weir completion powershell | Out-String | Invoke-Expression",
		ValidArgs: shells,
		Args:      exactly("the shell (" + strings.Join(shells, ", ") + ")"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(c.io.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(c.io.Stdout)
			case "fish":
				return root.GenFishCompletion(c.io.Stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(c.io.Stdout)
			}
			return usageError{fmt.Errorf("there is no completion for %q: it is one of %s", args[0], strings.Join(shells, ", "))}
		},
	}
}

// completeTimeout is how long a shell waits for tokens: a user who types must not.
const completeTimeout = 500 * time.Millisecond

// completeTokens lets every command below root that names a TENANT or a DEVICE in its use line, or has the option
// --tenant or --device, offer the tokens that a running instance knows, and options with fixed values these.
func (c *command) completeTokens(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		c.completeTokens(cmd)
		words := strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(cmd.Use))[1:]
		if cmd.ValidArgs == nil && cmd.ValidArgsFunction == nil && slices.Contains(words, "TENANT") {
			cmd.ValidArgsFunction = c.offer(words)
		}
		c.completeOptions(cmd)
	}
}

// completeOptions completes the values of a command's options. It fails only where an option has its completion already,
// and then that one stands.
func (c *command) completeOptions(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if values := fixedValues(f); values != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	if cmd.Flags().Lookup("tenant") != nil {
		_ = cmd.RegisterFlagCompletionFunc("tenant", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return c.tokens(cmd.Context(), operate.TokenQuery{Prefix: typed})
		})
	}
	if cmd.Flags().Lookup("device") != nil {
		_ = cmd.RegisterFlagCompletionFunc("device", func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			tenant := append(args, "")[0]
			if f := cmd.Flags().Lookup("tenant"); f != nil {
				tenant = f.Value.String()
			}
			return c.tokens(cmd.Context(), operate.TokenQuery{Tenant: tenant, Devices: true, Prefix: typed})
		})
	}
}

// fixedValues are what a shell offers for an option, nil where anything may stand there.
func fixedValues(f *pflag.Flag) []string {
	if v, ok := f.Value.(*choiceValue); ok {
		return v.of
	}
	switch f.Name {
	case "tier":
		return []string{"gold", "silver", "bronze"}
	case "role":
		return []string{"superuser", "operator"}
	case "reason":
		return operate.DeadLetterReasons()
	case "profile":
		if strings.Contains(f.Usage, strings.Join(profileNames(), ", ")) { // that of a configuration, not of devices
			return profileNames()
		}
	}
	return nil
}

// completeKeys offers the keys of the configuration for --set.
func completeKeys(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	d := config.Default()
	var out []string
	for _, v := range d.Values() {
		out = append(out, v.Path+"=")
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// offer completes the words of a use line: the tenant, then devices of that tenant, but for a device that is to be made:
// its token must not be guessed.
func (c *command) offer(words []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		at := min(len(args), len(words)-1)
		switch {
		case words[at] == "TENANT":
			return c.tokens(cmd.Context(), operate.TokenQuery{Prefix: typed})
		case len(args) > 0 && (strings.HasPrefix(words[at], "DEVICE") || strings.HasPrefix(words[at], "TOKEN") && cmd.Name() != "add"):
			return c.tokens(cmd.Context(), operate.TokenQuery{Tenant: args[0], Devices: true, Prefix: typed})
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// tokens asks the running instance; where none answers in time nothing is offered.
func (c *command) tokens(ctx context.Context, q operate.TokenQuery) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	client, err := c.client(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer client.Close()
	found, err := operate.ListTokens.Ask(ctx, client, q)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
