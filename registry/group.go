package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/similar"
	"weir/model"
	"weir/registry/selector"
	"weir/store"
	"weir/store/entity"
	"weir/store/relations"
)

// EntityGroup is a set of entities of one type. The members of a static group are related to it, those of a dynamic one are
// what its selector holds for. Rules are scoped to published versions of dynamic groups.
type EntityGroup struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Brand
	Metadata       *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
	MemberType     string  `store:"member_type,required,immutable,oneof=device|asset|area|customer,filter" gql:"memberType"`
	MembershipMode string  `store:"membership_mode,immutable,oneof=static|dynamic,filter" gql:"membershipMode"`
	Selector       *string `store:"selector,keep,max=8192" gql:"selector"`
	ActiveVersion  *int64  `store:"active_version" gql:"activeVersion"` // moves by publish and rollback only
}

// The modes of membership.
const (
	staticGroup  = "static"
	dynamicGroup = "dynamic"
)

func (g *EntityGroup) dynamic() bool { return g.MembershipMode == dynamicGroup }

// GroupSnapshot is what a publish freezes of a dynamic group.
type GroupSnapshot struct {
	V          int    `json:"v"`
	Selector   string `json:"selector" gql:"selector"`
	MemberType string `json:"memberType" gql:"memberType"`
}

// groupFormat is the version of GroupSnapshot.
const groupFormat = 1

// Groups are the groups of all tenants, and the selectors that are in use.
type Groups struct {
	*entity.Kind[EntityGroup]
	versions  *entity.Versions[EntityGroup, GroupSnapshot]
	kept      int64              // versions of a group
	pruned    prometheus.Counter // versions that a publish removed
	store     store.Store
	limits    func() *DeviceSettings
	selectors selector.Compiler
	// What groups are tied to: the attributes by which they select, and the rules that are scoped to them.
	keys       *AttributeKeys
	attributes *Attributes
	relations  *Relations
	rules      *entity.Kind[DetectionRule]
	profiles   *entity.Versions[DeviceProfile, Snapshot]
}

// describe makes the kind.
func (gs *Groups) describe(b entity.Base) {
	gs.versions = &entity.Versions[EntityGroup, GroupSnapshot]{
		Kind:      "entity group version",
		Table:     "entity_group_versions",
		Owner:     "group_id",
		Max:       gs.kept,
		Keeps:     gs.scopedVersions,
		Pruned:    func(n int64) { gs.pruned.Add(float64(n)) },
		Versioned: (*EntityGroup).checkPublishable,
		Freeze: func(_ store.Tx, g *EntityGroup) (*GroupSnapshot, error) {
			return &GroupSnapshot{groupFormat, text(g.Selector), g.MemberType}, nil
		},
		Encode: func(b *GroupSnapshot) (string, error) {
			text, err := json.Marshal(b)
			return string(text), err
		},
		Decode: decodeGroup,
		Prepare: func(ctx context.Context, by *model.Principal, g *EntityGroup, body *GroupSnapshot) (done func(), err error) {
			keys := map[string]bool{}
			if g.MemberType == EntityDevice {
				err = gs.addKeys(keys, body)
			}
			if err != nil {
				return nil, err
			}
			return gs.keys.prepare(ctx, by, keys)
		},
		Active:       func(g *EntityGroup) **int64 { return &g.ActiveVersion },
		ActiveColumn: "active_version",
		Activate: func(c *store.Change, g *EntityGroup, _ *GroupSnapshot, version int64) error {
			return gs.useSelectors(c, g.TenantID, func(u *inUse) { u.activate(g, version) })
		},
	}
	gs.Kind = entity.New(b, entity.Desc[EntityGroup]{
		Kind:      "entity group",
		Type:      "EntityGroup",
		Plural:    "entityGroups",
		Area:      area,
		Table:     "entity_groups",
		Read:      mayRead,
		Write:     mayWrite,
		Valid:     gs.check,
		Versions:  gs.versions,
		Removing:  gs.removing,
		Addressed: EntityGroups,
		Ceiling: &entity.Ceiling{
			Key:  "limits.groups_per_tenant",
			Rows: func() int64 { return gs.limits().GroupsPerTenant },
		},
	})
}

func decodeGroup(text string) (*GroupSnapshot, error) {
	b := new(GroupSnapshot)
	if err := json.Unmarshal([]byte(text), b); err != nil {
		return nil, err
	}
	if b.V < 1 || b.V > groupFormat {
		return nil, fmt.Errorf("snapshot of a group version has format %d, this Weir reads up to %d", b.V, groupFormat)
	}
	return b, nil
}

// check holds the mode against the selector. A group without a mode is static.
func (gs *Groups) check(g *EntityGroup) error {
	if g.MembershipMode == "" {
		g.MembershipMode = staticGroup
	}
	switch {
	case !g.dynamic() && g.Selector != nil:
		return model.Invalid("selector", "a static group has none: its members are relationships of the type %s", relations.MemberRelation)
	case !g.dynamic():
		return nil
	case g.Selector == nil:
		return model.Invalid("selector", "is required for a dynamic group")
	}
	_, err := gs.selectors.Compile(*g.Selector, g.MemberType)
	return err
}

func (g *EntityGroup) checkPublishable() error {
	if g.dynamic() {
		return nil
	}
	return model.Invalid("token", "entity group %q is static: only dynamic groups have versions", g.Token)
}

// removing refuses to remove a group that rules are scoped to.
func (gs *Groups) removing(c *store.Change, g *EntityGroup) error {
	// A rule must not lose its scope.
	scoped, err := gs.scopedVersions(c, g)
	if err != nil {
		return err
	}
	if len(scoped) > 0 {
		return model.InUse(gs.Name(), g.Token, gs.rules.Name())
	}
	// Without an active version nothing of it is in use.
	if g.ActiveVersion == nil {
		return nil
	}
	return gs.useSelectors(c, g.TenantID, func(u *inUse) { delete(u.groups, g.Token) })
}

// scopedVersions are the versions of a group that the draft of a rule, or a rule of an active profile version, is scoped to.
func (gs *Groups) scopedVersions(tx store.Tx, g *EntityGroup) (versions []int64, err error) {
	// Drafts count: they could be published next.
	drafts, err := gs.rules.Table.Select(tx, g.TenantID, "id", store.Eq("entity_group_token", g.Token))
	if err != nil {
		return nil, err
	}
	for _, rule := range drafts {
		if rule.GroupVersion != nil {
			versions = append(versions, *rule.GroupVersion)
		}
	}
	// So do published rules, whose drafts may have changed since.
	active, err := gs.profiles.Effective(tx, g.TenantID)
	if err != nil {
		return nil, err
	}
	for _, profile := range active {
		for _, rule := range profile.Rules {
			if rule.Group == g.Token {
				versions = append(versions, int64(rule.GroupVersion))
			}
		}
	}
	slices.Sort(versions)
	return slices.Compact(versions), nil
}

// published returns what a version of a dynamic group of devices froze, and refuses what rules cannot be scoped to. field
// is the input that names the group.
func (gs *Groups) published(tx store.Tx, tenant int64, field, token string, version int64) (*GroupSnapshot, error) {
	g, err := gs.Table.Get(tx, tenant, token)
	if err != nil {
		return nil, err
	}
	var body *GroupSnapshot
	if g != nil {
		if body, err = gs.versions.Body(tx, g.ID, version); err != nil {
			return nil, err
		}
	}
	switch {
	case body == nil:
		hint, err := gs.hint(tx, tenant, token, g)
		if err != nil {
			return nil, err
		}
		return nil, model.Invalid(field, "entity group %.128q has no published version %d%s", token, version, hint)
	case body.MemberType != EntityDevice:
		return nil, model.Invalid(field, "entity group %q has members of the type %s: rules judge devices", token, body.MemberType)
	}
	return body, nil
}

// Scope returns a published version of a dynamic group of devices as the metadata view has those that rules are scoped to.
func (gs *Groups) Scope(ctx context.Context, by *model.Principal, token string, version int) (scope *model.GroupView, err error) {
	err = store.Read(ctx, gs.store, func(tx store.Tx) error {
		body, err := gs.published(tx, by.TenantID, "entityGroupToken", token, int64(version))
		if err == nil {
			scope = &model.GroupView{V: 1, Tenant: by.TenantID, Token: token, Version: version, Selector: body.Selector}
		}
		return err
	})
	return scope, err
}

// hint says what to write instead of a version of a group that is not there: the nearest name, among those of a page, or a version
// of the group.
func (gs *Groups) hint(tx store.Tx, tenant int64, token string, g *EntityGroup) (string, error) {
	switch {
	case g != nil && g.ActiveVersion != nil:
		return fmt.Sprintf(": version %d is active", *g.ActiveVersion), nil
	case g != nil && g.MembershipMode == dynamicGroup:
		return ": it must be published first", nil
	case g != nil:
		return ": rules are scoped to dynamic groups", nil
	}
	// Look for a similar name.
	rows, _, err := gs.Table.List(tx, tenant, store.Page{Number: 1, Size: store.MaxPageSize})
	var names []string
	for _, row := range rows {
		names = append(names, row.Token)
	}
	if near := similar.Nearest(token, names); near != "" {
		return " (did you mean " + near + "?)", err
	}
	return "", err
}

// checkScopes refuses a version of a profile whose rules are scoped to what is no longer there, and one with which the tenant
// would have too many selectors in use. before is the version that it replaces, nil for none.
func (ps *Profiles) checkScopes(c *store.Change, p *DeviceProfile, before, s *Snapshot) error {
	// Versions may have been pruned since the draft was made.
	for _, rule := range s.Rules {
		if !rule.Enabled || rule.Group == "" {
			continue
		}
		if _, err := ps.groups.published(c, p.TenantID, "entityGroupToken", rule.Group, int64(rule.GroupVersion)); err != nil {
			return err
		}
	}
	// Selectors in use change only where a rule has a scope.
	if !before.scoped() && !s.scoped() {
		return nil
	}
	return ps.groups.useSelectors(c, p.TenantID, func(u *inUse) { u.profiles[p.ID] = s })
}

// removing ends the use of the groups that the rules of a profile's active version are scoped to.
func (ps *Profiles) removing(c *store.Change, p *DeviceProfile) error {
	if p.ActiveVersion == nil {
		return nil
	}
	return ps.groups.useSelectors(c, p.TenantID, func(u *inUse) { delete(u.profiles, p.ID) })
}

// members says which entities belong to a group, by its draft's selector if it is dynamic.
func (gs *Groups) members(g *EntityGroup) (*relations.Members, error) {
	if !g.dynamic() {
		return &relations.Members{Tenant: g.TenantID, Type: g.MemberType, Table: entityTypes()[g.MemberType], Group: g.ID}, nil
	}
	return gs.selected(g.TenantID, g.MemberType, text(g.Selector))
}

// selected says which entities a selector holds for.
func (gs *Groups) selected(tenant int64, memberType, source string) (*relations.Members, error) {
	condition, err := gs.selectors.Compile(source, memberType)
	if err != nil {
		return nil, err
	}
	return &relations.Members{Tenant: tenant, Type: memberType, Table: entityTypes()[memberType], Condition: &condition}, nil
}

// inGroup lets the devices through that are members of a group, none for a group that does not exist.
func (gs *Groups) inGroup(token any) store.Filter {
	return store.Resolved(func(tx store.Tx, tenant int64) (store.Filter, error) {
		name, _ := token.(string)
		g, err := gs.Table.Get(tx, tenant, name)
		if err != nil || g == nil || g.MemberType != EntityDevice {
			return store.In("id"), err
		}
		members, err := gs.members(g)
		if err != nil {
			return store.Filter{}, err
		}
		return members.Filter(tx)
	})
}

// MemberPage is a page of the members of a group.
type MemberPage struct {
	Members []relations.Member
	Page    store.Page
	Total   func(context.Context) (int64, error) // counts all members
}

// MembersOf returns a page of the members of a group, in the order of their row ids.
func (gs *Groups) MembersOf(ctx context.Context, g *EntityGroup, page store.Page) (*MemberPage, error) {
	members, err := gs.members(g)
	if err != nil {
		return nil, err
	}
	return gs.memberPage(ctx, members, page)
}

// SelectorPreview is what a selector would select.
type SelectorPreview struct {
	Refused error // nil: it selects Members
	Members *MemberPage
}

// PreviewSelector returns a page of the entities that a selector holds for.
func (gs *Groups) PreviewSelector(ctx context.Context, by *model.Principal, memberType, source string, page store.Page) (*SelectorPreview, error) {
	if err := gs.MayRead(by); err != nil {
		return nil, err
	}
	if !slices.Contains(selector.MemberTypes(), memberType) {
		return nil, model.Invalid("memberType", "%.40q is none of %s", memberType, selector.MemberTypes())
	}
	// A selector that does not compile is an answer of a preview, not an error.
	members, err := gs.selected(by.TenantID, memberType, source)
	if model.CodeOf(err) == model.CodeInvalidInput {
		return &SelectorPreview{Refused: err}, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := gs.memberPage(ctx, members, page)
	return &SelectorPreview{Members: p}, err
}

func (gs *Groups) memberPage(ctx context.Context, members *relations.Members, page store.Page) (*MemberPage, error) {
	page = page.Norm()
	// Counting all members is left to callers that ask for it.
	p := &MemberPage{Page: page, Total: func(ctx context.Context) (n int64, err error) {
		err = store.Read(ctx, gs.store, func(tx store.Tx) (err error) {
			n, err = members.Count(tx)
			return err
		})
		return n, err
	}}
	err := store.Read(ctx, gs.store, func(tx store.Tx) (err error) {
		p.Members, err = members.Page(tx, 0, int64(page.Number-1)*int64(page.Size), int64(page.Size))
		return err
	})
	return p, err
}

// VersionsOf returns the versions of each of some groups, newest first. It demands no authority.
func (gs *Groups) VersionsOf(ctx context.Context, by *model.Principal, groups []int64) (of map[int64][]*entity.Version, err error) {
	tenant, err := entity.TenantOf(by)
	if err != nil {
		return nil, err
	}
	err = store.Read(ctx, gs.store, func(tx store.Tx) (err error) {
		of, err = gs.versions.Of(tx, tenant, groups)
		return err
	})
	return of, err
}

// Snapshots returns what versions of groups froze, by the row ids of the versions. It demands no authority.
func (gs *Groups) Snapshots(ctx context.Context, by *model.Principal, versions []int64) (bodies map[int64]*GroupSnapshot, err error) {
	tenant, err := entity.TenantOf(by)
	if err != nil {
		return nil, err
	}
	err = store.Read(ctx, gs.store, func(tx store.Tx) (err error) {
		bodies, err = gs.versions.Bodies(tx, tenant, versions)
		return err
	})
	return bodies, err
}

// GroupTargets is a page of the devices that a command to a group is for, or why it cannot be sent to it.
type GroupTargets struct {
	Rejected bool     `gql:"rejected"`
	Code     *string  `gql:"code"`
	Reason   *string  `gql:"reason"`
	Devices  []string `gql:"deviceTokens"`
	Next     *string  `gql:"nextCursor"`
	Version  *int64   `gql:"resolvedVersion"`
}

// MaxTargets is the maximum of a page of GroupTargets.
const MaxTargets = 1000

// Targets returns the devices of a group with a row id above after, by that id. Of a dynamic group it evaluates the given
// version, nil for the active one.
func (gs *Groups) Targets(ctx context.Context, by *model.Principal, token string, version *int64, after, limit int64) (targets *GroupTargets, err error) {
	if err := gs.MayRead(by); err != nil {
		return nil, err
	}
	if limit < 1 || limit > MaxTargets {
		return nil, model.Invalid("limit", "must be between 1 and %d", MaxTargets)
	}
	err = store.Read(ctx, gs.store, func(tx store.Tx) error {
		g, err := gs.Table.Get(tx, by.TenantID, token)
		if err != nil {
			return err
		}
		// Group and members in one snapshot.
		members, resolved, rejected, err := gs.targetsOf(tx, g, token, version)
		if err != nil || rejected != nil {
			targets = rejected
			return err
		}
		targets, err = pageOfTargets(tx, members, after, limit)
		if err == nil {
			targets.Version = resolved
		}
		return err
	})
	return targets, err
}

// targetsOf says which devices a command to a group is for.
func (gs *Groups) targetsOf(tx store.Tx, g *EntityGroup, token string, version *int64) (members *relations.Members, resolved *int64, rejected *GroupTargets, err error) {
	switch {
	case g == nil:
		return nil, nil, reject("GROUP_NOT_FOUND", "entity group %.128q does not exist", token), nil
	case g.MemberType != EntityDevice:
		return nil, nil, reject("GROUP_NOT_A_DEVICE_GROUP", "the members of entity group %q are of the type %s", token, g.MemberType), nil
	case !g.dynamic() && version != nil:
		return nil, nil, reject("GROUP_NOT_VERSIONED", "entity group %q is static and has no versions", token), nil
	case !g.dynamic():
		members, err = gs.members(g)
		return members, nil, nil, err
	case version == nil && g.ActiveVersion == nil:
		return nil, nil, reject("GROUP_NOT_PUBLISHED", "entity group %q has no published version", token), nil
	case version == nil:
		version = g.ActiveVersion
	}
	// The selector of the version, not that of the draft.
	body, err := gs.versions.Body(tx, g.ID, *version)
	switch {
	case err != nil:
		return nil, nil, nil, err
	case body == nil:
		return nil, nil, reject("GROUP_VERSION_NOT_FOUND", "entity group %q has no version %d", token, *version), nil
	}
	members, err = gs.selected(g.TenantID, body.MemberType, body.Selector)
	return members, version, nil, err
}

func reject(code, format string, args ...any) *GroupTargets {
	return &GroupTargets{Rejected: true, Code: &code, Reason: new(fmt.Sprintf(format, args...)), Devices: []string{}}
}

// pageOfTargets reads one more than the page has, to know whether it is the last.
func pageOfTargets(tx store.Tx, members *relations.Members, after, limit int64) (*GroupTargets, error) {
	found, err := members.Page(tx, after, 0, limit+1)
	if err != nil {
		return nil, err
	}
	targets := &GroupTargets{Devices: []string{}}
	if int64(len(found)) > limit {
		found = found[:limit]
		targets.Next = new(idKey(found[limit-1].ID))
	}
	for _, one := range found {
		targets.Devices = append(targets.Devices, one.Token)
	}
	return targets, nil
}
