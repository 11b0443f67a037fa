// Package notification holds the resolvers of the area notification-management: channels to people, policies, mutes, and what was notified of alarms. The rules are
// those of package notify.
package notification

import (
	"context"
	"strconv"

	"weir/gql"
	"weir/gql/engine"
	"weir/model"
	"weir/notify"
	"weir/notify/channel"
	"weir/store"
	"weir/store/notices"
)

// Area is the name of the area.
const Area = notify.Area

// Register registers the area.
func Register(a *gql.Area, n *notify.Notify) {
	read, write := gql.Requires(model.NotifyRead), gql.Requires(model.NotifyWrite)
	a.Types(map[string]any{"NotificationChannelType": typeView{}, "NotificationChannelTypeField": fieldView{}, "NotificationRule": ruleView{}, "NotificationState": stateView{}, "DeliveryTest": notify.DeliveryTest{}})
	a.Paged("NotificationStateSearchResults")
	a.Query("notificationChannelTypes", gql.Anonymous(), func(context.Context, any, engine.Args) (any, error) { return types(), nil })
	a.Query("notificationStatesByAlarmToken", read, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		found, err := n.States(ctx, gql.PrincipalFrom(ctx), &notices.Filter{AlarmTokens: append([]string{}, args.Strings("alarmTokens")...)})
		return show(found), err
	})
	a.Query("notificationStates", read, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		criteria := args.Object("criteria")
		page := store.Page{Number: criteria.Int("pageNumber"), Size: criteria.Int("pageSize")}.Norm()
		found, total, err := n.ListStates(ctx, gql.PrincipalFrom(ctx), &notices.Filter{Key: criteria.String("alarmKey"), Severity: criteria.String("severity")}, page)
		if err != nil {
			return nil, err
		}
		return gql.Results(page, show(found), total), nil
	})
	a.Mutation("testNotificationChannel", write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		recipients := ""
		if to := args.Text("recipients"); to != nil {
			recipients = *to
		}
		return n.Test(ctx, gql.PrincipalFrom(ctx), args.String("token"), recipients)
	})
	a.Field("NotificationPolicy", "rules", func(_ context.Context, src any, _ engine.Args) (any, error) {
		rules, err := notify.RulesOf(src.(*notify.Policy))
		views := make([]ruleView, len(rules))
		for i, r := range rules {
			views[i] = ruleView{ID: r.ID, Severity: r.Severity, Recipients: r.Recipients, channel: r.ChannelID}
		}
		return views, err
	})
	channels := engine.NewLoader(func(ctx context.Context, ids []int64) (map[int64]*notify.Channel, error) {
		rows, err := n.Channels.ByID(ctx, gql.PrincipalFrom(ctx), ids)
		found := make(map[int64]*notify.Channel, len(rows))
		for _, row := range rows {
			found[row.ID] = row
		}
		return found, err
	})
	a.Field("NotificationRule", "channel", func(ctx context.Context, src any, _ engine.Args) (any, error) {
		return channels.Then(ctx, src.(ruleView).channel, func(row *notify.Channel, there bool) (any, error) {
			if !there || row == nil {
				return nil, nil // it was deleted
			}
			return row, nil
		}), nil
	})
	a.Entities(n.Kinds)
}

type typeView struct {
	ID          string `gql:"id"`
	Label       string `gql:"label"`
	Description string `gql:"description"`
	Available   bool   `gql:"available"`

	Fields     []fieldView `gql:"fields"`
	Secret     *string     `gql:"secret"`
	Recipients bool        `gql:"recipients"`
	Example    string      `gql:"example"`
}

type fieldView struct {
	Name     string   `gql:"name"`
	Kind     string   `gql:"kind"`
	Doc      string   `gql:"description"`
	Required bool     `gql:"required"`
	Default  *string  `gql:"default"`
	Values   []string `gql:"values"`
}

func types() (all []typeView) {
	for _, k := range channel.Kinds() {
		v := typeView{ID: k.ID, Label: k.Label, Description: k.Description, Available: true, Fields: []fieldView{}, Secret: textOrNil(k.Secret), Recipients: k.Recipients, Example: k.Example}
		for i := range k.Fields {
			f := &k.Fields[i]
			v.Fields = append(v.Fields, fieldView{f.Name, string(f.Kind), f.Doc, f.Required, textOrNil(f.Default), append([]string{}, f.OneOf...)})
		}
		all = append(all, v)
	}
	return all
}

func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

type ruleView struct {
	ID         string  `gql:"id"`
	Severity   string  `gql:"severity"`
	Recipients *string `gql:"recipients"`
	channel    int64
}

type stateView struct {
	ID            string        `gql:"id"`
	AlarmToken    string        `gql:"alarmToken"`
	AlarmKey      string        `gql:"alarmKey"`
	Severity      string        `gql:"severity"`
	First         *model.Micros `gql:"firstNotifiedAt"`
	Last          *model.Micros `gql:"lastNotifiedAt"`
	Count         int64         `gql:"notifyCount"`
	Acknowledged  *model.Micros `gql:"acknowledgedAt"`
	Cleared       *model.Micros `gql:"clearedAt"`
	Level         int64         `gql:"escalationLevel"`
	LastEscalated *model.Micros `gql:"lastEscalatedAt"`
}

func show(found []*notices.State) []stateView {
	views := make([]stateView, len(found))
	for i, s := range found {
		views[i] = stateView{strconv.FormatInt(s.ID, 10), s.AlarmToken, s.AlarmKey, s.Severity, s.FirstNotifiedAt, s.LastNotifiedAt, s.NotifyCount, s.AcknowledgedAt, s.ClearedAt, s.Level,
			s.LastEscalatedAt}
	}
	return views
}
