package cli

import (
	"context"
	"time"

	"weir/health"
	"weir/operate"
)

// lagShown is how far what is shown may lag behind what was received before that is said.
const lagShown = 2 * time.Second

// noteLag says how far what was shown lags behind what was received, when that is long enough to mislead.
func (c *command) noteLag(ctx context.Context, from operate.Target) {
	if h, err := operate.GetHealth.Ask(ctx, from, operate.None{}); err == nil { // what was asked for is shown already
		c.noteLagOf(h, time.Now())
	}
}

func (c *command) noteLagOf(h *operate.Health, now time.Time) {
	if h.AsOf != nil && now.Sub(*h.AsOf) > lagShown {
		c.note("as of %s, %s waiting to be applied", timeText(h.AsOf), health.Count(h.Waiting, "record"))
	}
}
