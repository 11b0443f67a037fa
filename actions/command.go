package actions

import (
	"fmt"
	"slices"
	"time"

	"weir/command"
	"weir/notify"
	"weir/rules"
	"weir/store"
	"weir/store/outbox"
)

// Creator makes commands: command.Service.
type Creator interface {
	Create(tx store.Tx, o command.Order) (*command.Command, *command.Rejection, error)
}

// permanent are the rejections with which another try would end, too. The codes are open: what is not known is tried again.
var permanent = []string{command.NotJSON, command.MetadataNotJSON, command.BadExpiry, command.TokenInUse, command.Rejected, "COMMAND_NOT_IN_VOCABULARY", "PAYLOAD_SCHEMA_VIOLATION",
	"COMMAND_DESTRUCTIVE_REFUSED"}

// Commands performs sendCommand: the order becomes a command for its device, in the transaction that ends it. The idempotency key of the order
// is the command's token.
func Commands(c Creator) Kind {
	return Kind{Name: string(rules.ActionSendCommand), Letters: store.DeadLetterAction,
		Inside: func(tx store.Tx, o *Order) error { return sendCommand(tx, c, o) },
		Late:   lateCommand}
}

// RemoveDevice removes the orders of commands for a device that is deleted, its answers that are tried again and what is to be notified of its alarms, as registry.Removal.
// gone, which may be nil, is notified how many of a kind went once that is committed: Drain.Gone counts them.
func RemoveDevice(gone func(kind string, n int64)) func(tx store.Tx, tenant, device int64) error {
	return func(tx store.Tx, _, device int64) error {
		for _, kind := range []string{string(rules.ActionSendCommand), outbox.Answer, notify.OrderKind} {
			n, err := outbox.RemoveOfDevice(tx, device, kind)
			if err != nil {
				return err
			}
			if n > 0 && gone != nil {
				tx.OnCommit(func() { gone(kind, n) })
			}
		}
		return nil
	}
}

// lateCommand says whether a command comes too late. One whose rule says no maxAge may be for a device that sleeps: then it ends later,
// and who makes commands knows when.
func lateCommand(o *Order, now time.Time) bool {
	return o.Expires != 0 && !o.Expires.Time().After(now) && !(o.Dispatch.Command != nil && o.Dispatch.Command.DefaultAge)
}

func sendCommand(tx store.Tx, c Creator, o *Order) error {
	d := &o.Dispatch
	if d.Command == nil {
		return Fail(Unprocessable, fmt.Errorf("the order names no command"))
	}
	now, err := store.DeviceNamed(tx, o.TenantID, d.Device)
	if err != nil {
		return err
	}
	if now != o.DeviceID { // deleted, and perhaps made again since: then it is another device
		return Fail(Gone, fmt.Errorf("device %s does not exist any more", d.Device))
	}
	order := command.Order{TenantID: o.TenantID, Token: o.Order.Key, Device: d.Device, Name: d.Command.Command, Expires: o.Expires, Exact: true, Sleeper: d.Command.DefaultAge, Service: true}
	if d.Payload != "" {
		order.Payload = &d.Payload
	}
	_, refused, err := c.Create(tx, order)
	switch {
	case err != nil || refused == nil:
		return err
	case refused.Code == command.HeldCeiling:
		return Fail(Full, fmt.Errorf("%s: %s", refused.Code, refused.Reason))
	case refused.Code == command.NoDevice:
		return Fail(Gone, fmt.Errorf("%s: %s", refused.Code, refused.Reason))
	case refused.Code == command.BadExpiry:
		return Fail(Expired, fmt.Errorf("%s: %s", refused.Code, refused.Reason))
	case slices.Contains(permanent, refused.Code):
		return Fail(Unprocessable, fmt.Errorf("%s: %s", refused.Code, refused.Reason))
	}
	return fmt.Errorf("%s: %s", refused.Code, refused.Reason)
}
