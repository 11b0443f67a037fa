package gql

// AreaSpec describes an endpoint of the API: an area on the tenant plane, or a variant of one on the identity plane.
type AreaSpec struct {
	Area    string // in the endpoint's path: /api/<Area>/graphql
	Variant string // "": the tenant plane; else the path is /api/<Area>/<Variant>/graphql, and identity tokens open it
	Service bool   // it is for service tokens
	FromLog bool   // it shows what is applied of the log: after a start its operations wait until that is done
	SDL     string // the schema; "": that of schema/<Name>.graphql
	Example string // the document that the explorer begins with: it answers something on an instance that has a device
}

// Name is that of the endpoint's schema.
func (s AreaSpec) Name() string {
	if s.Variant == "" {
		return s.Area
	}
	return s.Area + "-" + s.Variant
}

// Schema is the endpoint's schema.
func (s AreaSpec) Schema() (string, error) {
	if s.SDL != "" {
		return s.SDL, nil
	}
	return SDL(s.Name())
}

// Plane is the one on which the endpoint's callers are.
func (s AreaSpec) Plane() Plane {
	if s.Variant == "" {
		return TenantPlane
	}
	return IdentityPlane
}

// Token is the kind of token that opens the endpoint: access, identity or service.
func (s AreaSpec) Token() string {
	switch {
	case s.Service:
		return "service"
	case s.Variant != "":
		return "identity"
	}
	return "access"
}

// Callers says for whom the endpoint is, "" when that is any member of a tenant.
func (s AreaSpec) Callers() string {
	switch {
	case s.Service:
		return "for callers with ai:infer; the access token of a role that has it is accepted, too"
	case s.Variant != "":
		return "for identities with a system role: superuser, operator, or a role of scope system"
	}
	return ""
}
