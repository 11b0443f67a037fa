package provision

import (
	"context"

	"weir/auth"
	"weir/model"
	"weir/registry"
	"weir/store"
)

// Status of a claim. Whether an open one has expired is judged when it is claimed.
const (
	ClaimOpen     = "OPEN"
	ClaimClaimed  = "CLAIMED"
	ClaimCanceled = "CANCELED"
)

// maxFailures closes a claim.
const maxFailures = 10

// Outcomes of an attempt to claim.
const (
	claimed      = "claimed"
	claimRefused = "refused"
	claimClosed  = "closed"
)

// Claim lets a customer take a device over with a secret, such as one that is printed on it. A device has one claim.
type Claim struct {
	store.Row
	DeviceID       int64         `store:"device_id"`
	Status         string        `store:"status" gql:"status"`
	SecretHash     string        `store:"secret_hash"`
	Failures       int64         `store:"failures"`
	ExpiresAt      *model.Micros `store:"expires_at" gql:"expiresAt"`
	ClaimedAt      *model.Micros `store:"claimed_at" gql:"claimedTime"`
	CustomerID     *int64        `store:"customer_id"`
	RelationshipID *int64        `store:"relationship_id"`

	device string // token, for the journal
}

// claims are as few as devices, and their rows are small: they do not count among the bytes of the tenant.
func newClaims() *store.Table[Claim] {
	return store.NewTable(store.Desc[Claim]{Kind: "device claim", Name: "device_claims", Order: "created_at DESC, id", Uncounted: true,
		Label: func(c *Claim) string { return c.device }})
}

// ClaimOf returns the claim of a device, nil for none.
func (p *Provision) ClaimOf(ctx context.Context, by *model.Principal, device string) (claim *Claim, err error) {
	if err := p.Profiles.MayRead(by); err != nil {
		return nil, err
	}
	err = store.Read(ctx, p.parts.Store, func(tx store.Tx) (err error) {
		_, claim, err = p.claimOf(tx, by.TenantID, device)
		return err
	})
	return claim, err
}

// claimOf returns the row id of a device, 0 for none, and its claim, nil for none.
func (p *Provision) claimOf(tx store.Tx, tenant int64, device string) (id int64, claim *Claim, err error) {
	ids, err := store.IDs(tx, "devices", tenant, []string{device})
	if id = ids[device]; err != nil || id == 0 {
		return 0, nil, err
	}
	if claim, err = p.claims.First(tx, tenant, store.Eq("device_id", id)); claim != nil {
		claim.device = device
	}
	return id, claim, err
}

// ClaimInitiate opens the claim of a device.
type ClaimInitiate struct {
	Device    string
	Secret    string
	ExpiresAt *model.Micros
}

// InitiateClaim opens the claim of a device, again where there was one, with a new secret. The ownership that an earlier claim has
// made ends.
func (p *Provision) InitiateClaim(ctx context.Context, by *model.Principal, q ClaimInitiate) (claim *Claim, err error) {
	if err := p.Profiles.MayWrite(by); err != nil {
		return nil, err
	}
	hash, err := p.hash(ctx, "claimSecret", q.Secret)
	if err != nil {
		return nil, err
	}
	err = p.parts.Writer.Mutate(ctx, by, func(c *store.Change) error {
		var device int64
		if device, claim, err = p.claimOf(c, by.TenantID, q.Device); err != nil {
			return err
		}
		if device == 0 {
			return model.Invalid("deviceToken", "%.128q does not exist", q.Device)
		}
		fresh := claim == nil
		if fresh {
			claim = &Claim{Row: store.Row{TenantID: by.TenantID}, DeviceID: device, device: q.Device}
		} else if err := p.disown(c, claim); err != nil {
			return err
		}
		claim.Status, claim.SecretHash, claim.Failures, claim.ExpiresAt = ClaimOpen, hash, 0, q.ExpiresAt
		claim.ClaimedAt, claim.CustomerID, claim.RelationshipID = nil, nil, nil
		if fresh {
			return p.claims.Insert(c, claim)
		}
		return p.claims.Save(c, claim, "status", "secret_hash", "failures", "expires_at", "claimed_at", "customer_id", "relationship_id")
	})
	if err != nil {
		return nil, err
	}
	return claim, nil
}

// disown removes the relationship that a claim has made, where it still exists.
func (p *Provision) disown(c *store.Change, claim *Claim) error {
	if claim.RelationshipID == nil {
		return nil
	}
	kind := p.parts.Registry.Relationships
	r, err := kind.Table.GetByID(c, claim.TenantID, *claim.RelationshipID)
	if err != nil || r == nil {
		return err
	}
	_, err = kind.Remove(c, r.Token)
	return err
}

// ClaimRequest claims a device for a customer.
type ClaimRequest struct {
	Device           string `gql:"deviceToken"`
	Secret           string `gql:"claimSecret"`
	Customer         string `gql:"customerToken"`
	RelationshipType string `gql:"relationshipType"`
}

// errClaim is the one refusal of a claim: nothing shows whether the device exists, has a claim, or which secret it has.
func errClaim() error {
	return model.Invalid("claimSecret", "opens no claim of this device")
}

// ClaimDevice relates a device to the customer, with a relationship of the type, when the device has an open claim with the secret.
// Customer and type are looked at first, so that what is refused of them says nothing about the claim.
func (p *Provision) ClaimDevice(ctx context.Context, by *model.Principal, q ClaimRequest) (*registry.Relationship, error) {
	if err := p.Profiles.MayWrite(by); err != nil {
		return nil, err
	}
	var claim *Claim
	if err := store.Read(ctx, p.parts.Store, func(tx store.Tx) (err error) {
		if _, err = p.references(tx, by.TenantID, q); err != nil {
			return err
		}
		_, claim, err = p.claimOf(tx, by.TenantID, q.Device)
		return err
	}); err != nil {
		return nil, err
	}
	encoded := ""
	if claim != nil {
		encoded = claim.SecretHash
	}
	ok, _, err := p.parts.Hasher.Verify(ctx, auth.LaneAPI, encoded, q.Secret)
	if err != nil {
		return nil, &model.Error{Code: model.CodeUnavailable, Err: err, Field: "claimSecret", Message: "unavailable: the claimSecret could not be checked, send it again"}
	}
	a := claimAttempt{Provision: p, request: q, hash: encoded, right: ok}
	if err := p.parts.Writer.Mutate(ctx, by, a.run); err != nil {
		return nil, err
	}
	p.m.claims.WithLabelValues(a.outcome).Inc()
	if a.made == nil {
		return nil, errClaim()
	}
	return a.made, nil
}

// references finds the customer, and refuses one or a type that does not exist.
func (p *Provision) references(tx store.Tx, tenant int64, q ClaimRequest) (customer int64, err error) {
	ids, err := store.IDs(tx, "customers", tenant, []string{q.Customer})
	switch {
	case err != nil:
		return 0, err
	case ids[q.Customer] == 0:
		return 0, model.Invalid("customerToken", "%.128q does not exist", q.Customer)
	}
	types, err := store.IDs(tx, "entity_relationship_types", tenant, []string{q.RelationshipType})
	if err == nil && types[q.RelationshipType] == 0 && !registry.BuiltInRelationshipType(q.RelationshipType) {
		err = model.Invalid("relationshipType", "%.128q does not exist", q.RelationshipType)
	}
	return ids[q.Customer], err
}

// claimAttempt is an attempt in its transaction.
type claimAttempt struct {
	*Provision
	request ClaimRequest
	hash    string // the one that the secret was compared with
	right   bool   // it was the secret of that

	made    *registry.Relationship // nil: refused
	outcome string
}

func (a *claimAttempt) run(c *store.Change) error {
	a.made, a.outcome = nil, claimRefused
	_, claim, err := a.claimOf(c, c.By.TenantID, a.request.Device)
	switch {
	case err != nil:
		return err
	case claim == nil || claim.Status != ClaimOpen || claim.ExpiresAt != nil && *claim.ExpiresAt <= c.At || claim.SecretHash != a.hash:
		return nil
	case !a.right:
		return a.fail(c, claim)
	}
	return a.take(c, claim)
}

// fail counts a wrong secret.
func (a *claimAttempt) fail(c *store.Change, claim *Claim) error {
	columns := []string{"failures"}
	if claim.Failures++; claim.Failures >= maxFailures {
		claim.Status, a.outcome = ClaimCanceled, claimClosed
		columns = append(columns, "status")
	}
	return a.claims.Save(c, claim, columns...)
}

// take makes the relationship.
func (a *claimAttempt) take(c *store.Change, claim *Claim) error {
	r, q := a.parts.Registry, a.request
	customer, err := a.references(c, c.By.TenantID, q)
	if err != nil {
		return err
	}
	token, err := r.Credentials.NewUUID()
	if err != nil {
		return err
	}
	if a.made, err = r.Relationships.Create(c.Context(), c.By, store.Patch{"token": token, "sourceType": registry.EntityDevice, "source": q.Device,
		"targetType": registry.EntityCustomer, "target": q.Customer, "relationshipType": q.RelationshipType}); err != nil {
		return err
	}
	claim.Status, claim.ClaimedAt, claim.CustomerID, claim.RelationshipID = ClaimClaimed, new(c.At), &customer, new(a.made.ID)
	a.outcome = claimed
	return a.claims.Save(c, claim, "status", "claimed_at", "customer_id", "relationship_id")
}

// CancelClaim closes the open claim of a device; false when it has none.
func (p *Provision) CancelClaim(ctx context.Context, by *model.Principal, device string) (canceled bool, err error) {
	if err := p.Profiles.MayWrite(by); err != nil {
		return false, err
	}
	err = p.parts.Writer.Mutate(ctx, by, func(c *store.Change) error {
		canceled = false
		_, claim, err := p.claimOf(c, by.TenantID, device)
		if err != nil || claim == nil || claim.Status != ClaimOpen {
			return err
		}
		canceled, claim.Status = true, ClaimCanceled
		return p.claims.Save(c, claim, "status")
	})
	return canceled && err == nil, err
}
