package gql

import (
	"context"

	"weir/gql/engine"
	"weir/model"
	"weir/provision"
	"weir/registry"
	"weir/store/entity"
)

// RegisterRegistry registers the registry's kinds, those that provisioning has added, and their special operations in the
// device-management area.
func RegisterRegistry(a *Area, r *registry.Registry, p *provision.Provision) {
	a.Entities(r.Kinds)
	a.Entities(r.Keyed)
	registerProfiles(a, r)
	registerDevices(a, r.Devices)
	registerAccessTokens(a, r.Credentials)
	registerCommands(a, r.Vocabularies)
	registerFacets(a, r.FacetKeys)
	registerReferences(a, r)
	registerRelationships(a, r)
	registerGroups(a, r.Groups)
	registerPlaces(a, r)
	registerClaims(a, r, p)
	registerEdges(a, r.Edges)
	registerAudit(a, r.Journal)
}

func registerProfiles(a *Area, r *registry.Registry) {
	a.Type("DeviceLocationDeclaration", registry.LocationDeclaration{})
	a.Type("DeviceLocationCapability", registry.LocationCapability{})
	a.Field("DeviceProfile", "location", engine.On(func(_ context.Context, p registry.DeviceProfile, _ engine.Args) (any, error) {
		return p.Declaration()
	}))
	a.Field("MetricDefinition", "sourceNames", engine.On(func(_ context.Context, m registry.MetricDefinition, _ engine.Args) (any, error) {
		if len(m.SourceNames) == 0 {
			return nil, nil
		}
		return m.SourceNames, nil
	}))
	counts := engine.NewLoader(func(ctx context.Context, profiles []int64) (map[int64]int64, error) {
		return r.Profiles.TypeCounts(ctx, PrincipalFrom(ctx), profiles)
	})
	a.Type("DetectionRuleWarning", entity.Remark{})
	a.Field("DeviceProfileVersion", "warnings", engine.On(func(_ context.Context, v entity.Version, _ engine.Args) (any, error) {
		if v.Remarks == nil { // not the answer of a publish
			return nil, nil
		}
		return v.Remarks, nil
	}))
	a.Field("DeviceProfile", "deviceTypeCount", engine.On(func(ctx context.Context, p registry.DeviceProfile, _ engine.Args) (any, error) {
		return counts.Then(ctx, p.ID, func(n int64, _ bool) (any, error) { return n, nil }), nil
	}))
	a.Query("deviceLocationDeclaration", Requires(model.DeviceRead), engine.Do(func(ctx context.Context, in struct {
		Device string `gql:"deviceToken"`
	}) (any, error) {
		return r.Devices.LocationOf(ctx, PrincipalFrom(ctx), in.Device)
	}))
}

// registerEdges shows what edges say of themselves.
func registerEdges(a *Area, edges *registry.Edges) {
	a.Type("EdgeState", registry.EdgeState{})
	a.Type("EdgeNumberRange", registry.EdgeRange{})
	a.Field("Edge", "state", engine.On(func(ctx context.Context, e registry.Edge, _ engine.Args) (any, error) {
		s, err := edges.StateOf(ctx, &e)
		if s == nil {
			return nil, err
		}
		return *s, err
	}))
}

func registerFacets(a *Area, keys *registry.FacetKeys) {
	a.Query("facetValues", Requires(model.DeviceRead), engine.Do(func(ctx context.Context, in struct {
		Facet registry.DeviceFacet `gql:"facet"`
	}) (any, error) {
		return keys.ValuesInUse(ctx, PrincipalFrom(ctx), in.Facet)
	}))
	a.Field("FacetKey", "values", engine.On(func(_ context.Context, k registry.FacetKey, _ engine.Args) (any, error) {
		if len(k.Values) == 0 {
			return nil, nil
		}
		return k.Values, nil
	}))
	a.Mutation("setFacetKey", Requires(model.DeviceWrite), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		if !args.Has("request") || args.IsNull("request") { // the schema declares it optional
			return nil, model.Invalid("request", "is required")
		}
		return keys.Set(ctx, PrincipalFrom(ctx), args.Patch("request"))
	})
	a.Mutation("deleteFacetKey", Requires(model.DeviceWrite), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return keys.Unset(ctx, PrincipalFrom(ctx), args.String("memberType"), args.String("key"))
	})
}

func registerReferences(a *Area, r *registry.Registry) {
	a.Type("EntityRef", registry.EntityRef{})
	a.Query("existingEntityRefs", Requires(model.DeviceRead), engine.Do(func(ctx context.Context, in struct {
		Refs []registry.EntityRef `gql:"refs"`
	}) (any, error) {
		return r.ExistingRefs(ctx, PrincipalFrom(ctx), in.Refs)
	}))
}

func registerDevices(a *Area, devices *registry.Devices) {
	a.Query("devicesByExternalId", Requires(model.DeviceRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return devices.ByExternalID(ctx, PrincipalFrom(ctx), args.Strings("externalIds"))
	})
	a.Mutation("createDevices", Requires(model.DeviceWrite), engine.Do(func(ctx context.Context, in struct {
		Request struct {
			Type               string  `gql:"deviceTypeToken"`
			Count              int64   `gql:"count"`
			StartIndex         *int64  `gql:"startIndex"`
			TokenTemplate      string  `gql:"tokenTemplate"`
			NameTemplate       *string `gql:"nameTemplate"`
			ExternalIDTemplate *string `gql:"externalIdTemplate"`
			Metadata           *string `gql:"metadata"`
		} `gql:"request"`
	}) (any, error) {
		q := in.Request
		return devices.CreateBulk(ctx, PrincipalFrom(ctx), registry.Bulk{Type: q.Type, Count: q.Count, StartIndex: q.StartIndex,
			TokenTemplate: q.TokenTemplate, NameTemplate: q.NameTemplate, ExternalIDTemplate: q.ExternalIDTemplate, Metadata: q.Metadata})
	}))
	a.Mutation("deleteDevices", Requires(model.DeviceWrite), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return devices.DeleteAll(ctx, PrincipalFrom(ctx), args.Strings("tokens"))
	}, engine.ListLimit("tokens", registry.MaxImport))
}

func registerAccessTokens(a *Area, credentials *registry.Credentials) {
	a.Type("IssuedAccessToken", registry.IssuedToken{})
	a.Mutation("issueAccessToken", Requires(model.DeviceWrite), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		q := args.Object("request")
		until, err := instant(q, "expiresAt", true)
		if err != nil {
			return nil, err
		}
		return credentials.IssueToken(ctx, PrincipalFrom(ctx), registry.TokenRequest{Device: q.String("deviceToken"), Replace: q.Bool("replace"), Until: until})
	})
	a.Field("DeviceCredential", "credentialId", engine.On(func(_ context.Context, c registry.DeviceCredential, _ engine.Args) (any, error) {
		return credentials.ID(&c)
	}))
}
