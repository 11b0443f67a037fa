package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"

	"weir/model"
	"weir/store"
)

// EntityRef names an entity by its type and its token.
type EntityRef struct {
	Type  string `gql:"type"`
	Token string `gql:"token"`
}

// entityTypes are the types of entities that a reference of type and token may name, and the tables that hold them: those of the kinds
// whose description says Addressed.
var entityTypes func() map[string]string

func init() { // the descriptions themselves ask for it, later
	entityTypes = sync.OnceValue(func() map[string]string {
		out := map[string]string{}
		for _, kind := range New(Config{}, Deps{}).Kinds.All() {
			if info := kind.Info(); info.Addressed != "" {
				out[info.Addressed] = info.Table
			}
		}
		return out
	})
}

// tableOf returns the table that holds the entities of a type. field is the input field in a refusal.
func tableOf(field, entityType string) (string, error) {
	types := entityTypes()
	if table, ok := types[entityType]; ok {
		return table, nil
	}
	return "", model.Invalid(field, "%.40q is no type of entities, there are %s", entityType, strings.Join(slices.Sorted(maps.Keys(types)), ", "))
}

// ExistingRefs returns those of the references whose entities exist, in the order given.
func (r *Registry) ExistingRefs(ctx context.Context, by *model.Principal, refs []EntityRef) (existing []EntityRef, err error) {
	if err := r.Devices.MayRead(by); err != nil {
		return nil, err
	}
	// One query for each table.
	tokens := map[string][]string{} // by table
	tables := make([]string, len(refs))
	for i, ref := range refs {
		if tables[i], err = tableOf("refs.type", ref.Type); err != nil {
			return nil, err
		}
		tokens[tables[i]] = append(tokens[tables[i]], ref.Token)
	}
	found := map[string]map[string]int64{}
	err = store.Read(ctx, r.store, func(tx store.Tx) (err error) {
		for table, some := range tokens {
			if found[table], err = store.IDs(tx, table, by.TenantID, unique(some)); err != nil {
				return err
			}
		}
		return nil
	})
	existing = []EntityRef{}
	for i, ref := range refs {
		if _, ok := found[tables[i]][ref.Token]; ok {
			existing = append(existing, ref)
		}
	}
	return existing, err
}

// Find returns the credentials of a tenant with this type and SHA-256 of their id: none or one.
func (cs *Credentials) Find(ctx context.Context, tenantID int64, credentialType string, idHash [sha256.Size]byte) (found []store.CredentialRow, err error) {
	err = store.Read(ctx, cs.waiting, func(tx store.Tx) (err error) {
		found, err = store.FindCredentials(tx, tenantID, credentialType, hex.EncodeToString(idHash[:]))
		return err
	})
	// Count how lookups end: many misses are a sign of guessing.
	result := "found"
	switch {
	case err != nil:
		result = "failed"
	case len(found) == 0:
		result = "none"
	}
	cs.lookups.WithLabelValues(result).Inc()
	return found, err
}

// Tokens returns the tokens of all devices of the principal's tenant by their row ids.
func (ds *Devices) Tokens(ctx context.Context, by *model.Principal) (tokens map[int64]string, err error) {
	err = store.Read(ctx, ds.store, func(tx store.Tx) (err error) {
		tokens, err = store.AllTokens(tx, "devices", by.TenantID)
		return err
	})
	return tokens, err
}
