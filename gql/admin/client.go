package admin

import (
	"context"

	"weir/auth"
	"weir/gql/engine"
	"weir/model"
)

func (r *resolvers) clients() {
	r.area.Row("AdminOAuthClient", auth.OAuthClient{}, "secretHash")
	r.area.Type("AdminOAuthClientSecret", auth.ClientSecret{})
	r.area.Field("AdminOAuthClient", "hasSecret", engine.On(func(_ context.Context, c auth.OAuthClient, _ engine.Args) (any, error) {
		return c.HasSecret(), nil
	}))
	r.query("oauthClients", model.ClientRead, func(ctx context.Context, by *model.Principal, _ engine.Args) (any, error) {
		all := []*auth.OAuthClient{}
		err := r.Auth.Clients.Each(ctx, by, func(c *auth.OAuthClient) error {
			all = append(all, c)
			return nil
		})
		return all, err
	})
	r.mutation("createOauthClient", model.ClientWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		request := args.Patch("request")
		confidential, _ := request["confidential"].(bool)
		delete(request, "confidential")
		return r.Auth.Clients.CreateWithSecret(ctx, by, request, confidential)
	})
	r.mutation("updateOauthClient", model.ClientWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		clientID, err := namedClient(args)
		if err != nil {
			return nil, err
		}
		return r.Auth.Clients.Update(ctx, by, clientID, args.Patch("request"))
	})
	r.mutation("setOauthClientEnabled", model.ClientWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.Clients.SetEnabled(ctx, by, args.String("clientId"), args.Bool("enabled"))
	})
	r.mutation("rotateOauthClientSecret", model.ClientWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.Clients.RotateSecret(ctx, by, args.String("clientId"))
	})
	r.mutation("deleteOauthClient", model.ClientWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.Clients.Delete(ctx, by, args.String("clientId"))
	})
}

// namedClient is the client that exactly one of the arguments clientId and token selects.
func namedClient(args engine.Args) (string, error) {
	id, token := args.Text("clientId"), args.Text("token")
	switch {
	case id != nil && token == nil:
		return *id, nil
	case token != nil && id == nil:
		return *token, nil
	}
	return "", model.Invalid("clientId", "exactly one of clientId and token selects the client")
}
