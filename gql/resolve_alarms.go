package gql

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"weir/alarm"
	"weir/gql/engine"
	"weir/model"
	"weir/registry"
	"weir/store"
	"weir/store/alarms"
)

// RegisterAlarms registers the alarms in the device-management area.
func RegisterAlarms(a *Area, all *alarm.Alarms, r *registry.Registry) {
	x := &alarmResolvers{all, r}
	a.Types(map[string]any{
		"Alarm":                       alarmView{},
		"AlarmSearchResults":          searchResults{},
		"AlarmEvent":                  alarmEventView{},
		"AlarmEventSearchResults":     searchResults{},
		"BulkAcknowledgeAlarmsResult": bulkAcknowledged{},
		"BulkClearAlarmsResult":       bulkCleared{},
		"AlarmAckRefusal":             alarmRefusal{},
	})

	read, write := Requires(model.AlarmRead), Requires(model.AlarmWrite)
	a.Query("alarmsById", read, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		ids, err := RowIDs("ids", args.Strings("ids"))
		if err != nil {
			return nil, err
		}
		return x.find(ctx, &alarms.Filter{IDs: ids})
	})
	a.Query("alarmsByToken", read, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return x.find(ctx, &alarms.Filter{Tokens: append([]string{}, args.Strings("tokens")...)})
	})
	a.Query("alarms", read, x.list)
	a.Query("alarmHistory", read, x.history)
	a.Mutation("acknowledgeAlarm", write, one(all.Acknowledge))
	a.Mutation("clearAlarm", write, one(all.Clear))
	a.Mutation("acknowledgeAlarms", write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		done, refusals, err := many(ctx, args, all.Acknowledge)
		return bulkAcknowledged{done, refusals}, err
	}, engine.ListLimit("tokens", alarm.MaxBulk))
	a.Mutation("clearAlarms", write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		done, refusals, err := many(ctx, args, all.Clear)
		return bulkCleared{done, refusals}, err
	}, engine.ListLimit("tokens", alarm.MaxBulk))
	a.Subscription("alarmStream", read, x.stream)
}

type alarmResolvers struct {
	all      *alarm.Alarms
	registry *registry.Registry
}

type alarmView struct {
	ID             string        `gql:"id"`
	CreatedAt      model.Micros  `gql:"createdAt"`
	UpdatedAt      model.Micros  `gql:"updatedAt"`
	DeletedAt      *model.Micros `gql:"deletedAt"`
	Token          string        `gql:"token"`
	OriginatorType string        `gql:"originatorType"`
	OriginatorID   string        `gql:"originatorId"`
	Originator     *string       `gql:"originatorToken"`
	Key            string        `gql:"alarmKey"`
	Metric         string        `gql:"metricKey"`
	State          string        `gql:"state"`
	Acknowledged   bool          `gql:"acknowledged"`
	Severity       string        `gql:"severity"`
	Raised         *model.Micros `gql:"raisedTime"`
	Cleared        *model.Micros `gql:"clearedTime"`
	AcknowledgedAt *model.Micros `gql:"acknowledgedTime"`
	AcknowledgedBy *string       `gql:"acknowledgedBy"`
	LastValue      *float64      `gql:"lastValue"`
	Message        *string       `gql:"message"`
	Metadata       *string       `gql:"metadata"`
}

func showAlarm(a *model.Alarm) alarmView {
	return alarmView{ID: strconv.FormatInt(a.ID, 10), CreatedAt: a.CreatedAt, UpdatedAt: a.UpdatedAt, Token: a.Token, OriginatorType: model.OriginatorDevice,
		OriginatorID: strconv.FormatInt(a.DeviceID, 10), Originator: textOrNil(a.Device), Key: a.Key, Metric: a.Metric, State: string(a.State),
		Acknowledged: a.AcknowledgedAt != nil, Severity: a.Severity, Raised: &a.RaisedAt, Cleared: a.ClearedAt, AcknowledgedAt: a.AcknowledgedAt,
		AcknowledgedBy: textOrNil(a.AcknowledgedBy), LastValue: a.LastValue}
}

func showAlarms(found []*model.Alarm) []any {
	shown := make([]any, len(found))
	for i, a := range found {
		shown[i] = showAlarm(a)
	}
	return shown
}

type alarmEventView struct {
	Type           string        `gql:"eventType"`
	Token          string        `gql:"alarmToken"`
	OriginatorType string        `gql:"originatorType"`
	OriginatorID   string        `gql:"originatorId"`
	Originator     *string       `gql:"originatorToken"`
	Key            string        `gql:"alarmKey"`
	Metric         string        `gql:"metricKey"`
	State          string        `gql:"state"`
	Severity       string        `gql:"severity"`
	Before         *string       `gql:"previousSeverity"`
	Acknowledged   bool          `gql:"acknowledged"`
	AcknowledgedBy *string       `gql:"acknowledgedBy"`
	LastValue      *float64      `gql:"lastValue"`
	Message        *string       `gql:"message"`
	Raised         *model.Micros `gql:"raisedTime"`
	Occurred       model.Micros  `gql:"occurredTime"`
}

func showAlarmEvent(e model.AlarmEvent) any {
	return alarmEventView{Type: string(e.Move), Token: e.Token, OriginatorType: model.OriginatorDevice, OriginatorID: strconv.FormatInt(e.DeviceID, 10),
		Originator: textOrNil(e.Device), Key: e.Key, Metric: e.Metric, State: string(e.State), Severity: e.Severity, Before: textOrNil(e.Before),
		Acknowledged: e.AcknowledgedAt != nil, AcknowledgedBy: textOrNil(e.AcknowledgedBy), LastValue: e.LastValue, Raised: &e.RaisedAt, Occurred: e.Occurred}
}

type alarmRefusal struct {
	Token  string `gql:"token"`
	Code   string `gql:"code"`
	Reason string `gql:"reason"`
}

type bulkAcknowledged struct {
	Done     []any          `gql:"acknowledged"`
	Refusals []alarmRefusal `gql:"refusals"`
}

type bulkCleared struct {
	Done     []any          `gql:"cleared"`
	Refusals []alarmRefusal `gql:"refusals"`
}

// alarmNotFound is the code of the refusal of one alarm among several.
const alarmNotFound = "ALARM_NOT_FOUND"

// operation acknowledges or clears alarms.
type operation func(ctx context.Context, by *model.Principal, tokens []string) (done []*model.Alarm, unknown []string, err error)

// one is an operation on one alarm.
func one(do operation) engine.Resolver {
	return func(ctx context.Context, _ any, args engine.Args) (any, error) {
		token := args.String("token")
		done, _, err := do(ctx, PrincipalFrom(ctx), []string{token})
		if err == nil && len(done) == 0 {
			err = model.NotFound("alarm", token)
		}
		if err != nil {
			return nil, err
		}
		return showAlarm(done[0]), nil
	}
}

// many is an operation on several alarms. One that does not exist refuses itself alone.
func many(ctx context.Context, args engine.Args, do operation) (shown []any, refusals []alarmRefusal, err error) {
	done, unknown, err := do(ctx, PrincipalFrom(ctx), args.Strings("tokens"))
	refusals = make([]alarmRefusal, len(unknown))
	for i, token := range unknown {
		refusals[i] = alarmRefusal{token, alarmNotFound, model.NotFound("alarm", token).Error()}
	}
	return showAlarms(done), refusals, err
}

func (x *alarmResolvers) find(ctx context.Context, f *alarms.Filter) (any, error) {
	found, err := x.all.Find(ctx, PrincipalFrom(ctx), f)
	return showAlarms(found), err
}

// alarmFilter is what the criteria and the stream select alike.
type alarmFilter struct {
	typ, originator, state, severity, key string
}

func alarmFilterOf(args engine.Args) (f alarmFilter, err error) {
	f = alarmFilter{args.String("originatorType"), args.String("originator"), args.String("state"), args.String("severity"), args.String("alarmKey")}
	states := []string{string(model.AlarmActive), string(model.AlarmCleared)}
	switch {
	case f.originator != "" && f.typ == "":
		return f, model.Invalid("originatorType", "is required with originator")
	case f.state != "" && !slices.Contains(states, f.state):
		return f, model.Invalid("state", "%.40q is none of %s", f.state, strings.Join(states, ", "))
	case f.severity != "" && !slices.Contains(model.AlarmSeverities(), f.severity):
		return f, model.Invalid("severity", "%.40q is none of %s", f.severity, strings.Join(model.AlarmSeverities(), ", "))
	}
	return f, nil
}

// none reports whether no alarm has the originator's type: rules raise alarms for devices alone.
func (f *alarmFilter) none() bool { return f.typ != "" && f.typ != model.OriginatorDevice }

func (x *alarmResolvers) list(ctx context.Context, _ any, args engine.Args) (any, error) {
	criteria := args.Object("criteria")
	f, err := alarmFilterOf(criteria)
	if err != nil {
		return nil, err
	}
	page := store.Page{Number: criteria.Int("pageNumber"), Size: criteria.Int("pageSize")}
	if f.none() {
		return resultsOf([]any{}, page, 0), x.hintOriginator(ctx, &f)
	}
	q := &alarms.Filter{Device: f.originator, State: f.state, Severity: f.severity, Key: f.key}
	if criteria.Has("acknowledged") && !criteria.IsNull("acknowledged") {
		q.Acknowledged = new(criteria.Bool("acknowledged"))
	}
	found, total, err := x.all.List(ctx, PrincipalFrom(ctx), q, page)
	if err == nil && total == 0 && f.originator != "" {
		err = x.hintOriginator(ctx, &f)
	}
	if err != nil {
		return nil, err
	}
	return resultsOf(showAlarms(found), page, total), nil
}

// hintOriginator says in the response when a filter names what does not exist.
func (x *alarmResolvers) hintOriginator(ctx context.Context, f *alarmFilter) error {
	if x.registry.EntityKind(f.typ) == nil {
		engine.Hint(ctx, "originatorType: there are no entities of the type %.40q", f.typ)
		return nil
	}
	if f.typ != model.OriginatorDevice {
		engine.Hint(ctx, "originatorType: rules raise alarms for entities of the type %q alone", model.OriginatorDevice)
		return nil
	}
	rows, err := x.registry.Devices.Rows.ByToken(ctx, PrincipalFrom(ctx), []string{f.originator})
	if err == nil && len(rows) == 0 {
		hintNone(ctx, "originator", "device", f.originator)
	}
	return err
}

func (x *alarmResolvers) history(ctx context.Context, _ any, args engine.Args) (any, error) {
	hintPage(ctx, args)
	token := args.String("alarmToken")
	page := store.Page{Number: args.Int("pageNumber"), Size: args.Int("pageSize")}
	found, total, err := x.all.History(ctx, PrincipalFrom(ctx), token, page)
	if err != nil {
		return nil, err
	}
	if total == 0 {
		hintNone(ctx, "alarmToken", "alarm", token)
	}
	shown := make([]any, len(found))
	for i := range found {
		shown[i] = showAlarmEvent(found[i])
	}
	return resultsOf(shown, page, total), nil
}

func (x *alarmResolvers) stream(ctx context.Context, args engine.Args) (engine.Stream, error) {
	f, err := alarmFilterOf(args)
	if err != nil {
		return nil, err
	}
	tenant := PrincipalFrom(ctx).TenantID
	return engine.StreamOf(x.all.Events.Subscribe(func(e model.AlarmEvent) bool { return e.TenantID == tenant && f.takes(&e) }, engine.SubscriptionBuffer),
		showAlarmEvent), nil
}

func (f *alarmFilter) takes(e *model.AlarmEvent) bool {
	return !f.none() && (f.originator == "" || e.Device == f.originator) && (f.state == "" || string(e.State) == f.state) &&
		(f.severity == "" || e.Severity == f.severity) && (f.key == "" || e.Key == f.key)
}
