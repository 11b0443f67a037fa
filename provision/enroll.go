package provision

import (
	"context"
	"errors"
	"strconv"

	"weir/model"
	"weir/registry"
	"weir/store"
)

// enroll makes what a device needs, or returns the credential that it has got and not used: the answer may have been lost.
func (p *Provision) enroll(ctx context.Context, g *Grant, q *Request) *Reply {
	if wait := p.keys.take(g.key); wait > 0 {
		return replyOf(p.failed(tooMany(outcomeKeyRate, wait)))
	}
	by := model.Service("provisioning", g.Tenant, g.tenantID, model.DeviceRead, model.DeviceWrite)
	secret, credential, err := p.parts.Registry.Credentials.Mint(ctx, by, q.Device, store.Patch{"unused": true})
	if err != nil {
		return replyOf(p.failed(err))
	}
	e := enrolment{Provision: p, request: q, grant: g, secret: secret, credential: credential}
	if err := p.parts.Writer.Mutate(ctx, by, e.run); err != nil {
		return replyOf(p.failed(err))
	}
	p.m.count(e.outcome)
	return &Reply{Status: 200, Answer: &e.answer}
}

// enrolment is a request in its transaction. Two of one device come one after the other: the second finds what the first has made.
type enrolment struct {
	*Provision
	request    *Request
	grant      *Grant
	secret     string
	credential store.Patch // of the secret, as it would be made

	answer  Answer
	outcome string
}

func (e *enrolment) run(c *store.Change) error {
	f, err := e.Profiles.Table.GetByID(c, c.By.TenantID, e.grant.profile)
	if err != nil {
		return err
	}
	if err := e.usable(e.grant, f); err != nil {
		return err
	}
	by := *c.By
	by.Subject += "/" + f.Token // in the journal
	c.By = &by
	e.answer = Answer{Tenant: c.By.Tenant, Device: e.request.Device, CredentialType: registry.AccessToken, CredentialID: e.secret}
	e.outcome = outcomeMinted
	d, err := e.parts.Registry.Devices.Table.Get(c, c.By.TenantID, e.request.Device)
	switch {
	case err != nil:
		return err
	case d == nil && f.Strategy != AllowNew:
		return refused(outcomeStrategy)
	case d == nil:
		e.answer.Created, e.outcome = true, outcomeCreated
		return e.create(c, f)
	case d.TypeID != f.TypeID:
		return &Reply{Status: 409, Text: "the device exists and has another type", outcome: outcomeType}
	}
	return e.existing(c, d)
}

// create makes the device with its credential.
func (e *enrolment) create(c *store.Change, f *Profile) error {
	r := e.parts.Registry
	if err := r.Devices.Admit(c, 1); err != nil {
		return err
	}
	types, err := store.Tokens(c, "device_types", []int64{f.TypeID})
	if err != nil {
		return err
	}
	patch := store.Patch{"token": e.request.Device, "deviceTypeToken": types[f.TypeID]}
	if e.request.Name != nil {
		patch["name"] = *e.request.Name
	}
	if e.request.Metadata != nil {
		patch["metadata"] = string(e.request.Metadata)
	}
	if _, err := r.Devices.Make(c, patch); err != nil {
		return err
	}
	return e.mint(c)
}

// existing gives a device that exists its credential: a new one where it has none, or the one that it was given and has not used. A
// device with any other credential is in use, and an operator has to delete that first.
func (e *enrolment) existing(c *store.Change, d *registry.Device) error {
	r := e.parts.Registry
	have, err := r.Credentials.Table.By(c, c.By.TenantID, "device_id", d.ID)
	if err != nil {
		return err
	}
	for _, one := range have {
		if !one.Unused || !one.Enabled || one.ExpiresAt != nil && *one.ExpiresAt <= c.At || one.Type != registry.AccessToken {
			continue
		}
		if e.answer.CredentialID, err = r.Credentials.ID(one); err != nil {
			return err
		}
		e.outcome = outcomeRepeated
		return c.Audit(store.AuditEvent{TenantID: one.TenantID, Category: store.AuditAuth, Operation: store.AuditRefresh, Table: "device_credentials",
			Key: strconv.FormatInt(one.ID, 10), Label: one.Token})
	}
	if len(have) > 0 {
		return refused(outcomeUsed)
	}
	return e.mint(c)
}

func (e *enrolment) mint(c *store.Change) error {
	err := e.parts.Registry.Credentials.Admit(c, 1)
	if err == nil {
		_, err = e.parts.Registry.Credentials.Make(c, e.credential)
	}
	return err
}

// Used notes the first use of a credential: from then on no request gets it again.
func (p *Provision) Used(ctx context.Context, credentialID int64) error {
	if credentialID == 0 {
		return errors.New("provision: no credential")
	}
	return p.parts.Writer.Mutate(ctx, nil, func(c *store.Change) error { return store.UseCredential(c, credentialID) })
}
