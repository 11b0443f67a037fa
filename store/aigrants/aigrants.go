// Package aigrants stores which AI providers tenants may use: what is granted to tiers and to tenants, the default of a tier, and the
// provider that a function of a tenant takes.
package aigrants

import (
	"database/sql"
	"errors"

	"weir/store"
)

// TierID returns the row id of a tier, 0 when there is none.
func TierID(tx store.Tx, token string) (id int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(id), 0) FROM tenant_tiers WHERE token = ?`, token).Scan(&id)
	return id, err
}

// TierGrant is a provider that all tenants of a tier may use.
type TierGrant struct {
	Tier     string
	Provider int64
	Default  bool
}

// OfTiers returns the grants of all tiers, in the order of tiers, then of their making.
func OfTiers(tx store.Tx) (all []TierGrant, err error) {
	rows, err := tx.Query(`SELECT t.token, g.provider_id, g.is_default FROM ai_tier_grants g JOIN tenant_tiers t ON t.id = g.tier_id
		ORDER BY t.display_order, t.token, g.provider_id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var g TierGrant
		if err := rows.Scan(&g.Tier, &g.Provider, &g.Default); err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, rows.Err()
}

// OfTenant returns the providers that are granted to a tenant itself.
func OfTenant(tx store.Tx, tenant int64) (providers []int64, err error) {
	return store.Column[int64](tx, `SELECT provider_id FROM ai_tenant_grants WHERE tenant_id = ? ORDER BY provider_id`, tenant)
}

// Assignment is the provider that a function of a tenant takes.
type Assignment struct {
	Function string
	Provider int64
}

// Assigned returns the assignments of a tenant by function.
func Assigned(tx store.Tx, tenant int64) (all []Assignment, err error) {
	rows, err := tx.Query(`SELECT function, provider_id FROM ai_function_models WHERE tenant_id = ? ORDER BY function`, tenant)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var a Assignment
		if err := rows.Scan(&a.Function, &a.Provider); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, rows.Err()
}

// Verbs return whether something changed.

// GrantTier lets the tenants of a tier use a provider.
func GrantTier(tx store.Tx, tier, provider int64) (bool, error) {
	return changed(tx, `INSERT INTO ai_tier_grants (tier_id, provider_id, is_default) VALUES (?, ?, 0) ON CONFLICT DO NOTHING`, tier, provider)
}

// RevokeTier takes that back, and with it that the provider is the tier's default.
func RevokeTier(tx store.Tx, tier, provider int64) (bool, error) {
	return changed(tx, `DELETE FROM ai_tier_grants WHERE tier_id = ? AND provider_id = ?`, tier, provider)
}

// TierGranted reports whether a provider is granted to a tier.
func TierGranted(tx store.Tx, tier, provider int64) (granted bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM ai_tier_grants WHERE tier_id = ? AND provider_id = ?)`, tier, provider).Scan(&granted)
	return granted, err
}

// SetDefault makes a provider that is granted to a tier its default.
func SetDefault(tx store.Tx, tier, provider int64) (bool, error) {
	if _, err := changed(tx, `UPDATE ai_tier_grants SET is_default = 0 WHERE tier_id = ? AND provider_id <> ? AND is_default = 1`, tier, provider); err != nil {
		return false, err
	}
	return changed(tx, `UPDATE ai_tier_grants SET is_default = 1 WHERE tier_id = ? AND provider_id = ? AND is_default = 0`, tier, provider)
}

// ClearDefault leaves a tier without a default.
func ClearDefault(tx store.Tx, tier int64) (bool, error) {
	return changed(tx, `UPDATE ai_tier_grants SET is_default = 0 WHERE tier_id = ? AND is_default = 1`, tier)
}

// GrantTenant lets a tenant use a provider.
func GrantTenant(tx store.Tx, tenant, provider int64) (bool, error) {
	return changed(tx, `INSERT INTO ai_tenant_grants (tenant_id, provider_id) VALUES (?, ?) ON CONFLICT DO NOTHING`, tenant, provider)
}

// RevokeTenant takes that back.
func RevokeTenant(tx store.Tx, tenant, provider int64) (bool, error) {
	return changed(tx, `DELETE FROM ai_tenant_grants WHERE tenant_id = ? AND provider_id = ?`, tenant, provider)
}

// Assign lets a function of a tenant take a provider.
func Assign(tx store.Tx, tenant int64, function string, provider int64) (bool, error) {
	return changed(tx, `INSERT INTO ai_function_models (tenant_id, function, provider_id) VALUES (?, ?, ?)
		ON CONFLICT (tenant_id, function) DO UPDATE SET provider_id = excluded.provider_id WHERE provider_id <> excluded.provider_id`, tenant, function, provider)
}

// Unassign leaves a function of a tenant to the default of its tier.
func Unassign(tx store.Tx, tenant int64, function string) (bool, error) {
	return changed(tx, `DELETE FROM ai_function_models WHERE tenant_id = ? AND function = ?`, tenant, function)
}

// Offer is what a tenant may use.
type Offer struct {
	Any      bool  // something is granted
	Provider int64 // for the function: the one that is assigned and granted, else the default of the tier; 0 for none
}

// granted are the providers that a tenant may use: its own and those of its tier.
const granted = `SELECT provider_id FROM ai_tenant_grants WHERE tenant_id = ?1
	UNION SELECT g.provider_id FROM ai_tier_grants g JOIN tenants t ON t.tier_id = g.tier_id WHERE t.id = ?1`

// Offered returns what a tenant may use for a function. An assignment to what is not granted counts as none.
func Offered(tx store.Tx, tenant int64, function string) (o Offer, err error) {
	if err := tx.QueryRow(`SELECT EXISTS (`+granted+`)`, tenant).Scan(&o.Any); err != nil {
		return o, err
	}
	err = tx.QueryRow(`SELECT provider_id FROM ai_function_models WHERE tenant_id = ?1 AND function = ?2 AND provider_id IN (`+granted+`)
		UNION ALL SELECT g.provider_id FROM ai_tier_grants g JOIN tenants t ON t.tier_id = g.tier_id WHERE t.id = ?1 AND g.is_default = 1 LIMIT 1`,
		tenant, function).Scan(&o.Provider)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return o, err
}

func changed(tx store.Tx, query string, args ...any) (bool, error) {
	n, err := tx.Exec(query, args...)
	return n > 0, err
}
