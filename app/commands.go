package app

import (
	"context"
	"strconv"

	"weir/command"
	"weir/model"
	"weir/store"
)

// newCommands builds what keeps commands and dispatches them. p is filled in when it is asked for the first time.
func newCommands(set command.Settings, p *entityParts, d entityDeps, writer store.Writer) *command.Service {
	return command.New(set, command.Deps{
		States:     d.known,
		Store:      d.store,
		Writer:     writer,
		Judge:      p.judgeCommand,
		Targets:    p.commandTargets,
		Ceiling:    func(tenant int64) int64 { return *p.Govern.Limits(p.Govern.TokenOf(tenant)).HeldCommandCeiling },
		Gone:       func(tenant int64) bool { return p.Govern.Deleted(tenant) },
		Logger:     d.logger,
		Registerer: d.registerer,
	})
}

// judgeCommand is the command.Judge: what the registry says of devices and a command.
func (p *entityParts) judgeCommand(tx store.Tx, tenant int64, devices []string, name string, payload *string) ([]command.Verdict, error) {
	judged, err := p.Registry.Vocabularies.Judge(tx, tenant, devices, name, payload)
	out := make([]command.Verdict, len(judged))
	for i := range judged {
		out[i] = command.Verdict{Device: judged[i].Device, DeviceID: judged[i].ID, Rejection: command.Rejection{Code: judged[i].Code, Reason: judged[i].Reason}}
	}
	return out, err
}

// emptyPages is how many pages of a group without a device are followed.
const emptyPages = 5

// commandTargets are the devices of a group that a caller may read: all of them, or one more than limit.
func (p *entityParts) commandTargets(ctx context.Context, by *model.Principal, group string, version *int64, limit int) (out command.Target, err error) {
	after := int64(0)
	empty := 0
	for {
		page, err := p.Registry.Groups.Targets(ctx, by, group, version, after, int64(min(limit+1, 1000)))
		if err != nil {
			return out, err
		}
		if page.Rejected {
			return command.Target{Refused: &command.Rejection{Code: *page.Code, Reason: *page.Reason}}, nil
		}
		out.Devices, out.Version, version = append(out.Devices, page.Devices...), page.Version, page.Version
		// A large group without readable devices must not be walked to its end.
		if len(page.Devices) == 0 {
			empty++
		}
		if page.Next == nil || empty == emptyPages || len(out.Devices) > limit {
			return out, nil
		}
		if after, err = strconv.ParseInt(*page.Next, 10, 64); err != nil {
			return out, err
		}
	}
}
