package operate

import (
	"context"
	"slices"
	"strings"

	"weir/auth"
	"weir/model"
	"weir/web"
)

// NewAdmin is the person that weir admin create makes. The password is never kept as given.
type NewAdmin struct {
	Email    string `json:"email"`
	Password string `json:"password"`
	Role     string `json:"role"` // system role: superuser or operator
	// Tenant, when given, is entered as tenant-admin.
	Tenant string `json:"tenant,omitempty"`
}

// AdminCreated is the result.
type AdminCreated struct {
	Email  string `json:"email"`
	Role   string `json:"role"`
	Tenant string `json:"tenant,omitempty"`
}

func (e *Entities) createAdmin(ctx context.Context, a NewAdmin) (*AdminCreated, error) {
	return e.CreateAdmin(ctx, Local(), a)
}

// CreateAdmin makes an administrator.
func (e *Entities) CreateAdmin(ctx context.Context, by *model.Principal, a NewAdmin) (*AdminCreated, error) {
	if a.Tenant != "" {
		if _, _, known := e.Govern.Lookup(a.Tenant); !known {
			return nil, e.noTenant(a.Tenant)
		}
	}
	id, err := e.Auth.CreateIdentity(ctx, by, newIdentity(a))
	if err != nil {
		return nil, err
	}
	if a.Tenant != "" {
		if _, err := e.Auth.AddMembership(ctx, by, id.Email, a.Tenant, []string{"tenant-admin"}); err != nil {
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

// PasswordSet is the result. A person who is not enabled has a new password and may still not sign in.
type PasswordSet struct {
	Email   string `json:"email"`
	Enabled bool   `json:"enabled"`
}

// setPassword gives a person another password and ends all their sessions.
func (e *Entities) setPassword(ctx context.Context, p NewPassword) (*PasswordSet, error) {
	id, err := e.Auth.SetPassword(ctx, Local(), p.Email, p.Password)
	if err != nil {
		return nil, err
	}
	return &PasswordSet{id.Email, id.Enabled}, nil
}

// AdminLine is a person as weir admin list shows them.
type AdminLine struct {
	Email   string   `json:"email"`
	Enabled bool     `json:"enabled"`
	Roles   []string `json:"roles"`   // system roles
	Tenants []string `json:"tenants"` // that they may enter; a superuser may enter every one
}

// admins lists everyone who can sign in or could, by email.
func (e *Entities) admins(ctx context.Context, _ None) ([]AdminLine, error) {
	ids, err := e.Auth.Identities(ctx, Local())
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

// AdminChange is what weir admin role, enable and disable change; nil leaves it as it is.
type AdminChange struct {
	Email   string   `json:"email"`
	Enabled *bool    `json:"enabled,omitempty"`
	Roles   []string `json:"roles,omitempty"` // system roles; empty: as they are
}

// changeAdmin changes an account. What ends its rights ends its sessions, too.
func (e *Entities) changeAdmin(ctx context.Context, a AdminChange) (*AdminLine, error) {
	if len(a.Roles) > 0 {
		if _, err := e.Auth.SetSystemRoles(ctx, Local(), a.Email, a.Roles); err != nil {
			return nil, err
		}
	}
	if a.Enabled != nil {
		if _, err := e.Auth.SetIdentityEnabled(ctx, Local(), a.Email, *a.Enabled); err != nil {
			return nil, err
		}
	}
	lines, err := e.admins(ctx, None{})
	if err != nil {
		return nil, err
	}
	email := strings.ToLower(strings.TrimSpace(a.Email))
	i := slices.IndexFunc(lines, func(l AdminLine) bool { return l.Email == email })
	if i < 0 {
		return nil, model.NotFound("identity", email)
	}
	return &lines[i], nil
}

// AdminName names an account.
type AdminName struct {
	Email string `json:"email"`
}

// removeAdmin removes an account with its memberships; the last enabled superuser stays.
func (e *Entities) removeAdmin(ctx context.Context, a AdminName) (*AdminName, error) {
	removed, err := e.Auth.DeleteIdentity(ctx, Local(), a.Email)
	if err == nil && !removed {
		err = model.NotFound("identity", a.Email)
	}
	if err != nil {
		return nil, err
	}
	return &a, nil
}

// SetupLink is a new one-time link to the setup page, at every address where the page may be reached.
type SetupLink = web.SetupLink

func (o *Operator) setupLink(context.Context, None) (*SetupLink, error) { return o.deps.SetupLink() }
