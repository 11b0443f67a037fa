// Package delivery holds the resolvers of the area command-delivery: commands and batches of them, and what services that bring
// commands to devices ask. The rules are those of package command.
package delivery

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"weir/command"
	"weir/gql"
	"weir/gql/engine"
	"weir/model"
	"weir/store"
	"weir/store/commands"
)

// Area is the name of the area.
const Area = "command-delivery"

// Register registers the area.
func Register(a *gql.Area, s *command.Service) {
	x := &resolvers{s}
	a.Types(map[string]any{
		"Command":                   commandView{},
		"CommandEnqueueRejection":   command.Rejection{},
		"CreateCommandResult":       created{},
		"CommandBatch":              batchView{},
		"CommandBatchDeviceRefusal": command.Refusal{},
		"CommandBatchRefusalCount":  command.RefusalCount{},
		"CommandBatchRejection":     command.BatchRejection{},
		"CreateCommandBatchResult":  createdBatch{},
		"CancelCommandBatchResult":  command.CancelledBatch{},
	})
	a.Paged("CommandSearchResults", "CommandBatchSearchResults")
	read, write, claim := gql.Requires(model.CommandRead), gql.Requires(model.CommandWrite), gql.Requires(model.CommandClaim)
	a.Query("commandsById", read, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		ids, err := gql.RowIDs("ids", args.Strings("ids"))
		if err != nil {
			return nil, err
		}
		return x.find(ctx, &commands.Filter{IDs: ids})
	})
	a.Query("commandsByToken", read, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return x.find(ctx, &commands.Filter{Tokens: append([]string{}, args.Strings("tokens")...)})
	})
	a.Query("commands", read, x.list)
	a.Query("commandBatchesById", read, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		ids, err := gql.RowIDs("ids", args.Strings("ids"))
		if err != nil {
			return nil, err
		}
		return x.findBatches(ctx, &commands.BatchFilter{IDs: ids})
	})
	a.Query("commandBatchesByToken", read, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return x.findBatches(ctx, &commands.BatchFilter{Tokens: append([]string{}, args.Strings("tokens")...)})
	})
	a.Query("commandBatches", read, x.listBatches)
	a.Query("drainableCommands", claim, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		found, err := s.Drainable(ctx, gql.PrincipalFrom(ctx), args.String("deviceToken"), args.Int("limit"))
		return show(ctx, found), err
	})
	a.Mutation("createCommand", write, x.create)
	a.Mutation("createCommandBatch", write, x.createBatch, engine.ListLimit("request.deviceTokens", 10*command.MaxBatch)) // more is a rejection, and no error
	a.Mutation("cancelCommand", write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		c, err := s.Cancel(ctx, gql.PrincipalFrom(ctx), args.String("token"))
		if err != nil {
			return nil, err
		}
		return show(ctx, []*model.Command{c})[0], nil
	})
	a.Mutation("cancelCommandBatch", write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		if err := x.mayTouch(ctx, args.String("token")); err != nil {
			return nil, err
		}
		done, err := s.CancelBatch(ctx, gql.PrincipalFrom(ctx), args.String("token"))
		return done, err
	})
	a.Mutation("resumeCommandBatch", write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		if err := x.mayTouch(ctx, args.String("token")); err != nil {
			return nil, err
		}
		b, err := s.ResumeBatch(ctx, gql.PrincipalFrom(ctx), args.String("token"))
		if err != nil {
			return nil, err
		}
		return showBatch(b)
	})
	a.Mutation("markCommandSent", claim, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return s.MarkSent(ctx, gql.PrincipalFrom(ctx), args.String("token"))
	})
	a.Mutation("parkCommand", gql.Requires(model.CommandPark), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return s.Park(ctx, gql.PrincipalFrom(ctx), args.String("token"), args.String("dispatchNonce"))
	})
	a.Mutation("releaseHeldCommands", gql.Requires(model.CommandWake), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return s.ReleaseHeld(ctx, gql.PrincipalFrom(ctx), args.String("deviceToken"))
	})
	a.Subscription("commandStream", read, x.stream)
}

type resolvers struct{ s *command.Service }

type commandView struct {
	ID        string        `gql:"id"`
	CreatedAt model.Micros  `gql:"createdAt"`
	UpdatedAt model.Micros  `gql:"updatedAt"`
	DeletedAt *model.Micros `gql:"deletedAt"`
	Token     string        `gql:"token"`
	Metadata  *string       `gql:"metadata"`
	Device    string        `gql:"deviceToken"`
	Name      string        `gql:"name"`
	Payload   *string       `gql:"payload"`
	Status    string        `gql:"status"`
	Queued    *model.Micros `gql:"queuedTime"`
	Sent      *model.Micros `gql:"sentTime"`
	Responded *model.Micros `gql:"respondedTime"`
	Expires   *model.Micros `gql:"expiresAt"`
	Response  *string       `gql:"responsePayload"`
	Error     *string       `gql:"error"`
	Batch     *string       `gql:"batchToken"`
	Delivered *model.Micros `gql:"deliveredTime"`
	Nonce     *string       `gql:"dispatchNonce"`
	Progress  *string       `gql:"progress"`
}

func view(c *model.Command) commandView {
	return commandView{ID: strconv.FormatInt(c.ID, 10), CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt, Token: c.Token, Metadata: c.Metadata, Device: c.Device,
		Name: c.Name, Payload: c.Payload, Status: string(c.State), Queued: &c.Queued, Sent: c.Sent, Responded: c.Responded, Expires: &c.Expires, Response: c.Response,
		Error: c.Error, Batch: textOrNil(c.Batch), Delivered: c.Delivered, Progress: textOrNil(c.Progress)}
}

// show shows commands to a caller, the nonce to those alone who claim.
func show(ctx context.Context, found []*model.Command) []any {
	claims := gql.Require(ctx, model.CommandClaim) == nil
	shown := make([]any, len(found))
	for i, c := range found {
		v := view(c)
		if claims {
			v.Nonce = textOrNil(c.Nonce)
		}
		shown[i] = v
	}
	return shown
}

func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

type created struct {
	Command   any                `gql:"command"`
	Rejection *command.Rejection `gql:"rejection"`
}

type createdBatch struct {
	Batch     any                     `gql:"batch"`
	Rejection *command.BatchRejection `gql:"rejection"`
}

type batchView struct {
	ID           string                 `gql:"id"`
	CreatedAt    model.Micros           `gql:"createdAt"`
	UpdatedAt    model.Micros           `gql:"updatedAt"`
	DeletedAt    *model.Micros          `gql:"deletedAt"`
	Token        string                 `gql:"token"`
	Metadata     *string                `gql:"metadata"`
	Name         string                 `gql:"name"`
	Payload      *string                `gql:"payload"`
	TargetKind   string                 `gql:"targetKind"`
	Group        *string                `gql:"groupToken"`
	GroupVersion *int64                 `gql:"groupVersion"`
	AllowPartial bool                   `gql:"allowPartial"`
	Resolved     int64                  `gql:"resolved"`
	Accepted     int64                  `gql:"accepted"`
	Refusals     []command.Refusal      `gql:"refusals"`
	Counts       []command.RefusalCount `gql:"refusalCounts"`
	CancelledAt  *model.Micros          `gql:"cancelledAt"`
	Cancelled    *int64                 `gql:"cancelledCount"`
	MaxPerMinute *int64                 `gql:"maxPerMinute"`
	StopPercent  *float64               `gql:"stopAtFailedPercent"`
	Status       string                 `gql:"status"`
	StoppedAt    *model.Micros          `gql:"stoppedAt"`
	StopReason   *string                `gql:"stopReason"`
	Succeeded    int64                  `gql:"succeeded"`
	Failed       int64                  `gql:"failed"`
}

func showBatch(b *model.CommandBatch) (any, error) {
	v := batchView{ID: strconv.FormatInt(b.ID, 10), CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt, Token: b.Token, Metadata: b.Metadata, Name: b.Name, Payload: b.Payload,
		TargetKind: b.TargetKind, Group: b.Group, GroupVersion: b.GroupVersion, AllowPartial: b.AllowPartial, Resolved: b.Resolved, Accepted: b.Accepted,
		CancelledAt: b.CancelledAt, Status: string(b.State), StoppedAt: b.StoppedAt, StopReason: textOrNil(b.StopReason), Succeeded: b.Succeeded, Failed: b.Failed}
	if b.State == model.BatchCancelling {
		v.Status = string(model.BatchCancelled)
	}
	if b.CancelledAt != nil {
		v.Cancelled = &b.Cancelled
	}
	if b.MaxPerMinute > 0 {
		v.MaxPerMinute = &b.MaxPerMinute
	}
	if b.StopPercent > 0 {
		v.StopPercent = &b.StopPercent
	}
	if err := json.Unmarshal([]byte(b.Refusals), &v.Refusals); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(b.Counts), &v.Counts); err != nil {
		return nil, err
	}
	return v, nil
}

func showBatches(ctx context.Context, found []*model.CommandBatch) ([]any, error) {
	shown := make([]any, len(found))
	for i, b := range found {
		if b.TargetKind == model.BatchOfGroup {
			if err := gql.Require(ctx, model.DeviceRead); err != nil {
				return nil, err
			}
		}
		v, err := showBatch(b)
		if err != nil {
			return nil, err
		}
		shown[i] = v
	}
	return shown, nil
}

func (x *resolvers) find(ctx context.Context, f *commands.Filter) (any, error) {
	found, err := x.s.Find(ctx, gql.PrincipalFrom(ctx), f)
	return show(ctx, found), err
}

func (x *resolvers) findBatches(ctx context.Context, f *commands.BatchFilter) (any, error) {
	found, err := x.s.FindBatches(ctx, gql.PrincipalFrom(ctx), f)
	if err != nil {
		return nil, err
	}
	return showBatches(ctx, found)
}

// mayTouch refuses callers without device:read who name a batch for a group.
func (x *resolvers) mayTouch(ctx context.Context, token string) error {
	found, err := x.s.FindBatches(ctx, gql.PrincipalFrom(ctx), &commands.BatchFilter{Tokens: []string{token}})
	if err == nil && len(found) > 0 && found[0].TargetKind == model.BatchOfGroup {
		err = gql.Require(ctx, model.DeviceRead)
	}
	return err
}

func (x *resolvers) list(ctx context.Context, _ any, args engine.Args) (any, error) {
	c := args.Object("criteria")
	f := &commands.Filter{Device: c.String("deviceToken"), Batch: c.String("batchToken")}
	for field, states := range map[string][]string{"status": one(c.String("status")), "statuses": c.Strings("statuses")} {
		for _, s := range states {
			if !slices.Contains(model.CommandStates(), model.CommandState(s)) {
				return nil, model.Invalid(field, "%.40q is none of %s", s, stateNames())
			}
		}
		if len(states) > 0 {
			f.States = append(f.States, states)
		}
	}
	page := store.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}
	found, total, err := x.s.List(ctx, gql.PrincipalFrom(ctx), f, page)
	return gql.Results(page, show(ctx, found), total), err
}

func one(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func stateNames() string {
	var names []string
	for _, s := range model.CommandStates() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

func (x *resolvers) listBatches(ctx context.Context, _ any, args engine.Args) (any, error) {
	c := args.Object("criteria")
	page := store.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}
	found, total, err := x.s.ListBatches(ctx, gql.PrincipalFrom(ctx), &commands.BatchFilter{Name: c.String("name"), Group: c.String("groupToken"), Target: c.String("targetKind")}, page)
	if err != nil {
		return nil, err
	}
	shown, err := showBatches(ctx, found)
	return gql.Results(page, shown, total), err
}

func (x *resolvers) create(ctx context.Context, _ any, args engine.Args) (any, error) {
	r := args.Object("request")
	c, refused, err := x.s.Order(ctx, gql.PrincipalFrom(ctx), command.Order{Token: r.String("token"), Device: r.String("deviceToken"), Name: r.String("name"),
		Payload: r.Text("payload"), ExpiresAt: r.Text("expiresAt"), Metadata: r.Text("metadata")})
	if err != nil {
		return nil, err
	}
	if refused != nil {
		return created{Rejection: refused}, nil
	}
	return created{Command: show(ctx, []*model.Command{c})[0]}, nil
}

func (x *resolvers) createBatch(ctx context.Context, _ any, args engine.Args) (any, error) {
	r := args.Object("request")
	o := command.BatchOrder{Token: r.String("token"), Name: r.String("name"), Payload: r.Text("payload"), ExpiresAt: r.Text("expiresAt"), Metadata: r.Text("metadata"),
		Group: r.Text("groupToken"), AllowPartial: r.Bool("allowPartial")}
	if r.Has("deviceTokens") && !r.IsNull("deviceTokens") {
		o.Devices = append([]string{}, r.Strings("deviceTokens")...)
	}
	given := func(name string) bool { return r.Has(name) && !r.IsNull(name) }
	if given("groupVersion") {
		o.GroupVersion = new(int64(r.Int("groupVersion")))
	}
	if given("maxPerMinute") {
		o.MaxPerMinute = new(int64(r.Int("maxPerMinute")))
	}
	if given("stopAtFailedPercent") {
		percent, _ := r.Map()["stopAtFailedPercent"].(float64)
		o.StopPercent = &percent
	}
	if o.Group != nil {
		if err := gql.Require(ctx, model.DeviceRead); err != nil {
			return nil, err
		}
	}
	b, refused, err := x.s.OrderBatch(ctx, gql.PrincipalFrom(ctx), o)
	if err != nil {
		return nil, err
	}
	if refused != nil {
		return createdBatch{Rejection: refused}, nil
	}
	if b.TargetKind == model.BatchOfGroup { // an earlier one with the same token
		if err := gql.Require(ctx, model.DeviceRead); err != nil {
			return nil, err
		}
	}
	shown, err := showBatch(b)
	return createdBatch{Batch: shown}, err
}

func (x *resolvers) stream(ctx context.Context, args engine.Args) (engine.Stream, error) {
	tenant := gql.PrincipalFrom(ctx).TenantID
	device, token, batch := args.String("deviceToken"), args.String("token"), args.String("batchToken")
	return engine.StreamOf(x.s.Events.Subscribe(func(c model.Command) bool {
		return c.TenantID == tenant && (device == "" || c.Device == device) && (token == "" || c.Token == token) && (batch == "" || c.Batch == batch)
	}, engine.SubscriptionBuffer), func(c model.Command) any { return view(&c) }), nil
}
