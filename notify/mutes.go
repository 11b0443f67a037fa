package notify

import (
	"cmp"
	"slices"
	"strings"

	"weir/model"
	"weir/store"
	"weir/store/entity"
	"weir/store/notices"
	"weir/store/relations"
)

// Mute holds messages back for a while. It matches alarms that have all that it names.
type Mute struct {
	store.Row
	Token    string       `store:"token,token" gql:"token"`
	AlarmKey *string      `store:"alarm_key,immutable,max=256" gql:"alarmKey"`
	Device   *string      `store:"device,immutable,max=256" gql:"deviceToken"`
	Group    *string      `store:"group_name,immutable,max=256" gql:"groupToken"`
	Severity *string      `store:"severity,immutable" gql:"severity"`
	Until    model.Micros `store:"until,required" gql:"until"`
	Reason   *string      `store:"reason,clear,max=1024" gql:"reason"`
	By       string       `store:"created_by" gql:"createdBy"`
	HeldBack int64        `store:"held_back" gql:"heldBack"`
	// EndedAt is when its end was notified, nil before.
	EndedAt *model.Micros `store:"ended_at" gql:"endedAt"`
}

func (n *Notify) mutes(b entity.Base) *entity.Kind[Mute] {
	return entity.New(b, entity.Desc[Mute]{
		Kind: "notification mute", Type: "NotificationMute", Plural: "notificationMutes", Area: Area, Table: "notification_mutes", Site: entity.NotInSites,
		Read: entity.Needs(model.NotifyRead), Write: entity.Needs(model.NotifyWrite),
		Valid: (*Mute).valid,
		Ceiling: &entity.Ceiling{
			Key:  "limits.notification_mutes_per_tenant",
			Rows: func() int64 { return n.limits.MutesPerTenant },
		},
		Changed:  n.muteChanged,
		Removing: func(c *store.Change, row *Mute) error { return n.endMute(c, row) },
	})
}

func (m *Mute) valid() error {
	for _, matcher := range []**string{&m.AlarmKey, &m.Device, &m.Group, &m.Severity} {
		if *matcher != nil && **matcher == "" {
			*matcher = nil // as if it were left out
		}
	}
	if m.Severity != nil && !slices.Contains(model.AlarmSeverities(), *m.Severity) {
		return model.Invalid("severity", "%.40q is none of %s", *m.Severity, strings.Join(model.AlarmSeverities(), ", "))
	}
	return nil
}

// muteChanged notes who made a mute. One that has ended stays so.
func (n *Notify) muteChanged(c *store.Change, old, row *Mute) error {
	switch {
	case row == nil:
		n.forget(c, old.TenantID)
		return nil
	case old == nil:
		if row.Until <= c.At {
			return model.Invalid("until", "lies in the past")
		}
		if row.Group != nil {
			if there, err := notices.IsGroup(c, row.TenantID, *row.Group); err != nil || !there {
				return cmp.Or(err, error(model.Invalid("groupToken", "there is no static group of devices %.80q", *row.Group)))
			}
		}
		row.By = c.Actor()
		if err := n.Mutes.Table.Save(c, row, "created_by"); err != nil {
			return err
		}
	case old.EndedAt != nil && row.Until != old.Until:
		return model.Invalid("until", "the mute has ended: make a new one")
	}
	n.forget(c, row.TenantID)
	return nil
}

// holds reports whether a mute matches an alarm now.
func (n *Notify) holds(tx store.Tx, m *Mute, a *model.Alarm, now model.Micros) (bool, error) {
	if m.EndedAt != nil || now >= m.Until || !isOr(m.AlarmKey, a.Key) || !isOr(m.Device, a.Device) || !isOr(m.Severity, a.Severity) {
		return false, nil
	}
	if m.Group == nil {
		return true, nil
	}
	groups, err := relations.Memberships(tx, m.TenantID, a.DeviceID)
	return slices.Contains(groups, *m.Group), err
}

// isOr reports whether a matcher is a value, or not there.
func isOr(matcher *string, value string) bool { return matcher == nil || *matcher == value }
