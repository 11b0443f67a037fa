package operate

import (
	"context"
	"time"

	"weir/config"
)

// ReloadReport is how a reload ended, or would end.
type ReloadReport struct {
	At time.Time `json:"at"`
	// By is what asked for it: weir reload, SIGHUP or watch.
	By string `json:"by"`
	// Outcome is taken, unchanged or failed.
	Outcome string `json:"outcome"`
	// Taken are the keys that apply from now on, Waiting those that differ and need a restart.
	Taken     []config.Change `json:"taken"`
	Waiting   []config.Change `json:"waiting"`
	Unchanged int             `json:"unchanged"`
	// Problems are why the old configuration stays whole.
	Problems config.Problems  `json:"problems,omitempty"`
	Warnings []config.Warning `json:"warnings,omitempty"`
}

// Outcomes of a reload.
const (
	ReloadTaken     = "taken"
	ReloadUnchanged = "unchanged"
	ReloadFailed    = "failed"
)

// Reloads reads the configuration again.
type Reloads interface {
	// Possible is why a reload must be refused, nil when it can be made.
	Possible() error
	Reload(by string) *ReloadReport
	// Plan says what a reload would do.
	Plan() *ReloadReport
	// Last is the last reload, nil when there was none.
	Last() *ReloadReport
}

func (o *Operator) reload(context.Context, None) (*ReloadReport, error) {
	if err := o.deps.Reloads.Possible(); err != nil {
		return nil, err
	}
	return o.deps.Reloads.Reload("weir reload"), nil
}

func (o *Operator) planReload(context.Context, None) (*ReloadReport, error) {
	if err := o.deps.Reloads.Possible(); err != nil {
		return nil, err
	}
	return o.deps.Reloads.Plan(), nil
}
