package app

import "time"

// A wait of a start or a stop is reported after waitFirst and then every waitNext; the service manager is asked for waitMore each
// time, so that it does not kill what goes on.
const (
	waitFirst = time.Second
	waitNext  = 5 * time.Second
	waitMore  = 30 * time.Second
)

// reporting reports what is waited for until done is called. what may change while it lasts.
func (b *base) reporting(during string, what func() string) (done func()) {
	end := make(chan struct{})
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		for next := time.NewTimer(waitFirst); ; next.Reset(waitNext) {
			select {
			case <-end:
				next.Stop()
				return
			case <-next.C:
				text := what()
				b.log.Info(during+": "+text, "for", time.Since(began).Round(time.Second).String())
				if b.opt.Waits != nil {
					b.opt.Waits(during+": "+text, waitMore)
				}
			}
		}
	}()
	// Wait for the goroutine, so that no report comes after what it reports has ended.
	return func() { close(end); <-ended }
}
