package cli

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"weir/internal/test/testweir"
)

func TestAShellIsOfferedTheTokensThatExist(t *testing.T) {
	t.Parallel()
	p := testweir.Start(t, testweir.Options{})
	p.Run("", "tenant", "create", "acme")
	p.Run("", "tenant", "create", "beta")
	for _, d := range []string{"boiler-2", "boiler-1", "pump"} {
		p.Run("", "device", "add", "acme", d)
	}
	c := &command{configFile: p.Config}
	for _, x := range []struct {
		name  string
		words []string
		args  []string
		typed string
		want  []string
	}{
		{"show", []string{"TENANT", "TOKEN"}, nil, "", []string{"acme", "beta"}},
		{"show", []string{"TENANT", "TOKEN"}, []string{"acme"}, "boiler", []string{"boiler-1", "boiler-2"}},
		{"rm", []string{"TENANT", "TOKEN…"}, []string{"acme", "boiler-1"}, "p", []string{"pump"}},
		{"send", []string{"TENANT", "DEVICE", "metric=value…"}, []string{"acme"}, "pump", []string{"pump"}},
		{"send", []string{"TENANT", "DEVICE", "metric=value…"}, []string{"acme", "pump"}, "", nil},
		{"add", []string{"TENANT", "TOKEN"}, []string{"acme"}, "", nil},
		{"show", []string{"TENANT", "TOKEN"}, []string{"nobody"}, "", nil},
		{"show", []string{"TENANT", "TOKEN"}, []string{"beta"}, "boiler", nil},
	} {
		cmd := &cobra.Command{Use: x.name}
		cmd.SetContext(t.Context())
		got, directive := c.offer(x.words)(cmd, x.args, x.typed)
		slices.Sort(got)
		if !slices.Equal(got, x.want) || directive != cobra.ShellCompDirectiveNoFileComp {
			t.Errorf("%s %q %q: %q, %v", x.name, x.args, x.typed, got, directive)
		}
	}
}
