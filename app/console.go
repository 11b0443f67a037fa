package app

import (
	"weir/gql"
	"weir/web"
)

// snippetsOf shows how a device sends its first reading. The name of the host becomes part of a command that a person types: one that no
// name or address can be is left out.
func snippetsOf(p entityParts) gql.SnippetMaker {
	return func(tenant, device, accessToken, host string) ([]gql.Snippet, error) {
		made, err := p.Snippets(tenant, device, accessToken, web.PlainHost(host))
		out := make([]gql.Snippet, len(made))
		for i, s := range made {
			out[i] = gql.Snippet(s)
		}
		return out, err
	}
}

// aboutConsole is what the console learns before anybody has signed in.
func (f *front) aboutConsole() web.ConsoleAbout {
	return web.ConsoleAbout{InstanceID: f.cfg.Instance.ID, Version: f.opt.Version, Setup: f.setupState() == web.SetupOpen, DevTools: gql.DevTools(f.opt.Getenv)}
}
