package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/model"
	"weir/store"
)

// work is one apply in its transaction. The verbs are called with the context of the change, and so are a part of it.
type work struct {
	ctx    context.Context
	by     *model.Principal
	site   *Site
	parts  *Parts
	format *Format
	doc    *Document
	opt    Options
	plan   *Plan
	pw     *passwords
	dry    bool      // a plan
	only   *selected // what is exported; nil: everything

	refusals []*model.Error  // so far, each with its position
	lost     map[string]bool // entities that were refused, by name: what refers to them is not refused for it
}

// maxRefusals is how many refusals are reported at once.
const maxRefusals = 50

// refuse keeps a refusal of an entity, so that the others are reported with it. Other errors end the work.
func (w *work) refuse(e *Entity, err error) error {
	refusal, ok := errors.AsType[*model.Error](at(e, err))
	if !ok {
		return err
	}
	if w.refusals = append(w.refusals, refusal); len(w.refusals) >= maxRefusals {
		return w.refused()
	}
	return nil
}

// refused is one refusal of all that were kept, nil for none.
func (w *work) refused() error {
	switch len(w.refusals) {
	case 0:
		return nil
	case 1:
		return w.refusals[0]
	}
	all := *w.refusals[0]
	lines := make([]string, len(w.refusals))
	for i, e := range w.refusals {
		lines[i] = e.Message
	}
	all.Message, all.All = strings.Join(lines, "\n"), w.refusals
	return &all
}

// lose notes that an entity was refused. scope is its tenant, "" for the instance.
func (w *work) lose(scope, list, name string) { w.lost[scope+"/"+list+"/"+name] = true }

func (w *work) isLost(scope, list, name string) bool {
	return w.lost[scope+"/"+list+"/"+name] || w.lost["/"+list+"/"+name]
}

func (s *Site) work(c *store.Change, by *model.Principal, d *Document, o Options, pw *passwords) *work {
	return &work{ctx: c.Context(), by: by, site: s, parts: &s.parts, format: s.format, doc: d, opt: o, plan: &Plan{}, pw: pw, lost: map[string]bool{}}
}

// all is the order of things: what is referred to comes before what refers to it. What is deleted and holds something that
// must be unique (an external id, the secret of a credential) goes first, so that another may take it; the rest goes last,
// in reverse order.
func (w *work) all() error {
	top := w.top()
	if err := top.put(); err != nil {
		return err
	}
	var inside []*level
	for _, e := range w.doc.Lists[w.format.tenant.list] {
		if w.isLost("", w.format.tenant.list, e.Name) {
			continue
		}
		t, err := w.enter(e)
		if err != nil {
			return at(e, err)
		}
		inside = append(inside, t)
		if err := t.all(); err != nil {
			return err
		}
	}
	if err := w.putIdentities(); err != nil {
		return err
	}
	if err := w.refused(); err != nil || !w.looksForMore() {
		return err
	}
	for _, t := range slices.Backward(inside) {
		if err := t.prune(false); err != nil {
			return err
		}
	}
	if w.opt.Parts {
		return nil
	}
	if err := w.pruneIdentities(); err != nil {
		return err
	}
	return top.prune(false)
}

// looksForMore reports whether what is not declared is looked for: to be deleted, or in a plan to be shown.
func (w *work) looksForMore() bool { return w.opt.Prune || w.opt.Parts || w.dry }

// all is what comes first in a tenant.
func (l *level) all() error {
	if l.looksForMore() {
		if err := l.prune(true); err != nil {
			return err
		}
	}
	if err := l.put(); err != nil {
		return err
	}
	if err := l.publish(); err != nil || !l.dry {
		return err
	}
	return l.advise()
}

// at gives a refusal the position of what it refuses: of the field that it names, where that is declared, or else of the
// entity.
func at(e *Entity, err error) error {
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok {
		return err
	}
	name := cmp.Or(refusal.Field, refusal.Kind)
	position := e.field(name)
	if name == "roleTokens" { // the verbs' name of the roles
		position = e.field("roles")
		if _, ok := e.Fields["systemRoles"]; ok {
			position = e.field("systemRoles")
		}
	}
	placed := *refusal
	path, message := position.Path, refusal.Message
	if refusal.Reason != model.ReasonNotUnique && strings.HasSuffix(path, "."+name) { // the path names the field already
		message = refusal.Text()
	}
	if path != "" {
		path += ": "
	}
	placed.Message = fmt.Sprintf("%s: %s%s", position, path, message)
	if placed.Hint == "" {
		placed.Hint = hintOf(e, refusal)
	}
	return &placed
}

// hintOf says how to give a secret that the file leaves out.
func hintOf(e *Entity, refusal *model.Error) string {
	field := refusal.Field
	_, given := e.Secrets[field]
	_, named := e.Fields[field]
	if !given && !named && (field == "credentialId" || field == "credentialValue" || field == "provisionSecret" || field == "password") {
		return fmt.Sprintf("it is new: give its secret with %s_file or %s_env", field, field)
	}
	if !given && !named && field == keySecret {
		return "give it with secret_file or secret_env"
	}
	return "nothing was changed"
}
