package cli

import (
	"context"
	"errors"

	"weir/app"
	"weir/config"
	"weir/operate"
)

// operator reaches the instance of the data directory: over its socket when it runs, else on the store itself. A directory that
// holds no instance stays as it is, and the error says so: a mistyped one must not become a second instance.
func (c *command) operator(ctx context.Context) (operate.Target, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	to, err := c.reach(ctx, *cfg)
	if d, atRest := to.(*operate.Directory); atRest {
		return to, d.Open(ctx)
	}
	return to, err
}

// client reaches a running instance, also one whose configuration was broken since it has started.
func (c *command) client(ctx context.Context) (operate.Target, error) {
	client, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return client, nil
}

// dial is client for streams.
func (c *command) dial(ctx context.Context) (*operate.Client, error) {
	r, err := c.reading()
	if err != nil {
		return nil, err
	}
	client, err := operate.Dial(ctx, config.Config{DataDir: r.DataDir})
	if err != nil && r.Problems != nil {
		return nil, r.Problems
	}
	return client, err
}

// reach is a running instance, or the directory in which none runs.
func (c *command) reach(ctx context.Context, cfg config.Config) (operate.Target, error) {
	client, err := operate.Dial(ctx, cfg)
	switch {
	case err == nil:
		return client, nil
	case errors.Is(err, operate.ErrNotRunning):
		return app.AtRest(cfg, c.getenv, c.logger(cfg.Logging)), nil
	}
	return nil, err
}

// reachRead is reach for a configuration that may not load: then only a running instance is reached, else ErrNotRunning.
func (c *command) reachRead(ctx context.Context, r config.Reading) (operate.Target, error) {
	if r.Config != nil {
		cfg := *r.Config
		cfg.DataDir = r.DataDir
		return c.reach(ctx, cfg)
	}
	client, err := operate.Dial(ctx, config.Config{DataDir: r.DataDir})
	if err != nil {
		return nil, err
	}
	return client, nil
}

// reading reads the configuration. One that does not load still says where the directory is.
func (c *command) reading() (config.Reading, error) {
	src, err := c.source()
	if err != nil {
		return config.Reading{}, err
	}
	src.Asking = true
	return config.Read(src), nil
}

// ask opens a way to an instance, carries one verb out over it, and closes it again.
func ask[In, Out any](ctx context.Context, open func(context.Context) (operate.Target, error), verb *operate.Verb[In, Out], in In) (out Out, err error) {
	to, err := open(ctx)
	if err != nil {
		return out, err
	}
	defer to.Close()
	return verb.Ask(ctx, to, in)
}
