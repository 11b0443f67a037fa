package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"weir/internal/secrettext"
	"weir/model"
	"weir/operate"
)

func newAdmin(c *command) *cobra.Command {
	return group("admin", "Administrators of the instance", newAdminCreate(c), newAdminPasswd(c), newAdminList(c), newAdminRole(c), newAdminEnable(c), newAdminDisable(c), newAdminRm(c),
		newAdminLink(c))
}

func newAdminCreate(c *command) *cobra.Command {
	var a operate.NewAdmin
	var file string
	cmd := &cobra.Command{
		Use:   "create EMAIL",
		Short: "Create an administrator",
		Long: "Create an administrator, on a running instance or in a data directory that no\n" +
			"instance uses. The command asks for the password; a program passes it on stdin\n" +
			"or in a file. A superuser may enter every tenant.",
		Example: "  weir admin create you@example.org\n  printf %s \"$PASSWORD\" | weir admin create you@example.org --password-file -",
		Args:    exactly("the email address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.Email = args[0]
			var err error
			if a.Password, err = c.password(file); err != nil {
				return err
			}
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			made, err := operate.CreateAdmin.Ask(cmd.Context(), op, a)
			if err != nil {
				return hinted(err, model.ReasonNotUnique, "an account with this address exists already and is not changed; choose another address")
			}
			c.show(made, func(w io.Writer) {
				fmt.Fprintf(w, "%s is now %s", made.Email, made.Role)
				if made.Tenant != "" {
					fmt.Fprintf(w, " and tenant-admin of %s", made.Tenant)
				}
				fmt.Fprintln(w)
			})
			return nil
		},
	}
	cmd.Flags().StringVar(&a.Role, "role", "superuser", "system role: superuser or operator")
	cmd.Flags().StringVar(&a.Tenant, "tenant", "", "also make the account tenant-admin of this tenant")
	cmd.Flags().StringVar(&file, "password-file", "", "read the password from a file; - is stdin")
	return cmd
}

func newAdminPasswd(c *command) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "passwd EMAIL",
		Short: "Set a new password for an account",
		Long: "Set a new password for an account, on a running instance or in a data directory\n" +
			"that no instance uses, and end all sessions of the account: its user must sign\n" +
			"in again. The command asks for the password twice; a program passes it on stdin\n" +
			"or in a file.",
		Example: "  weir admin passwd you@example.org\n  printf %s \"$PASSWORD\" | weir admin passwd you@example.org --password-file -",
		Args:    exactly("the email address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			password, err := c.password(file)
			if err != nil {
				return err
			}
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			set, err := operate.SetPassword.Ask(cmd.Context(), op, operate.NewPassword{Email: args[0], Password: password})
			if err != nil {
				return unknownAdmin(err)
			}
			c.show(set, func(w io.Writer) { fmt.Fprintf(w, "%s has a new password; all sessions are ended\n", set.Email) })
			if !set.Enabled {
				c.note("%s is disabled and cannot sign in", set.Email)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "password-file", "", "read the password from a file; - is stdin")
	return cmd
}

// unknownAdmin says where the addresses are found when one is not.
func unknownAdmin(err error) error {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code != model.CodeNotFound || e.Hint != "" {
		return err
	}
	out := *e
	out.Hint = "list the accounts: weir admin list"
	return &out
}

func newAdminList(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the accounts that can sign in",
		Long: "List all accounts by email, with their system roles and the tenants that they\n" +
			"may enter. A superuser may enter every tenant.",
		Example: "  weir admin list\n  weir admin list --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := ask(cmd.Context(), c.operator, &operate.ListAdmins, operate.None{})
			if err != nil {
				return err
			}
			if len(all) == 0 {
				c.note("no account can sign in yet; make the first administrator with weir admin create, or in a browser: weir admin link")
			}
			c.show(map[string]any{"total": len(all), "admins": all}, func(w io.Writer) { printAdmins(w, all) })
			return nil
		},
	}
}

func newAdminRole(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "role EMAIL ROLE",
		Short: "Give an account another system role",
		Long: "Give an account another system role, superuser or operator, in place of those\n" +
			"that it has. Its user must sign in again. The last superuser stays one.",
		Example: "  weir admin role you@example.org operator",
		Args:    exactly("the email address", "the system role (superuser or operator)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeAdmin(cmd.Context(), operate.AdminChange{Email: args[0], Roles: args[1:]})
		},
	}
}

func newAdminEnable(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "enable EMAIL",
		Short:   "Let a disabled account sign in again",
		Example: "  weir admin enable you@example.org",
		Args:    exactly("the email address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeAdmin(cmd.Context(), operate.AdminChange{Email: args[0], Enabled: new(true)})
		},
	}
}

func newAdminDisable(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "disable EMAIL",
		Short: "Sign an account out and refuse its sign-in",
		Long: "Sign an account out everywhere and refuse its sign-in; weir admin enable reverses\n" +
			"it. The last superuser stays enabled.",
		Example: "  weir admin disable ops@example.org",
		Args:    exactly("the email address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeAdmin(cmd.Context(), operate.AdminChange{Email: args[0], Enabled: new(false)})
		},
	}
}

func (c *command) changeAdmin(ctx context.Context, change operate.AdminChange) error {
	a, err := ask(ctx, c.operator, &operate.ChangeAdmin, change)
	if err != nil {
		return unknownAdmin(err)
	}
	c.show(a, func(w io.Writer) { printAdmins(w, []operate.AdminLine{*a}) })
	return nil
}

func newAdminRm(c *command) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "rm EMAIL",
		Short:   "Remove an account",
		Long:    "Remove an account with its roles in all tenants, and end its sessions. The last\nsuperuser stays.",
		Example: "  weir admin rm ops@example.org --yes",
		Args:    exactly("the email address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.confirm(cmd.Context(), yes, "Remove the account "+args[0]+"?"); err != nil {
				return err
			}
			gone, err := ask(cmd.Context(), c.operator, &operate.RemoveAdmin, operate.AdminName{Email: args[0]})
			if err != nil {
				return unknownAdmin(err)
			}
			c.show(gone, func(w io.Writer) { fmt.Fprintf(w, "account %s removed\n", printable(gone.Email)) })
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func printAdmins(w io.Writer, all []operate.AdminLine) {
	if len(all) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "EMAIL\tENABLED\tSYSTEM ROLES\tTENANTS")
	for _, a := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", printable(a.Email), yesNo(a.Enabled), listed(a.Roles), listed(a.Tenants))
	}
	_ = t.Flush() // the reader has gone
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func listed(names []string) string { return cmp.Or(strings.Join(names, ", "), "-") }

func newAdminLink(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "link",
		Short: "Print a new link to the setup page",
		Long: "Print a new link to the setup page of the running instance, where the first\n" +
			"administrator is created in a browser. The link is valid once, for 30 minutes,\n" +
			"and invalidates every earlier link. After the first administrator was created,\n" +
			"the command prints none.",
		Example: "  weir admin link",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := ask(cmd.Context(), c.client, &operate.MakeSetupLink, operate.None{})
			if err != nil {
				return err
			}
			c.show(l, func(w io.Writer) {
				for _, u := range l.URLs {
					fmt.Fprintln(w, u)
				}
			})
			if !c.json {
				c.note("good once, until %s; links before it are over", l.Expires.Local().Format("15:04:05"))
				if l.Hint != "" {
					c.note("%s", l.Hint)
				}
			}
			return nil
		},
	}
}

// password reads a password from a file, or asks for it twice on a terminal.
func (c *command) password(file string) (string, error) {
	if file != "" {
		password, err := c.secretLine(file)
		if err == nil && password == "" {
			err = &model.Error{Code: model.CodeInvalidInput, Message: "the password is empty"}
		}
		return password, err
	}
	in, ok := c.io.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return "", usageError{errors.New("no terminal to ask for the password; give it with --password-file (- is stdin)")}
	}
	first, err := c.ask(in, "Password: ")
	if err != nil {
		return "", err
	}
	again, err := c.ask(in, "Again: ")
	if err != nil {
		return "", err
	}
	if first != again {
		return "", errors.New("the two passwords differ")
	}
	return first, nil
}

func (c *command) ask(in *os.File, prompt string) (string, error) {
	fmt.Fprint(c.io.Stderr, prompt)
	b, err := term.ReadPassword(int(in.Fd()))
	fmt.Fprintln(c.io.Stderr)
	return string(b), err
}

// secretLine reads the secret in the first line of a file; - is stdin. A text that could be another secret than was meant is refused.
func (c *command) secretLine(file string) (string, error) {
	in := c.io.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	s, err := bufio.NewReader(io.LimitReader(in, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	secret, err := secrettext.Of([]byte(s))
	if errors.Is(err, secrettext.ErrEmpty) {
		return "", nil // the caller says of what
	}
	if err != nil {
		return "", &model.Error{Code: model.CodeInvalidInput, Message: fmt.Sprintf("the first line of %s %v", file, err)}
	}
	return secret, nil
}
