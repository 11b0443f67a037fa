package gql

import (
	"context"

	"weir/gql/engine"
	"weir/model"
	"weir/registry"
)

// registerCommands registers the questions about the commands of devices.
func registerCommands(a *Area, vocabularies *registry.Vocabularies) {
	a.Type("PublishedCommand", registry.SnapshotCommand{})
	a.Type("DeviceCommandVocabulary", registry.CommandVocabulary{})
	a.Type("CommandEnqueueVerdict", verdict{})
	a.Type("BatchEnqueueRefusal", registry.CommandRefusal{})
	a.Query("deviceCommandVocabulary", Requires(model.DeviceRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return vocabularies.Of(ctx, PrincipalFrom(ctx), args.String("deviceToken"))
	})
	a.Query("validateCommandEnqueue", Requires(model.DeviceRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		refused, err := vocabularies.Refused(ctx, PrincipalFrom(ctx), []string{args.String("deviceToken")}, args.String("commandKey"), args.Text("payload"))
		if err != nil || len(refused) == 0 {
			return verdict{Allowed: true}, err
		}
		return verdict{Code: &refused[0].Code, Reason: &refused[0].Reason}, nil
	})
	a.Query("validateCommandEnqueueBatch", Requires(model.DeviceRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return vocabularies.Refused(ctx, PrincipalFrom(ctx), args.Strings("deviceTokens"), args.String("commandKey"), args.Text("payload"))
	}, engine.ListLimit("deviceTokens", registry.MaxCommandBatch))
}

// verdict says whether a device takes a command.
type verdict struct {
	Allowed bool    `gql:"allowed"`
	Code    *string `gql:"code"`
	Reason  *string `gql:"reason"`
}
