package entity

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/model"
	"weir/store"
)

// Versions makes the rows of a kind drafts: a publish freezes what a draft and its parts say as the next version, a body of
// type S that never changes. Versions live in a table of their own, with the columns id, tenant_id, the row's id (Owner),
// version, label, description, published_at, published_by and snapshot.
type Versions[T, S any] struct {
	Kind  string // in messages: "device profile version"
	Table string
	Owner string // column that holds the id of the draft's row
	// Max is how many versions of a row are kept, 0 for all: a publish beyond it removes the oldest that are not effective.
	Max int64
	// Keeps names versions of a row that a publish does not remove, since something refers to them; nil: none.
	Keeps func(tx store.Tx, row *T) ([]int64, error)
	// Pruned is called after the commit with how many a publish removed; nil: not at all.
	Pruned func(n int64)

	// Versioned refuses the publish of a row that has no versions; nil: every row has.
	Versioned func(row *T) error
	// Freeze says what a publish of the draft would freeze.
	Freeze func(tx store.Tx, row *T) (*S, error)
	// Validate refuses a body, or has remarks on it. It runs outside of the transaction, since it may take longer than the one writer may be
	// held.
	Validate func(ctx context.Context, by *model.Principal, row *T, body *S) ([]Remark, error)
	// Prepare does before a version becomes the effective one what takes longer than the one writer may be held; it must be harmless where
	// the version does not become it. done is called after the change. Within a change of others it has no more time than that.
	Prepare func(ctx context.Context, by *model.Principal, row *T, body *S) (done func(), err error)
	Encode  func(*S) (string, error)
	Decode  func(string) (*S, error)

	// Active is the field, and ActiveColumn its column, that holds which version is the effective one: a publish and a
	// rollback move it. Without it the newest version is, and a rollback makes the draft what a version says, see Restore.
	Active       func(row *T) **int64
	ActiveColumn string
	// Restore sets the fields of the draft to what a version says and returns their columns.
	Restore func(row *T, body *S) (columns []string)
	// Activate runs in the transaction that makes a version the effective one, before the row says so: it may refuse.
	Activate func(c *store.Change, row *T, body *S, version int64) error
	// Views names the metadata changes of that.
	Views func(c *store.Change, row *T, body *S, version int64) []View
	// Done is called after each publish, in a change of others once that is committed.
	Done func(err error)

	k *Kind[T]
}

// Versioning is a *Versions[T, S] of any S.
type Versioning[T any] interface {
	of(k *Kind[T])
	publish(ctx context.Context, by *model.Principal, token string, label, description *string, expect []Expect) (*Version, error)
	prepareVersion(ctx context.Context, tenant int64, by *model.Principal, token string, version int64) (done func(), err error)
	rollback(c *store.Change, row *T, version int64) (*T, error)
	unpublished(tx store.Tx, row *T) (differs bool, next int64, err error)
	list(tx store.Tx, tenant int64, token string, limit, offset int64) ([]*Version, error)
	removeAll(c *store.Change, row *T) error
	store.Counter
}

// Version is what is shown of a published version.
type Version struct {
	ID          int64
	Owner       int64
	Version     int64        `gql:"version"`
	Label       *string      `gql:"label"`
	Description *string      `gql:"description"`
	PublishedAt model.Micros `gql:"publishedAt"`
	PublishedBy *string      `gql:"publishedBy"`
	// Remarks are what the validator has to say besides; of the answer of a publish only.
	Remarks []Remark
}

// Remark is an advisory finding of the validator on a part of a draft.
type Remark struct {
	Token   string   `gql:"token"` // of the part
	Code    string   `gql:"code"`
	Params  []string `gql:"params"`
	Message string   `gql:"message"`
}

// AnyVersions are the verbs of a kind with versions.
type AnyVersions interface {
	// Publish freezes the draft as its next version and makes that the effective one. The validator is asked first, outside
	// of the transaction, which then makes sure that the draft is still the one that was validated. A refusal writes nothing.
	Publish(ctx context.Context, by *model.Principal, token string, label, description *string, expect ...Expect) (*Version, error)
	// Rollback makes an existing version the effective one, or the draft what it says. It returns the row.
	Rollback(ctx context.Context, by *model.Principal, token string, version int64, expect ...Expect) (any, error)
	// History returns published versions, newest first, at most limit of them after the first offset. A row that does not
	// exist has none.
	History(ctx context.Context, by *model.Principal, token string, limit, offset int64) ([]*Version, error)
	// Unpublished reports whether a publish would freeze something else than the effective version, and the number of the
	// version that it would make.
	Unpublished(ctx context.Context, by *model.Principal, token string) (differs bool, next int64, err error)
}

// Publish freezes the draft of a row, see AnyVersions.
func (k *Kind[T]) Publish(ctx context.Context, by *model.Principal, token string, label, description *string, expect ...Expect) (*Version, error) {
	if err := k.MayWrite(by); err != nil {
		return nil, err
	}
	return k.desc.Versions.publish(ctx, by, token, label, description, expect)
}

// Rollback goes back to a version, see AnyVersions.
func (k *Kind[T]) Rollback(ctx context.Context, by *model.Principal, token string, version int64, expect ...Expect) (*T, error) {
	if err := k.MayWrite(by); err != nil {
		return nil, err
	}
	tenant, _ := k.Rows.tenant(by)
	done, err := k.desc.Versions.prepareVersion(ctx, tenant, by, token, version)
	if err != nil {
		return nil, err
	}
	defer done()
	return k.change(ctx, by, func(c *store.Change) (*T, error) {
		row, err := k.Must(c, k.tenantIn(c), token)
		if err != nil {
			return nil, err
		}
		if err := k.expected(row, expect); err != nil {
			return nil, err
		}
		return k.desc.Versions.rollback(c, row, version)
	})
}

// History lists the versions of a row, see AnyVersions.
func (k *Kind[T]) History(ctx context.Context, by *model.Principal, token string, limit, offset int64) (vs []*Version, err error) {
	if err := k.MayRead(by); err != nil {
		return nil, err
	}
	tenant, _ := k.Rows.tenant(by)
	err = store.Read(ctx, k.Rows.store, func(tx store.Tx) (err error) {
		vs, err = k.desc.Versions.list(tx, tenant, token, limit, offset)
		return err
	})
	return vs, err
}

// Unpublished compares the draft with the effective version, see AnyVersions.
func (k *Kind[T]) Unpublished(ctx context.Context, by *model.Principal, token string) (differs bool, next int64, err error) {
	if err := k.MayRead(by); err != nil {
		return false, 0, err
	}
	tenant, _ := k.Rows.tenant(by)
	err = store.Read(ctx, k.Rows.store, func(tx store.Tx) error {
		row, err := k.Must(tx, tenant, token)
		if err != nil {
			return err
		}
		differs, next, err = k.desc.Versions.unpublished(tx, row)
		return err
	})
	return differs, next, err
}

func (v *Versions[T, S]) of(k *Kind[T]) { v.k = k }

// publishTries is how often a publish starts again because the draft was changed while it was validated.
const publishTries = 3

// errDraftMoved: the draft is not the one that was validated.
var errDraftMoved = errors.New("entity: the draft changed during the publish")

// Lengths of the texts of a version, in characters.
const (
	maxLabel       = 128
	maxDescription = 1024
)

func checkText(field string, s *string, limit int) error {
	if s != nil && utf8.RuneCountInString(*s) > limit {
		return model.Invalid(field, "is longer than %d characters", limit)
	}
	return nil
}

// draft is what a publish would freeze, as one snapshot of the store showed it.
type draft[T, S any] struct {
	row      *T
	body     *S // nil for a row that has no versions
	revision string
}

func (v *Versions[T, S]) publish(ctx context.Context, by *model.Principal, token string, label, description *string, expect []Expect) (*Version, error) {
	made, err := v.tryPublish(ctx, by, token, label, description, expect)
	switch {
	case v.Done == nil:
	case err != nil:
		v.Done(err)
	default:
		store.AfterCommit(ctx, func() { v.Done(nil) })
	}
	return made, err
}

func (v *Versions[T, S]) tryPublish(ctx context.Context, by *model.Principal, token string, label, description *string, expect []Expect) (*Version, error) {
	if err := cmp.Or(checkText("label", label, maxLabel), checkText("description", description, maxDescription)); err != nil {
		return nil, err
	}
	for range publishTries {
		d, err := v.readDraft(ctx, by, token)
		if err != nil {
			return nil, err
		}
		if err := v.k.expected(d.row, expect); err != nil {
			return nil, err
		}
		if d.body == nil {
			return nil, v.Versioned(d.row)
		}
		var remarks []Remark
		if v.Validate != nil {
			if remarks, err = v.Validate(ctx, by, d.row, d.body); err != nil {
				return nil, err
			}
		}
		done, err := v.prepare(ctx, by, d.row, d.body)
		if err != nil {
			return nil, err
		}
		made, err := v.freeze(ctx, by, d, label, description)
		done()
		if err == nil {
			made.Remarks = append([]Remark{}, remarks...)
		}
		if !errors.Is(err, errDraftMoved) {
			return made, err
		}
	}
	return nil, &model.Error{Code: model.CodeConflict, Reason: model.ReasonStaleWrite,
		Message: fmt.Sprintf("conflict: the draft of %s %q keeps changing, publish it again", v.k.info.Kind, token)}
}

func (v *Versions[T, S]) prepare(ctx context.Context, by *model.Principal, row *T, body *S) (done func(), err error) {
	if v.Prepare == nil {
		return func() {}, nil
	}
	return v.Prepare(ctx, by, row, body)
}

// prepareVersion prepares a version of a row. A row or version that does not exist is left to the change to refuse.
func (v *Versions[T, S]) prepareVersion(ctx context.Context, tenant int64, by *model.Principal, token string, version int64) (done func(), err error) {
	var row *T
	var body *S
	if v.Prepare != nil {
		err = store.Read(ctx, v.k.Rows.store, func(tx store.Tx) (err error) {
			if row, err = v.k.Table.Get(tx, tenant, token); err == nil && row != nil {
				body, err = v.Body(tx, v.k.Table.Head(row).ID, version)
			}
			return err
		})
	}
	if err != nil || body == nil {
		return func() {}, err
	}
	return v.prepare(ctx, by, row, body)
}

func (v *Versions[T, S]) readDraft(ctx context.Context, by *model.Principal, token string) (*draft[T, S], error) {
	var d draft[T, S]
	tenant, _ := v.k.Rows.tenant(by)
	err := store.Read(ctx, v.k.Rows.store, func(tx store.Tx) (err error) {
		if d.row, err = v.k.Must(tx, tenant, token); err != nil {
			return err
		}
		if d.revision, err = v.Revision(tx, d.row); err != nil {
			return err
		}
		if v.versioned(d.row) {
			d.body, err = v.Freeze(tx, d.row)
		}
		return err
	})
	return &d, err
}

// Revision names the state of a draft: row ids are never used twice and updated_at strictly increases, so that equal
// revisions are equal drafts.
func (v *Versions[T, S]) Revision(tx store.Tx, row *T) (string, error) {
	head := v.k.Table.Head(row)
	now, err := v.k.Table.GetByID(tx, head.TenantID, head.ID)
	if err != nil || now == nil {
		return "", err
	}
	var revision strings.Builder
	revision.WriteString(stamp(v.k.Table.Head(now)))
	for _, p := range v.k.links.parts {
		below, err := p.stampsBelow(tx, head.TenantID, p.column, head.ID)
		if err != nil {
			return "", err
		}
		revision.WriteString("/ " + below)
	}
	return revision.String(), nil
}

func stamp(head *store.Row) string { return fmt.Sprintf("%d.%d ", head.ID, head.UpdatedAt) }

// stampsBelow names the state of the rows that are parts of a row.
func (e *erased[T]) stampsBelow(tx store.Tx, tenant int64, column string, whole int64) (string, error) {
	rows, err := e.kind().Table.By(tx, tenant, column, whole)
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(stamp(e.kind().Table.Head(row)))
	}
	return b.String(), err
}

// freeze writes the validated draft as a version and makes it the effective one.
func (v *Versions[T, S]) freeze(ctx context.Context, by *model.Principal, d *draft[T, S], label, description *string) (made *Version, err error) {
	err = v.k.writer.Mutate(ctx, by, func(c *store.Change) error {
		now, err := v.Revision(c, d.row)
		if err != nil {
			return err
		}
		if now != d.revision {
			return errDraftMoved
		}
		row := *d.row
		if err := v.k.guard(c, &row); err != nil {
			return err
		}
		if err := v.prune(c, &row); err != nil {
			return err
		}
		if made, err = v.insert(c, &row, d.body, label, description); err != nil {
			return err
		}
		return v.activate(c, &row, d.body, made.Version)
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// activate makes a version the effective one, from the offset of the change on.
func (v *Versions[T, S]) activate(c *store.Change, row *T, body *S, version int64) error {
	if v.Activate != nil {
		if err := v.Activate(c, row, body, version); err != nil {
			return err
		}
	}
	if v.Active != nil {
		*v.Active(row) = &version
		if err := v.k.Table.Save(c, row, v.ActiveColumn); err != nil {
			return err
		}
	}
	if v.Views == nil {
		return nil
	}
	return SetViews(c, v.Views(c, row, body, version)...)
}

func (v *Versions[T, S]) rollback(c *store.Change, row *T, version int64) (*T, error) {
	if err := v.k.guard(c, row); err != nil {
		return nil, err
	}
	body, err := v.Body(c, v.k.Table.Head(row).ID, version)
	switch {
	case err != nil:
		return nil, err
	case body == nil:
		return nil, model.NotFound(v.Kind, v.name(row, version))
	case v.Active == nil:
		old := *row
		if err := v.k.Table.Save(c, row, v.Restore(row, body)...); err != nil {
			return nil, err
		}
		return row, v.k.after(c, &old, row)
	case v.active(row) == version:
		return row, nil
	}
	return row, v.activate(c, row, body, version)
}

// versioned reports whether a row has versions.
func (v *Versions[T, S]) versioned(row *T) bool { return v.Versioned == nil || v.Versioned(row) == nil }

// active is the effective version of a row, 0 for none.
func (v *Versions[T, S]) active(row *T) int64 {
	if n := *v.Active(row); n != nil {
		return *n
	}
	return 0
}

func (v *Versions[T, S]) unpublished(tx store.Tx, row *T) (differs bool, next int64, err error) {
	if !v.versioned(row) {
		return false, 0, nil
	}
	frozen, err := v.Freeze(tx, row)
	if err != nil {
		return false, 0, err
	}
	id := v.k.Table.Head(row).ID
	if next, err = v.next(tx, id); err != nil {
		return false, 0, err
	}
	effective := next - 1
	if v.Active != nil {
		effective = v.active(row)
	}
	body, err := v.Body(tx, id, effective)
	if err != nil || body == nil {
		return true, next, err
	}
	now, err := v.Encode(frozen)
	if err != nil {
		return false, 0, err
	}
	was, err := v.Encode(body)
	return now != was, next, err
}

func (v *Versions[T, S]) name(row *T, version int64) string {
	return fmt.Sprintf("%s@%d", v.k.Table.Token(row), version)
}

// next is the number that the next publish gets.
func (v *Versions[T, S]) next(tx store.Tx, owner int64) (n int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(version), 0) + 1 FROM `+v.Table+` WHERE `+v.Owner+` = ?`, owner).Scan(&n)
	return n, err
}

// insert freezes body as the next version of row.
func (v *Versions[T, S]) insert(c *store.Change, row *T, body *S, label, description *string) (*Version, error) {
	text, err := v.Encode(body)
	if err != nil {
		return nil, err
	}
	head := v.k.Table.Head(row)
	made := &Version{Owner: head.ID, Label: label, Description: description, PublishedAt: c.At, PublishedBy: new(c.Actor())}
	if made.Version, err = v.next(c, head.ID); err != nil {
		return nil, err
	}
	size := store.SizeOf(label, description, made.PublishedBy, text)
	if err := cmp.Or(c.Admit(head.TenantID, size), c.Wrote(size)); err != nil {
		return nil, err
	}
	made.ID, err = c.Insert(`INSERT INTO `+v.Table+` (tenant_id, `+v.Owner+`, version, label, description, published_at, published_by, snapshot)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		head.TenantID, head.ID, made.Version, made.Label, made.Description, int64(made.PublishedAt), made.PublishedBy, text)
	if err != nil {
		return nil, err
	}
	return made, errors.Join(c.Grown(head.TenantID, size), v.audit(c, store.AuditCreate, row, made.ID, made.Version))
}

func (v *Versions[T, S]) audit(c *store.Change, operation string, row *T, id, version int64) error {
	return c.Audit(store.AuditEvent{TenantID: v.k.Table.Head(row).TenantID, Category: store.AuditMutation, Operation: operation,
		Table: v.Table, Key: strconv.FormatInt(id, 10), Label: v.name(row, version), Rows: 1})
}

func (v *Versions[T, S]) list(tx store.Tx, tenant int64, token string, limit, offset int64) ([]*Version, error) {
	versions := []*Version{}
	row, err := v.k.Table.Get(tx, tenant, token)
	if err != nil || row == nil {
		return versions, err
	}
	return v.scan(tx, versions, v.Owner+` = ? ORDER BY version DESC LIMIT ? OFFSET ?`, v.k.Table.Head(row).ID, limit, offset)
}

// scan appends the versions that a condition names.
func (v *Versions[T, S]) scan(tx store.Tx, to []*Version, condition string, args ...any) ([]*Version, error) {
	rows, err := tx.Query(`SELECT id, `+v.Owner+`, version, label, description, published_at, published_by FROM `+v.Table+`
		WHERE `+condition, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		n := new(Version)
		if err := rows.Scan(&n.ID, &n.Owner, &n.Version, &n.Label, &n.Description, &n.PublishedAt, &n.PublishedBy); err != nil {
			return nil, err
		}
		to = append(to, n)
	}
	return to, rows.Err()
}

// Of returns the versions of each of some rows by their row ids, newest first.
func (v *Versions[T, S]) Of(tx store.Tx, tenant int64, owners []int64) (map[int64][]*Version, error) {
	of := make(map[int64][]*Version, len(owners))
	for some := range slices.Chunk(owners, perStatement) {
		condition, args := v.among(tenant, v.Owner, some)
		versions, err := v.scan(tx, nil, condition+` ORDER BY version DESC`, args...)
		if err != nil {
			return nil, err
		}
		for _, n := range versions {
			of[n.Owner] = append(of[n.Owner], n)
		}
	}
	return of, nil
}

// Bodies returns what versions froze, by the row ids of the versions. Those that do not exist are left out.
func (v *Versions[T, S]) Bodies(tx store.Tx, tenant int64, ids []int64) (map[int64]*S, error) {
	bodies := make(map[int64]*S, len(ids))
	for some := range slices.Chunk(ids, perStatement) {
		if err := v.addBodies(tx, bodies, tenant, some); err != nil {
			return nil, err
		}
	}
	return bodies, nil
}

func (v *Versions[T, S]) addBodies(tx store.Tx, to map[int64]*S, tenant int64, ids []int64) error {
	condition, args := v.among(tenant, "id", ids)
	rows, err := tx.Query(`SELECT id, `+v.Owner+`, version, snapshot FROM `+v.Table+` WHERE `+condition, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, owner, version int64
		var text string
		if err := rows.Scan(&id, &owner, &version, &text); err != nil {
			return err
		}
		if to[id], err = v.decode(text, owner, version); err != nil {
			return err
		}
	}
	return rows.Err()
}

// perStatement is how many values one statement names.
const perStatement = 256

// among is the condition that a column of a tenant's versions holds one of some values.
func (v *Versions[T, S]) among(tenant int64, column string, values []int64) (condition string, args []any) {
	args = append(make([]any, 0, len(values)+1), tenant)
	for _, value := range values {
		args = append(args, value)
	}
	return `tenant_id = ? AND ` + column + ` IN (?` + strings.Repeat(", ?", len(values)-1) + `)`, args
}

// Body returns what a version of a row froze, nil when there is no such version.
func (v *Versions[T, S]) Body(tx store.Tx, owner, version int64) (*S, error) {
	var text string
	err := tx.QueryRow(`SELECT snapshot FROM `+v.Table+` WHERE `+v.Owner+` = ? AND version = ?`, owner, version).Scan(&text)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return v.decode(text, owner, version)
}

// Newest returns the number of the newest version of a row and what it froze, 0 and nil for a row that was never published.
func (v *Versions[T, S]) Newest(tx store.Tx, owner int64) (version int64, body *S, err error) {
	var text string
	err = tx.QueryRow(`SELECT version, snapshot FROM `+v.Table+` WHERE `+v.Owner+` = ? ORDER BY version DESC LIMIT 1`, owner).Scan(&version, &text)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil, nil
	case err != nil:
		return 0, nil, err
	}
	body, err = v.decode(text, owner, version)
	return version, body, err
}

func (v *Versions[T, S]) decode(text string, owner, version int64) (*S, error) {
	body, err := v.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s of row %d, version %d: %w", store.ErrDamaged, v.Table, owner, version, err)
	}
	return body, nil
}

// Effective returns the effective version of each row of a tenant that has one, by the row's id.
func (v *Versions[T, S]) Effective(tx store.Tx, tenant int64) (map[int64]*S, error) {
	newest := `(SELECT max(n.version) FROM ` + v.Table + ` n WHERE n.` + v.Owner + ` = o.id)`
	if v.Active != nil {
		newest = "o." + v.ActiveColumn
	}
	rows, err := tx.Query(`SELECT o.id, v.version, v.snapshot FROM `+v.k.info.Table+` o
		JOIN `+v.Table+` v ON v.`+v.Owner+` = o.id AND v.version = `+newest+` WHERE o.tenant_id = ?`, tenant)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	effective := map[int64]*S{}
	for rows.Next() {
		var owner, version int64
		var text string
		if err := rows.Scan(&owner, &version, &text); err != nil {
			return nil, err
		}
		if effective[owner], err = v.decode(text, owner, version); err != nil {
			return nil, err
		}
	}
	return effective, rows.Err()
}

// removeAll removes all versions of a row that goes.
func (v *Versions[T, S]) removeAll(c *store.Change, row *T) error { return v.removeSome(c, row, "") }

// prune removes the oldest versions of a row, as far as there are more than Max with the one that is made next. The effective
// version stays, and so does the newest, which names the next number, and what Keeps names.
func (v *Versions[T, S]) prune(c *store.Change, row *T) error {
	if v.Max == 0 {
		return nil
	}
	id, effective := v.k.Table.Head(row).ID, int64(0)
	if v.Active != nil {
		effective = v.active(row)
	}
	var have int64
	if err := c.QueryRow(`SELECT count(*) FROM `+v.Table+` WHERE `+v.Owner+` = ?`, id).Scan(&have); err != nil || have < v.Max {
		return err
	}
	kept := []any{id, effective}
	if v.Keeps != nil {
		versions, err := v.Keeps(c, row)
		if err != nil {
			return err
		}
		for _, version := range versions {
			kept = append(kept, version)
		}
	}
	if v.Pruned != nil {
		c.OnCommit(func() { v.Pruned(have - v.Max + 1) })
	}
	return v.removeSome(c, row, ` AND id IN (SELECT id FROM `+v.Table+` WHERE `+v.Owner+` = ? AND version NOT IN (?`+strings.Repeat(", ?", len(kept)-2)+`)
		AND version < (SELECT max(version) FROM `+v.Table+` WHERE `+v.Owner+` = ?) ORDER BY version LIMIT ?)`, append(kept, id, have-v.Max+1)...)
}

// removeSome removes the versions of a row that a condition, if there is one, names.
func (v *Versions[T, S]) removeSome(c *store.Change, row *T, condition string, args ...any) error {
	head := v.k.Table.Head(row)
	rows, err := c.Query(`DELETE FROM `+v.Table+` WHERE `+v.Owner+` = ?`+condition+` RETURNING id, version, `+store.RowSize(versionStrings...),
		append([]any{head.ID}, args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	type removed struct{ id, version, size int64 }
	var all []removed
	for rows.Next() {
		var r removed
		if err := rows.Scan(&r.id, &r.version, &r.size); err != nil {
			return err
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, r := range all {
		if err := errors.Join(c.Grown(head.TenantID, -r.size), v.audit(c, store.AuditDelete, row, r.id, r.version)); err != nil {
			return err
		}
	}
	return nil
}

// versionStrings are the columns of strings of a version.
var versionStrings = []string{"label", "description", "published_by", "snapshot"}

// CountBytes implements store.Counter.
func (v *Versions[T, S]) CountBytes(tx store.Tx, sums map[int64]int64) error {
	return store.CountRows(tx, sums, v.Table, versionStrings...)
}
