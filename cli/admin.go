package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"weir/app"
	"weir/model"
)

func (c *command) admin() *cobra.Command {
	return group("admin", "Administrators of the instance", c.adminCreate())
}

func (c *command) adminCreate() *cobra.Command {
	var a app.NewAdmin
	var file string
	cmd := &cobra.Command{
		Use:   "create EMAIL",
		Short: "Make an administrator",
		Long: "Make an administrator, on a running instance or on a directory where none runs. The password is asked for; a\n" +
			"program gives it on stdin or in a file. A superuser may enter every tenant.",
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
			made, err := op.CreateAdmin(cmd.Context(), a)
			if err != nil {
				return hinted(err, model.ReasonNotUnique, "somebody with this address exists already and is left as they are; choose another address")
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
	cmd.Flags().StringVar(&a.Tenant, "tenant", "", "enter this tenant as tenant-admin, too")
	cmd.Flags().StringVar(&file, "password-file", "", "read the password from a file; - is stdin")
	return cmd
}

// password reads a password from a file, or asks for it twice on a terminal.
func (c *command) password(file string) (string, error) {
	switch file {
	case "":
	case "-":
		return firstLine(c.io.Stdin)
	default:
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		return firstLine(f)
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

func firstLine(r io.Reader) (string, error) {
	s, err := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	s = strings.TrimRight(s, "\r\n")
	if s == "" {
		return "", errors.New("the password is empty")
	}
	return s, nil
}
