package registry

import (
	"context"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// DetectionRule is the draft of a rule of a profile. Its definition is opaque here: event-processing checks it at publish.
type DetectionRule struct {
	store.Row
	Token          string  `store:"token,token" gql:"token"`
	ProfileID      int64   `store:"profile_id,required,ref=device_profiles,parent,filter=deviceProfile" gql:"deviceProfileToken"`
	Name           *string `store:"name,clear,max=128" gql:"name"`
	Description    *string `store:"description,clear,max=1024" gql:"description"`
	Definition     string  `store:"definition,required,json,max=65536" gql:"definition"`
	AuthoringGraph *string `store:"authoring_graph,clear,json,max=262144" gql:"authoringGraph"`
	Enabled        bool    `store:"enabled,required" gql:"enabled"`
	Metadata       *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
	GroupToken     *string `store:"entity_group_token,clear,max=128" gql:"entityGroupToken"`
	GroupVersion   *int64  `store:"entity_group_version,clear,min=1" gql:"entityGroupVersion"`
	// Placement is where the rule is judged, nil: model.PlacementCloud.
	Placement *string `store:"placement,clear,oneof=CLOUD|EDGE" gql:"placement"`
}

func (ps *Profiles) describeRules(b entity.Base) *entity.Kind[DetectionRule] {
	return entity.New(b, entity.Desc[DetectionRule]{
		Kind:   "detection rule",
		Type:   "DetectionRule",
		Plural: "detectionRules",
		Area:   area,
		Table:  "detection_rules",
		Read:   mayRead,
		Write:  mayWrite,
		Valid:  (*DetectionRule).check,
		Advise: ps.adviseRule,
		Check: func(tx store.Tx, d *DetectionRule, changed store.Changed) error {
			if changed.Has("entity_group_token") || changed.Has("entity_group_version") {
				if err := ps.checkGroupScope(tx, d); err != nil {
					return err
				}
			}
			if !changed.Has("profile_id") {
				return nil
			}
			return checkCount(tx, ps.rules, d.TenantID, "profile_id", d.ProfileID, d.ID, ps.bounds.rules, "detection rules of a device profile")
		},
	})
}

// check holds the fields against each other, with the values that the record will hold.
func (d *DetectionRule) check() error {
	members, err := checkObject("definition", d.Definition)
	if err != nil {
		return err
	}
	if _, ok := members["id"]; ok {
		return model.Invalid("definition", `must not have an "id": the rule's token names it`)
	}
	if d.AuthoringGraph != nil {
		if _, err := checkObject("authoringGraph", *d.AuthoringGraph); err != nil {
			return err
		}
	}
	return d.checkGroup()
}

// adviseRule says why an enabled draft could not be published as it is. A draft may be anything; who finds it out at the publish has lost what
// the rule was for.
func (ps *Profiles) adviseRule(ctx context.Context, by *model.Principal, d *DetectionRule, p store.Patch) []string {
	_, definition := p["definition"]
	_, placed := p["placement"]
	if !definition && !placed || !d.Enabled {
		return nil
	}
	service := model.Service("device-management", by.Tenant, by.TenantID, model.DeviceRead)
	refused, _, err := ps.validator.Validate(ctx, service, []Candidate{{Token: d.Token, Definition: d.Definition, GroupScoped: d.GroupToken != nil, AtSite: text(d.Placement) == model.PlacementEdge}}, Vocabulary{})
	if err != nil {
		return []string{"definition: was not checked, the publish does it"}
	}
	texts := make([]string, len(refused))
	for i, f := range refused {
		texts[i] = "definition: the rule cannot be published as it is: " + f.Message
	}
	return texts
}

// checkGroup refuses half a group scope.
func (d *DetectionRule) checkGroup() error {
	switch {
	case d.GroupToken == nil && d.GroupVersion == nil:
		return nil
	case d.GroupToken == nil:
		return model.Invalid("entityGroupToken", "is required with entityGroupVersion")
	case d.GroupVersion == nil:
		return model.Invalid("entityGroupVersion", "is required with entityGroupToken")
	}
	return nil
}

// checkGroupScope refuses a group scope that is no published version of a dynamic group of devices.
func (ps *Profiles) checkGroupScope(tx store.Tx, d *DetectionRule) error {
	if d.GroupToken == nil {
		return nil
	}
	_, err := ps.groups.published(tx, d.TenantID, "entityGroupToken", *d.GroupToken, *d.GroupVersion)
	return err
}

// frozen is the rule as a snapshot keeps it.
func (d *DetectionRule) frozen() SnapshotRule {
	view := model.RuleView{Token: d.Token, Definition: d.Definition, Group: text(d.GroupToken)}
	if d.GroupVersion != nil {
		view.GroupVersion = int(*d.GroupVersion)
	}
	if text(d.Placement) == model.PlacementEdge {
		view.Placement = model.PlacementEdge // since format 4
	}
	return SnapshotRule{RuleView: view, Name: text(d.Name), Description: text(d.Description), Enabled: d.Enabled}
}
