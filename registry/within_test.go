package registry

import (
	"errors"
	"testing"

	"weir/model"
	"weir/store"
)

var errTakenBack = errors.New("taken back")

// furnish makes a profile with a rule, publishes it, and makes a type and a device with a credential.
func furnish(t *testing.T, r *Registry, c *store.Change) error {
	ctx := c.Context()
	_, err1 := r.Profiles.Create(ctx, acme, store.Patch{"token": "p"})
	_, err2 := r.Rules.Create(ctx, acme, store.Patch{"token": "r", "deviceProfileToken": "p", "definition": "{}", "enabled": true})
	differs, next, err3 := r.Profiles.Unpublished(ctx, acme, "p")
	v, err4 := r.Profiles.Publish(ctx, acme, "p", nil, nil)
	still, _, err5 := r.Profiles.Unpublished(ctx, acme, "p")
	_, err6 := r.Types.Create(ctx, acme, store.Patch{"token": "t", "profileToken": "p"})
	_, err7 := r.Devices.Create(ctx, acme, store.Patch{"token": "d", "deviceTypeToken": "t"})
	k, err8 := r.Credentials.Create(ctx, acme, store.Patch{"token": "k", "deviceToken": "d", "credentialType": MQTTBasic, "credentialId": "u", "credentialValue": Hashed("prepared"), "enabled": true})
	_, err9 := r.Credentials.Update(ctx, acme, "k", store.Patch{"enabled": false})
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9); err != nil {
		return err
	}
	if !differs || next != 1 || v.Version != 1 || still {
		t.Errorf("unpublished %v, next %d, published %d, then %v", differs, next, v.Version, still)
	}
	if !k.HasID("u") || k.HasID("v") || k.ValueHash == nil || *k.ValueHash != "prepared" {
		t.Errorf("%+v", k)
	}
	return nil
}

// The verbs of the registry take part in a change of somebody else's: they see what it has made, and all of it stays or
// goes with it, what they tell others included.
func TestTheVerbsTakePartInAChange(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	change := func(end error) error {
		return b.access.writer.Mutate(t.Context(), acme, func(c *store.Change) error {
			return errors.Join(furnish(t, b.Registry, c), end)
		})
	}
	b.unchanged("a change that is taken back", func() {
		if err := change(errTakenBack); !errors.Is(err, errTakenBack) {
			t.Fatal(err)
		}
	})
	if len(b.forgotten) != 0 {
		t.Errorf("forgotten %v", b.forgotten)
	}
	if err := change(nil); err != nil {
		t.Fatal(err)
	}
	if len(b.forgotten) != 1 {
		t.Errorf("forgotten %v", b.forgotten)
	}
	var kinds []model.ViewKind
	for _, v := range b.views() {
		kinds = append(kinds, v.Kind)
	}
	if len(kinds) != 3 || kinds[0] != model.ViewProfile || kinds[1] != model.ViewDeviceType || kinds[2] != model.ViewDevice {
		t.Errorf("view rows %v", kinds)
	}
}

// A draft that is as published is told from one that is not, however often it was written.
func TestADraftIsUnpublishedWhenItWouldFreezeAsSomethingElse(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	if err := b.access.writer.Mutate(ctx, acme, func(c *store.Change) error { return furnish(t, b.Registry, c) }); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what string
		p    store.Patch
		want bool
	}{
		{"a name that the snapshot does not have", store.Patch{"metadata": `{"a":1}`}, false},
		{"another definition", store.Patch{"definition": `{"x":1}`}, true},
		{"the definition that it had", store.Patch{"definition": `{}`}, false},
		{"a rule that is off", store.Patch{"enabled": false}, true},
	} {
		if _, err := b.Rules.Update(ctx, acme, "r", step.p); err != nil {
			t.Fatal(err)
		}
		if differs, next, err := b.Profiles.Unpublished(ctx, acme, "p"); differs != step.want || next != 2 || err != nil {
			t.Errorf("%s: %v, next %d, %v", step.what, differs, next, err)
		}
	}
}
