package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/model"
	"weir/store"
)

// MaxImport is the most devices one ImportDevices makes.
const MaxImport = 20_000

// Entry is a device of an import.
type Entry struct {
	Device store.Patch // as in Create
	// Credential is what the device proves itself by: credentialType, credentialId and, if any, credentialValue and
	// expiresAt. Without one the device gets an access token.
	Credential store.Patch
}

// Import describes the devices of one ImportDevices.
type Import struct {
	Entries []Entry
	// EnsureType is a device type that is made when there is none of its token; nil makes none.
	EnsureType store.Patch
	// DryRun finds out what is wrong and makes nothing.
	DryRun bool
}

// EntryProblem is why an entry cannot be made. Other is the entry that it collides with, -1 for none.
type EntryProblem struct {
	Entry  int
	Field  string // API name
	Reason string
	Other  int
}

// errNothingMade takes back what an import has done to find out what is wrong.
var errNothingMade = errors.New("registry: nothing is made")

// Import makes all devices of an import in one change, or none: what stands against it is returned for all entries
// at once. secrets holds the access token of each entry, "" where the entry brought its credential along.
func (ds *Devices) Import(ctx context.Context, by *model.Principal, in Import) (secrets []string, problems []EntryProblem, err error) {
	if len(in.Entries) > MaxImport {
		return nil, nil, model.Errorf(model.CodeLimitExceeded, "one import makes at most %d devices, not %d", MaxImport, len(in.Entries))
	}
	// Slow work before the change: secrets and hashes of all entries.
	im := &importing{ds: ds, Import: in}
	if err := im.prepare(ctx, by); err != nil {
		return nil, nil, err
	}
	err = ds.mutate(ctx, by, func(c *store.Change) error {
		// The change may be tried again.
		im.problems = slices.Clone(im.early)
		if err := im.make(c); err != nil {
			return err
		}
		// Take everything back, whether something is wrong or this was a trial.
		if len(im.problems) > 0 || in.DryRun {
			return errNothingMade
		}
		return nil
	})
	if err != nil && !errors.Is(err, errNothingMade) {
		return nil, nil, err
	}
	// In the order of the entries, whatever the order in which it was found.
	slices.SortStableFunc(im.problems, func(a, b EntryProblem) int {
		return cmp.Or(a.Entry-b.Entry, strings.Compare(a.Field, b.Field))
	})
	return im.secrets, im.problems, nil
}

// importing is an import on its way.
type importing struct {
	ds *Devices
	Import
	credentials []store.Patch // prepared
	secrets     []string
	early       []EntryProblem // found before the transaction
	problems    []EntryProblem
}

// prepare mints tokens, seals ids and hashes passwords: what takes long is done before the transaction.
func (im *importing) prepare(ctx context.Context, by *model.Principal) error {
	im.credentials = make([]store.Patch, len(im.Entries))
	im.secrets = make([]string, len(im.Entries))
	for i, e := range im.Entries {
		device, _ := e.Device["token"].(string)
		var err error
		if e.Credential == nil {
			im.secrets[i], im.credentials[i], err = im.ds.credentials.Mint(ctx, by, device, nil)
		} else {
			im.credentials[i], err = im.ds.credentials.prepareGiven(ctx, by, device, e.Credential)
		}
		if err != nil && !im.noteRefusal(&im.early, i, err) {
			return err
		}
	}
	return nil
}

// prepareGiven prepares a credential that an entry brings along; its token is a random UUID.
func (cs *Credentials) prepareGiven(ctx context.Context, by *model.Principal, device string, given store.Patch) (store.Patch, error) {
	token, err := cs.NewUUID()
	if err != nil {
		return nil, err
	}
	p := store.Patch{"token": token, "deviceToken": device, "enabled": true}
	maps.Copy(p, given)
	return cs.Prepared(ctx, by, p)
}

// make makes the entries, as far as nothing stands against them.
func (im *importing) make(c *store.Change) error {
	if _, err := im.ds.ensureType(c, im.EnsureType); err != nil {
		return err
	}
	if err := im.ds.admit(c, int64(len(im.Entries))); err != nil {
		return err
	}
	// Compare all entries with each other and with what is there, before the first is made.
	taken, err := im.collisions(c)
	if err != nil {
		return err
	}
	// Of an entry with a problem only the device is made, to find what else is wrong.
	bad := make([]bool, len(im.Entries))
	for _, p := range im.problems {
		bad[p.Entry] = true
	}
	for i := range im.Entries {
		if err := im.makeEntry(c, i, taken[i], bad[i]); err != nil {
			return err
		}
	}
	return nil
}

// ensureType makes a device type when there is none of its token; nil makes none.
func (ds *Devices) ensureType(c *store.Change, p store.Patch) (made bool, err error) {
	token, ok := p["token"].(string)
	if !ok {
		return false, nil
	}
	have, err := ds.types.Table.Get(c, c.By.TenantID, token)
	if err != nil || have != nil {
		return false, err
	}
	if err := ds.types.Admit(c, 1); err != nil {
		return false, err
	}
	_, err = ds.types.Make(c, p)
	return err == nil, err
}

// makeEntry makes an entry. What collides is left out of it and what is refused too, so that everything which is wrong with the
// entry is found; an entry of which something was found is taken back with all others.
func (im *importing) makeEntry(c *store.Change, i int, taken []string, bad bool) error {
	p := maps.Clone(im.Entries[i].Device)
	for _, field := range taken {
		delete(p, field)
	}
	// Go on without what is taken, to find what else is wrong.
	d, err := im.device(c, i, p)
	if err != nil || d == nil || bad || slices.Contains(taken, "token") || slices.Contains(taken, "credentialId") {
		return err
	}
	if d.Token != im.Entries[i].Device["token"] {
		return nil
	}
	return im.credential(c, i)
}

// credential makes the credential of an entry likewise.
func (im *importing) credential(c *store.Change, i int) error {
	p := maps.Clone(im.credentials[i])
	for range len(p) {
		_, err := im.ds.credentials.Make(c, p)
		if err == nil || !im.noteRefusal(&im.problems, i, err) {
			return err
		}
		// Put something right in the place of what was refused, and look for the next problem.
		switch refused := im.problems[len(im.problems)-1].Field; refused {
		case "credentialType":
			delete(p, "credentialValue")
			p[refused] = AccessToken // a stand-in: this import comes to nothing
		case "expiresAt", "credentialValue":
			delete(p, refused)
		default:
			return nil
		}
	}
	return nil
}

// device makes the device of an entry; what is refused of it is noted and left out, field by field.
func (im *importing) device(c *store.Change, i int, p store.Patch) (*Device, error) {
	for range len(im.Entries[i].Device) + 1 {
		// Something stands in for a token that was refused.
		if p["token"] == nil {
			var err error
			if p["token"], err = im.ds.credentials.NewUUID(); err != nil { // a stand-in: this import comes to nothing
				return nil, err
			}
		}
		d, err := im.ds.Make(c, p)
		if err == nil {
			return d, nil
		}
		if !im.noteRefusal(&im.problems, i, err) {
			return nil, err
		}
		// Leave out the field that was refused, and look for the next problem.
		refused := im.problems[len(im.problems)-1].Field
		if _, named := p[refused]; !named {
			return nil, nil
		}
		delete(p, refused)
		if refused == "deviceTypeToken" {
			other, err := im.ds.types.Table.First(c, c.By.TenantID)
			if err != nil || other == nil {
				return nil, err
			}
			p[refused] = other.Token // a stand-in, too
		}
	}
	return nil, nil
}

// noteRefusal notes a refusal of an entry; other errors are not for it.
func (im *importing) noteRefusal(to *[]EntryProblem, i int, err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return false
	}
	*to = append(*to, EntryProblem{Entry: i, Field: cmp.Or(e.Field, "token"), Reason: e.Text(), Other: -1})
	return true
}

// collisions notes what exists already, and what two entries have in common. It returns the fields of each entry that
// are taken.
func (im *importing) collisions(c *store.Change) ([][]string, error) {
	taken := make([][]string, len(im.Entries))
	note := func(field string, entry, other int, reason string) {
		im.problems = append(im.problems, EntryProblem{Entry: entry, Field: field, Reason: reason, Other: other})
		taken[entry] = append(taken[entry], field)
	}
	for field, of := range map[string]func(int) string{"token": im.text("token"), "externalId": im.text("externalId"), "credentialId": im.credentialKey} {
		// Two entries with the same value: the second one is refused.
		first := map[string]int{}
		var values []string
		for i := range im.Entries {
			v := of(i)
			if other, again := first[v]; again {
				note(field, i, other, "must be unique")
			} else if v != "" {
				first[v] = i
				values = append(values, v)
			}
		}
		// One query for each field, not for each entry.
		have, err := im.have(c, field, values)
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			if have[v] {
				note(field, first[v], -1, im.inUse(first[v], field))
			}
		}
	}
	return taken, nil
}

// have returns which values of a field the tenant has already.
func (im *importing) have(c *store.Change, field string, values []string) (map[string]bool, error) {
	switch field {
	case "token":
		ds, err := im.ds.Table.ByToken(c, c.By.TenantID, values)
		return setOf(ds, func(d *Device) string { return d.Token }), err
	case "externalId":
		ds, err := im.ds.Table.By(c, c.By.TenantID, "external_id", anySlice(values)...)
		return setOf(ds, func(d *Device) string { return text(d.ExternalID) }), err
	}
	hashes := make([]string, len(values))
	for i, v := range values {
		_, hashes[i], _ = strings.Cut(v, " ")
	}
	cs, err := im.ds.credentials.Table.By(c, c.By.TenantID, "id_hash", anySlice(hashes)...)
	return setOf(cs, func(d *DeviceCredential) string { return d.Type + " " + d.IDHash }), err
}

func (im *importing) text(field string) func(int) string {
	return func(i int) string {
		s, _ := im.Entries[i].Device[field].(string)
		return s
	}
}

// credentialKey is what a given credential is looked up by.
func (im *importing) credentialKey(i int) string {
	if im.Entries[i].Credential == nil {
		return ""
	}
	hash, _ := im.credentials[i]["credentialId"].(string)
	kind, _ := im.credentials[i]["credentialType"].(string)
	if hash == "" {
		return ""
	}
	return kind + " " + hash
}

// inUse says that a value is taken. The id of a credential may be a secret.
func (im *importing) inUse(i int, field string) string {
	if field == "credentialId" {
		return "must be unique, another device has it"
	}
	return fmt.Sprintf("must be unique, %q is in use", im.Entries[i].Device[field])
}

func setOf[T any](rows []*T, key func(*T) string) map[string]bool {
	set := make(map[string]bool, len(rows))
	for _, row := range rows {
		set[key(row)] = true
	}
	return set
}

func anySlice(values []string) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

// DeleteAll removes devices in one change, all of them, or none when one does not exist, and returns their number.
func (ds *Devices) DeleteAll(ctx context.Context, by *model.Principal, tokens []string) (int, error) {
	tokens = unique(tokens)
	err := ds.mutate(ctx, by, func(c *store.Change) error {
		for _, token := range tokens {
			deleted, err := ds.Remove(c, token)
			if err != nil {
				return err
			}
			if !deleted {
				return model.NotFound(ds.Name(), token)
			}
		}
		return nil
	})
	return len(tokens), err
}
