// Weir is a whole IoT platform in one binary. See README.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"weir/cli"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	cancel := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals // stop, and finish what was begun
		stop()
		<-signals // stop waiting
		close(cancel)
		signal.Stop(signals) // a third signal ends the process at once
	}()
	os.Exit(cli.Run(ctx, os.Args[1:], cli.IO{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(),
		SystemConfig: "/etc/weir/weir.yaml", Cancel: cancel}))
}
