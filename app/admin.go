package app

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"weir/auth"
	"weir/model"
)

// AdminOperator is the part of an Operator that is about administrators.
type AdminOperator interface {
	CreateAdmin(ctx context.Context, a NewAdmin) (*AdminCreated, error)
	// SetPassword gives somebody another password and ends all his sessions.
	SetPassword(ctx context.Context, p NewPassword) (*PasswordSet, error)
	// Admins lists everybody who may sign in or might, by email.
	Admins(ctx context.Context) ([]AdminLine, error)
}

// NewAdmin is the person that weir admin create makes. The password is never kept as given.
type NewAdmin struct {
	Email    string `json:"email"`
	Password string `json:"password"`
	Role     string `json:"role"` // system role: superuser or operator
	// Tenant, when given, is entered as tenant-admin.
	Tenant string `json:"tenant,omitempty"`
}

// AdminCreated is what became of it.
type AdminCreated struct {
	Email  string `json:"email"`
	Role   string `json:"role"`
	Tenant string `json:"tenant,omitempty"`
}

// CreateAdmin implements Operator.
func (r rooms) CreateAdmin(ctx context.Context, a NewAdmin) (*AdminCreated, error) {
	return r.createAdmin(ctx, local(), a)
}

func (r rooms) createAdmin(ctx context.Context, by *model.Principal, a NewAdmin) (*AdminCreated, error) {
	if a.Tenant != "" {
		if _, _, known := r.govern.Lookup(a.Tenant); !known {
			return nil, errNoTenant(a.Tenant)
		}
	}
	id, err := r.auth.CreateIdentity(ctx, by, newIdentity(a))
	if err != nil {
		return nil, err
	}
	if a.Tenant != "" {
		if _, err := r.auth.AddMembership(ctx, by, id.Email, a.Tenant, []string{"tenant-admin"}); err != nil {
			return nil, err
		}
	}
	return &AdminCreated{Email: id.Email, Role: a.Role, Tenant: a.Tenant}, nil
}

func newIdentity(a NewAdmin) auth.NewIdentity {
	if a.Role == "" {
		a.Role = auth.RoleSuperuser
	}
	return auth.NewIdentity{Email: a.Email, Password: a.Password, Enabled: true, SystemRoles: []string{a.Role}}
}

// NewPassword is what weir admin passwd gives. It is never kept as given.
type NewPassword struct {
	Email    string `json:"email"`
	Password string `json:"password"`
}

// PasswordSet is what became of it. Somebody who is not enabled has a new password and may still not sign in.
type PasswordSet struct {
	Email   string `json:"email"`
	Enabled bool   `json:"enabled"`
}

// SetPassword implements Operator.
func (r rooms) SetPassword(ctx context.Context, p NewPassword) (*PasswordSet, error) {
	id, err := r.auth.SetPassword(ctx, local(), p.Email, p.Password)
	if err != nil {
		return nil, err
	}
	return &PasswordSet{id.Email, id.Enabled}, nil
}

// AdminLine is somebody as weir admin list shows him.
type AdminLine struct {
	Email   string   `json:"email"`
	Enabled bool     `json:"enabled"`
	Roles   []string `json:"roles"`   // system roles
	Tenants []string `json:"tenants"` // that he is let into; a superuser may enter every one
}

// Admins implements Operator.
func (r rooms) Admins(ctx context.Context) ([]AdminLine, error) {
	ids, err := r.auth.Identities(ctx, local())
	if err != nil {
		return nil, err
	}
	lines := make([]AdminLine, len(ids))
	for i, id := range ids {
		lines[i] = AdminLine{Email: id.Email, Enabled: id.Enabled, Roles: id.SystemRoles, Tenants: []string{}}
		for _, m := range id.Memberships {
			if m.Enabled {
				lines[i].Tenants = append(lines[i].Tenants, m.Tenant)
			}
		}
	}
	slices.SortFunc(lines, func(a, b AdminLine) int { return strings.Compare(a.Email, b.Email) })
	return lines, nil
}

func (in *Instance) adminVerbs() map[string]http.Handler {
	return map[string]http.Handler{
		"admin-create": verb(in, in.CreateAdmin),
		"admin-passwd": verb(in, in.SetPassword),
		"admin-list":   verb(in, func(ctx context.Context, _ struct{}) ([]AdminLine, error) { return in.Admins(ctx) }),
		"admin-link":   verb(in, func(context.Context, struct{}) (*SetupLink, error) { return in.SetupLink() }),
	}
}

// CreateAdmin implements Operator.
func (c *Client) CreateAdmin(ctx context.Context, a NewAdmin) (*AdminCreated, error) {
	return call[AdminCreated](ctx, c, "admin-create", a)
}

// SetPassword implements Operator.
func (c *Client) SetPassword(ctx context.Context, p NewPassword) (*PasswordSet, error) {
	return call[PasswordSet](ctx, c, "admin-passwd", p)
}

// Admins implements Operator.
func (c *Client) Admins(ctx context.Context) ([]AdminLine, error) {
	out, err := call[[]AdminLine](ctx, c, "admin-list", struct{}{})
	if err != nil {
		return nil, err
	}
	return *out, nil
}

// SetupLink makes a new link to the setup page and ends the one before.
func (c *Client) SetupLink(ctx context.Context) (*SetupLink, error) {
	return call[SetupLink](ctx, c, "admin-link", struct{}{})
}
