package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/config"
	"weir/operate"
)

// healthTick is how often a wait asks again.
const healthTick = 250 * time.Millisecond

func newHealth(c *command) *cobra.Command {
	var base string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check that the instance serves, for containers and load balancers",
		Long: "Ask the running instance whether it serves. The command is cheap and needs only\n" +
			"this binary: an image without a shell can use it as its health check. The exit\n" +
			"code is 0 if the instance is ready, 5 if it is not ready or serves with a\n" +
			"failing check (which it prints), and 4 if no instance runs. After a start,\n" +
			"devices are served before the instance is ready: queries wait until what was\n" +
			"acknowledged before the start is applied, and the command says how far it is.\n\n" +
			"The command uses the socket in the data directory; with --url it uses /readyz\n" +
			"of the api listener over the network, which shows less.",
		Example: "  weir health\n  weir health --wait 30s && weir status\n  weir health --url http://127.0.0.1:8080",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ask, err := c.healthOf(base)
			if err != nil {
				return err
			}
			h, err := waitReady(cmd.Context(), wait, ask)
			if err != nil {
				return err
			}
			return c.showHealth(h)
		},
	}
	cmd.Flags().StringVar(&base, "url", "", "check this `address` instead, such as http://127.0.0.1:8080")
	spanVar(cmd.Flags(), &wait, "wait", 0, "wait until the instance is ready, for at most this time, such as 30s")
	return cmd
}

// healthOf returns how the instance is asked.
func (c *command) healthOf(base string) (func(context.Context) (*operate.Health, error), error) {
	if base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, usageError{errors.New("--url must be an http or https URL, such as http://127.0.0.1:8080")}
		}
		return func(ctx context.Context) (*operate.Health, error) { return operate.AskReadyz(ctx, base) }, nil
	}
	r, err := c.reading()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*operate.Health, error) {
		h, err := operate.AskHealth(ctx, config.Config{DataDir: r.DataDir})
		if errors.Is(err, operate.ErrNotRunning) && r.Problems != nil {
			return nil, r.Problems
		}
		return h, err
	}, nil
}

// waitReady asks until the instance is ready or the time is over, once at least. It returns the last answer.
func waitReady(ctx context.Context, wait time.Duration, ask func(context.Context) (*operate.Health, error)) (*operate.Health, error) {
	end := time.Now().Add(wait)
	for {
		h, err := ask(ctx)
		if err == nil && h.State == operate.HealthReady || err != nil && !errors.Is(err, operate.ErrNotRunning) {
			return h, err
		}
		if left := time.Until(end); left <= 0 {
			return h, err
		}
		select {
		case <-time.After(healthTick):
		case <-ctx.Done():
			return h, err
		}
	}
}

func (c *command) showHealth(h *operate.Health) error {
	if c.json {
		c.writeJSON(c.io.Stdout, h)
	}
	if h.State != operate.HealthReady {
		return checkError{fmt.Errorf("%s: %s", h.State, strings.Join(h.Problems, "; ")), "weir doctor looks closer"}
	}
	if !c.json {
		c.show(h, func(w io.Writer) { fmt.Fprintln(w, h.State) })
	}
	return nil
}
