package registry

import (
	"weir/model"
	"weir/registry/parameter"
	"weir/store"
	"weir/store/entity"
)

// CommandDefinition declares a command of a profile and the parameters of its payload. A profile declares a key once.
type CommandDefinition struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	ProfileID   int64   `store:"profile_id,required,ref=device_profiles,parent,filter=deviceProfile" gql:"deviceProfileToken"`
	CommandKey  string  `store:"command_key,required,nonempty,max=128,filter" gql:"commandKey"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Parameters  *string `store:"parameter_schema,clear,json,max=65536" gql:"parameterSchema"` // see package parameter
	Metadata    *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (ps *Profiles) describeCommands(b entity.Base) *entity.Kind[CommandDefinition] {
	return entity.New(b, entity.Desc[CommandDefinition]{
		Kind:   "command definition",
		Type:   "CommandDefinition",
		Plural: "commandDefinitions",
		Area:   area,
		Table:  "command_definitions",
		Read:   mayRead,
		Write:  mayWrite,
		Valid:  (*CommandDefinition).check,
		Check: func(tx store.Tx, d *CommandDefinition, changed store.Changed) error {
			if !changed.Has("profile_id") {
				return nil
			}
			return checkCount(tx, ps.commands, d.TenantID, "profile_id", d.ProfileID, d.ID, ps.bounds.commands, "command definitions of a device profile")
		},
	})
}

func (d *CommandDefinition) check() error {
	if d.Parameters == nil {
		return nil
	}
	if _, err := parameter.Parse(*d.Parameters); err != nil {
		return model.Invalid("parameterSchema", "%v", err)
	}
	return nil
}

// frozen is the definition as a snapshot keeps it.
func (d *CommandDefinition) frozen() SnapshotCommand {
	return SnapshotCommand{Token: d.Token, Key: d.CommandKey, Name: d.Name, Description: d.Description, Parameters: d.Parameters}
}
