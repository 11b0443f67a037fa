package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"weir/app"
	"weir/config"
	"weir/operate"
)

// maxDemoDevices keeps the demo readable: each device is a line a second.
const maxDemoDevices = 20

func newDemo(c *command) *cobra.Command {
	d := &demo{c: c}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a temporary instance with simulated devices",
		Long: "Run a temporary instance on loopback with a demo tenant, a device profile with\n" +
			"a rule, and a few simulated devices that connect through the MQTT listener. The\n" +
			"command prints readings and rule firings until Ctrl-C, as any client receives\n" +
			"them over GraphQL subscriptions. Then it removes everything.",
		Example: "  weir demo\n  weir demo --for 30s --devices 5",
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	spanVar(cmd.Flags(), &d.lasts, "for", 0, "stop after this time, such as 30s (default: at Ctrl-C)")
	cmd.Flags().IntVar(&d.devices, "devices", 3, fmt.Sprintf("number of simulated devices, 1 to %d", maxDemoDevices))
	return cmd
}

// demo is one run of weir demo.
type demo struct {
	c       *command
	lasts   time.Duration
	devices int

	cfg     *config.Config
	at      operate.Listeners
	api     *demoAPI
	cast    []*demoDevice // the simulated devices
	byHand  *demoDevice   // one that the reader may send for
	printer demoPrinter
}

// run starts an instance, lets the demo play on it and removes it.
func (d *demo) run(ctx context.Context) (err error) {
	if err := d.check(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// In weir demo | head the reader leaves: without the signal a write fails instead, and the demo ends as at Ctrl-C.
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)
	d.c.out.outlives()
	d.printer = newDemoPrinter(d.c, stop)
	dir, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if d.cfg, err = demoConfig(dir); err != nil {
		return err
	}

	// The instance outlives Ctrl-C: the devices leave first, the books are read, then it is asked to stop.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	in := app.New(*d.cfg, app.Options{Logger: d.c.logger(d.cfg.Logging), Getenv: demoEnv, Version: Version, AnyPort: true})
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- in.Run(life, func() { close(ready) }, d.c.io.Cancel) }()
	select {
	case err := <-ended:
		return err
	case <-ready:
	}
	d.at = in.Listeners()
	played := make(chan error, 1)
	go func() { played <- d.play(ctx) }()
	select {
	case err := <-ended: // by itself: a part has failed, and what the play says of it does not matter
		stop()
		<-played
		return err
	case err := <-played:
		end()
		return errors.Join(err, <-ended)
	}
}

// untilGone is a writer that calls gone when nothing can be written any more.
type untilGone struct {
	io.Writer
	gone func()
}

func (w untilGone) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		w.gone()
	}
	return n, err
}

func (d *demo) check() error {
	switch {
	case d.c.configFile != "" || d.c.dataDir != "" || len(d.c.set) > 0:
		return usageError{errors.New("weir demo takes neither --config nor --data nor --set: its instance is thrown away; weir run keeps one")}
	case d.devices < 1 || d.devices > maxDemoDevices:
		return usageError{fmt.Errorf("--devices must lie in 1..%d", maxDemoDevices)}
	case d.lasts < 0:
		return usageError{errors.New("--for must not be negative")}
	}
	return nil
}

// demoConfig is the embedded defaults on loopback.
func demoConfig(dir string) (*config.Config, error) {
	cfg, err := config.Load(config.Source{})
	if err != nil {
		return nil, err
	}
	cfg.DataDir = dir
	cfg.Logging.Level = "warn" // the terminal is the demo's
	for _, l := range []*string{&cfg.Listeners.API, &cfg.Listeners.Ingest, &cfg.Listeners.MQTT, &cfg.Listeners.Metrics} {
		if *l, err = loopback(*l); err != nil {
			return nil, err
		}
	}
	return cfg, nil
}

// demoEnv is the environment of the demo's instance: nothing of the caller's but the explorer, which is for looking around.
func demoEnv(name string) string {
	if name == "WEIR_GRAPHQL_DEV_TOOLS" {
		return "true"
	}
	return ""
}

// loopback is the port of addr on 127.0.0.1.
func loopback(addr string) (string, error) {
	_, port, err := net.SplitHostPort(addr)
	return net.JoinHostPort("127.0.0.1", port), err
}

// play makes what the demo needs, lets the devices send until ctx or the time ends, and reports how it went.
func (d *demo) play(ctx context.Context) error {
	// What is begun when Ctrl-C comes is finished; a second one cuts it short.
	finish, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	go func() {
		select {
		case <-d.c.io.Cancel:
			cut()
		case <-finish.Done():
		}
	}()
	op, err := operate.Dial(finish, *d.cfg)
	if err != nil {
		return err
	}
	defer op.Close()
	if err := d.setUp(finish, op); err != nil {
		return fmt.Errorf("setting the demo up: %w", err)
	}
	d.printer.intro(d)
	if err := d.simulate(ctx); err != nil {
		return err
	}
	sum, err := d.summarize(finish, op)
	if err != nil {
		return fmt.Errorf("summing the demo up: %w", err)
	}
	d.printer.summary(sum)
	if !sum.Balanced {
		return errors.New("the ledger does not balance")
	}
	return nil
}

// simulate lets the devices send and prints what a client sees, until ctx or the time ends.
func (d *demo) simulate(ctx context.Context) error {
	var stop context.CancelFunc
	if d.lasts > 0 {
		ctx, stop = context.WithTimeout(ctx, d.lasts)
	} else {
		ctx, stop = context.WithCancel(ctx)
	}
	defer stop()
	reel := newDemoReel(d.printer.show)
	var watching sync.WaitGroup
	watch, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	defer unwatch()
	watching.Go(func() { reel.run(watch) })
	watching.Go(func() { d.watch(watch, reel) })
	sending, sends := errgroup.WithContext(ctx) // when one device gives up, all do
	start := time.Now()
	for _, device := range d.cast {
		sending.Go(func() error { return device.run(sends, start) })
	}
	err := sending.Wait()
	// What was acknowledged last is still on its way to the screen.
	select {
	case <-time.After(2 * demoReelDelay):
	case <-d.c.io.Cancel:
	}
	unwatch()
	watching.Wait()
	return err
}

// demoSummary is how a demo went.
type demoSummary struct {
	Sent     int64  `json:"sent"` // messages that the devices saw acknowledged
	Refused  int64  `json:"refused"`
	Received int64  `json:"received"` // as the ledger has it
	Stored   int64  `json:"stored"`
	Readings int64  `json:"readings"`
	Fired    int64  `json:"fired"` // edges that the rule counts
	Seen     int64  `json:"seen"`  // edges that came over the subscription
	Balanced bool   `json:"balanced"`
	Dir      string `json:"-"`
}

// summarize waits until everything is applied and reads the books.
func (d *demo) summarize(ctx context.Context, op *operate.Client) (*demoSummary, error) {
	s := &demoSummary{Balanced: true, Dir: d.cfg.DataDir, Seen: d.printer.edges()}
	for _, device := range d.cast {
		s.Sent += device.sent.Load()
		s.Refused += device.refused.Load()
	}
	if err := awaitApplied(ctx, op); err != nil {
		return nil, err
	}
	l, err := operate.ShowLedger.Ask(ctx, op, operate.LedgerQuery{})
	if err != nil {
		return nil, err
	}
	for i := range l.Lines {
		line := &l.Lines[i]
		s.Received += line.Received
		s.Stored += line.Outcomes["stored"]
		s.Readings += line.Readings
		s.Balanced = s.Balanced && line.Missing == 0
	}
	s.Fired, err = d.fireCount(ctx)
	return s, err
}

func awaitApplied(ctx context.Context, op *operate.Client) error {
	for {
		s, err := operate.GetStatus.Ask(ctx, op, operate.None{})
		if err != nil || s.Log.Applied >= s.Log.Last {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
