package site

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/auth"
	"weir/govern"
	"weir/model"
	"weir/registry"
	"weir/store"
)

// work is one apply in its transaction.
type work struct {
	ctx   context.Context
	by    *model.Principal
	kinds *kinds
	doc   *Document
	opt   Options
	plan  *Plan
	pw    *passwords

	govern   *govern.Govern
	auth     *auth.Auth
	registry *registry.Registry
	tenants  tenants
}

// work is what one apply does in a change. The verbs are called with the context of the change, and so are a part of it.
func (s *Site) work(c *store.Change, by *model.Principal, d *Document, o Options, pw *passwords) *work {
	p := s.parts
	w := &work{ctx: c.Context(), by: by, kinds: s.kinds, doc: d, opt: o, plan: &Plan{}, pw: pw, tenants: tenants{}}
	w.govern, w.registry = p.Govern.In(c), p.Registry
	w.auth = p.Auth.In(c, w.tenants, pw.Hash)
	return w
}

// all is the order of things: what is referred to comes before what refers to it. What is deleted and holds something that
// must be unique (an external id, the secret of a credential) goes first, so that another may take it; the rest goes last,
// in reverse order.
func (w *work) all() error {
	for _, step := range []func() error{w.loadTenants, w.putTiers, w.putRoles, w.putTenants} {
		if err := step(); err != nil {
			return err
		}
	}
	var inside []*inTenant
	for _, e := range w.doc.Lists["tenants"] {
		t := w.enter(e)
		inside = append(inside, t)
		if err := t.all(); err != nil {
			return err
		}
	}
	if err := w.putIdentities(); err != nil {
		return err
	}
	if !w.opt.Prune {
		return nil
	}
	for _, t := range slices.Backward(inside) {
		if err := t.pruneRest(); err != nil {
			return err
		}
	}
	return w.pruneInstance()
}

// at gives a refusal the place of what it refuses: of the field that its message begins with, where that is declared.
func at(e *Entity, err error) error {
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok {
		return err
	}
	name, _, _ := strings.Cut(refusal.Message, ":")
	name, _, _ = strings.Cut(name, " ")
	if refusal.Reason == model.ReasonNotUnique { // "conflict: externalId of a device must be unique, …"
		rest := strings.TrimPrefix(refusal.Message, "conflict: ")
		name, _, _ = strings.Cut(rest, " ")
	}
	place := e.field(name)
	if name == "roleTokens" { // what the verbs call the roles
		place = e.field("roles")
		if _, ok := e.Fields["systemRoles"]; ok {
			place = e.field("systemRoles")
		}
	}
	told := *refusal
	path, message := place.Path, refusal.Message
	if strings.HasSuffix(path, "."+name) { // it says the field already
		message = strings.TrimPrefix(message, name+": ")
	}
	if path != "" {
		path += ": "
	}
	told.Message = fmt.Sprintf("%s: %s%s", place, path, message)
	if told.Hint == "" {
		told.Hint = hintOf(name, refusal)
	}
	return &told
}

func hintOf(field string, refusal *model.Error) string {
	if strings.HasSuffix(refusal.Message, "is required") && (field == "credentialId" || field == "credentialValue" || field == "password") {
		return fmt.Sprintf("it is new: give its secret with %s_file or %s_env", field, field)
	}
	return "nothing was changed"
}
