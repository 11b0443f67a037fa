// Package outbound holds the resolvers of the area outbound-connectors: connectors and HTTP secrets of a tenant, and its dead letters. The
// rules are those of package connectors.
package outbound

import (
	"context"

	"weir/connectors"
	"weir/gql"
	"weir/gql/engine"
	"weir/model"
	"weir/store/entity"
)

// Area is the name of the area.
const Area = connectors.Area

// Register registers the area.
func Register(a *gql.Area, c *connectors.Connectors, letters gql.LetterDeps) {
	read, write := gql.Requires(model.ConnectorRead), gql.Requires(model.ConnectorWrite)
	a.Types(map[string]any{"ServiceInfo": serviceInfo{}, "DeliveryTest": connectors.DeliveryTest{}, "ConnectorType": typeView{}, "ConnectorTypeField": fieldView{}})
	a.Query("outboundConnectorsInfo", gql.Anonymous(), func(context.Context, any, engine.Args) (any, error) { return serviceInfo{Area}, nil })
	a.Query("connectorTypes", read, func(context.Context, any, engine.Args) (any, error) { return connectors.TypeNames(), nil })
	a.Query("connectorTypeDescriptions", read, func(context.Context, any, engine.Args) (any, error) { return descriptions(), nil })
	a.Query("httpSecrets", read, func(ctx context.Context, _ any, _ engine.Args) (any, error) {
		all := []*connectors.HTTPSecret{}
		err := c.Secrets.Each(ctx, gql.PrincipalFrom(ctx), func(s *connectors.HTTPSecret) error {
			all = append(all, s)
			return nil
		})
		return all, err
	})
	a.Mutation("setHttpSecret", write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		use := connectors.UseBearer
		if args.Has("use") && !args.IsNull("use") {
			use = args.String("use")
		}
		return c.SetSecret(ctx, gql.PrincipalFrom(ctx), args.String("token"), args.String("value"), args.Strings("hosts"), use)
	})
	a.Mutation("testConnector", write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return c.Test(ctx, gql.PrincipalFrom(ctx), args.String("token"))
	})
	types := engine.NewLoader(func(ctx context.Context, ids []int64) (map[int64]string, error) {
		return c.TypeOf(ctx, gql.PrincipalFrom(ctx).TenantID, ids)
	})
	a.Field("ConnectorVersion", "type", func(ctx context.Context, src any, _ engine.Args) (any, error) {
		return types.Load(ctx, src.(*entity.Version).ID), nil
	})
	a.Entities(c.Kinds)
	gql.RegisterDeadLetters(a, letters, read, write)
	registerDeliveries(a, letters)
}

type serviceInfo struct {
	Area string `gql:"area"`
}

type typeView struct {
	Name        string      `gql:"name"`
	Summary     string      `gql:"summary"`
	Fields      []fieldView `gql:"fields"`
	Secret      *string     `gql:"secret"`
	NeedsSecret bool        `gql:"needsSecret"`
	NeededWith  *string     `gql:"secretNeededWith"`
	Unsupported *string     `gql:"unsupported"`
	Example     string      `gql:"example"`
}

type fieldView struct {
	Name     string      `gql:"name"`
	Kind     string      `gql:"kind"`
	Doc      string      `gql:"description"`
	Required bool        `gql:"required"`
	Default  *string     `gql:"default"`
	Values   []string    `gql:"values"`
	Fields   []fieldView `gql:"fields"`
}

// descriptions are the types that are known, those of which no connector can be made included.
func descriptions() (all []typeView) {
	for _, t := range connectors.Types() {
		all = append(all, typeView{Name: t.Name, Summary: t.Summary, Fields: fieldViews(t.Fields), Secret: textOrNil(t.Secret), NeedsSecret: t.Needs, NeededWith: textOrNil(t.NeedsWith),
			Unsupported: textOrNil(t.Refused), Example: t.Example})
	}
	return all
}

func fieldViews(fields []connectors.Field) []fieldView {
	views := []fieldView{}
	for i := range fields {
		f := &fields[i]
		views = append(views, fieldView{Name: f.Name, Kind: string(f.Kind), Doc: f.Doc, Required: f.Required, Default: textOrNil(f.Default), Values: append([]string{}, f.OneOf...), Fields: fieldViews(f.Fields)})
	}
	return views
}

func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
