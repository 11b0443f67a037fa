package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/edgewire"
	"weir/internal/ranges"
	"weir/model"
	"weir/store"
)

// TestWhatAnEdgeSaysOfItself: a copy is asked to begin as another installation, a replaced one is taken, and gaps are kept by name.
func TestWhatAnEdgeSaysOfItself(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	if _, err := b.Types.Create(ctx, acme, store.Patch{"token": "t"}); err != nil {
		t.Fatal(err)
	}
	gw := must(b.Devices.Create(ctx, acme, store.Patch{"token": "gw", "deviceTypeToken": "t"}))(t)
	e := must(b.Edges.Create(ctx, acme, store.Patch{"token": "north", "deviceToken": "gw", "enabled": true}))(t)
	bound := model.Binding{Tenant: acme.Tenant, TenantID: acme.TenantID, Device: "gw", DeviceID: gw.ID}
	const first, second, third = "00112233445566778899aabbccddeeff", "10112233445566778899aabbccddeeff", "20112233445566778899aabbccddeeff"
	hello := func(install, machine string, newest, position uint64) *edgewire.Hello {
		at := time.Unix(1_700_000_000, 0).UTC()
		return &edgewire.Hello{Kind: edgewire.KindHello, Install: install, Epoch: 1, Boot: "b", Nonce: "n", Machine: machine, Version: "v", First: 1, Newest: newest, Position: position, Oldest: position + 1, Time: &at}
	}
	says := func(h *edgewire.Hello, above ranges.Set, renewed bool) *edgewire.Welcome {
		t.Helper()
		w, err := b.Edges.Said(ctx, bound, h, above, true)
		if err != nil || (w.Renew != "") != renewed || w.Nonce != "n" || w.Partitions != 1 {
			t.Fatalf("%+v, %v", w, err)
		}
		return w
	}
	state := func(install string, findings ...string) *EdgeState {
		t.Helper()
		s, err := b.Edges.StateOf(ctx, e)
		if err != nil || s == nil || s.InstallID != install || !slices.Equal(s.Findings, findings) {
			t.Fatalf("%+v, %v; want %s with %v", s, err, install, findings)
		}
		return s
	}
	if s, err := b.Edges.StateOf(ctx, e); s != nil || err != nil {
		t.Errorf("before a hello: %+v, %v", s, err)
	}
	const one, other = "aa112233445566778899aabbccddeeff", "bb112233445566778899aabbccddeeff"
	says(hello(first, one, 5, 3), ranges.Set{{1, 3}}, false)
	if s := state(first); s.Newest != "5" || s.Position != "3" || !s.Clock || len(s.Gaps) != 0 || s.Ranges[0] != (EdgeRange{"1", "3"}) {
		t.Errorf("%+v", s)
	}
	says(hello(first, other, 9, 3), ranges.Set{{1, 3}}, true) // another machine
	says(hello(first, one, 2, 2), ranges.Set{{1, 3}}, true)   // an older copy of itself
	state(first, EdgeCloned)
	says(hello(second, other, 9, 3), nil, false) // the copy, which is no replacement; 1 to 3 were of another installation
	state(second, EdgeGap, EdgeCloned)
	says(hello(first, one, 8, 8), ranges.Set{{1, 2}, {5, 8}}, false)
	if s := state(first, EdgeCloned, EdgeGap); len(s.Gaps) != 1 || s.Gaps[0] != (EdgeRange{"3", "4"}) {
		t.Errorf("%+v", s)
	}
	b.now.Add(int64(copiedLately / time.Microsecond))
	said := hello(third, "", 0, 0)
	says(said, nil, false)
	state(third, EdgeReplaced, EdgeCloned, EdgeGap)
	said.Kind, said.Newest, said.Waiting = edgewire.KindState, 4, 4
	if w, err := b.Edges.Said(ctx, bound, said, nil, true); w != nil || err != nil {
		t.Errorf("%+v, %v", w, err)
	}
	if s := state(third, EdgeReplaced, EdgeCloned, EdgeGap); s.Waiting != "4" || s.Newest != "4" {
		t.Errorf("%+v", s)
	}
}

// TestAFileOfANewInstallationForgetsTheOldestWithWhatItJudges: numbers that are carried by hand are of an installation, too. The one that they take
// the place of judges no rules any more.
func TestAFileOfANewInstallationForgetsTheOldestWithWhatItJudges(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	must(b.Types.Create(ctx, acme, store.Patch{"token": "t"}))(t)
	gw := must(b.Devices.Create(ctx, acme, store.Patch{"token": "gw", "deviceTypeToken": "t"}))(t)
	must(b.Edges.Create(ctx, acme, store.Patch{"token": "north", "deviceToken": "gw", "enabled": true}))(t)
	bound := model.Binding{Tenant: acme.Tenant, TenantID: acme.TenantID, Device: "gw", DeviceID: gw.ID}
	at := time.Unix(1_700_000_000, 0).UTC()
	install := func(n int) string { return fmt.Sprintf("%032x", n+1) }
	for n := range maxInstalls {
		b.now.Add(1_000_000)
		h := &edgewire.Hello{Kind: edgewire.KindHello, Install: install(n), Epoch: 1, Boot: "b", Nonce: "n", Version: "v", Time: &at, Runs: []edgewire.Runs{{Profile: "p", Version: 1, From: 1}}}
		must(b.Edges.Said(ctx, bound, h, nil, true))(t)
	}
	b.views()
	if err := b.Edges.Carried(ctx, bound, install(maxInstalls), "", map[uint32]ranges.Set{1: {{1, 4}}}); err != nil {
		t.Fatal(err)
	}
	ended := b.views()
	if len(ended) != 1 || ended[0].Kind != model.ViewSite || !strings.HasSuffix(ended[0].Key, "/"+install(0)) || ended[0].Body != nil {
		t.Errorf("%+v", ended)
	}
}

// TestTheDevicesOfAnEdge: those in its scope with their enabled credentials, page by page, and a change of them is noticed.
func TestTheDevicesOfAnEdge(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	if _, err := b.Types.Create(ctx, acme, store.Patch{"token": "t"}); err != nil {
		t.Fatal(err)
	}
	bound := model.Binding{Tenant: acme.Tenant, TenantID: acme.TenantID, Device: "gw"}
	for _, token := range []string{"a", "b", "gw"} {
		d := must(b.Devices.Create(ctx, acme, store.Patch{"token": token, "deviceTypeToken": "t"}))(t)
		must(b.Credentials.Create(ctx, acme, store.Patch{"token": token, "deviceToken": token, "credentialType": AccessToken, "credentialId": "secret-" + token, "enabled": token != "b"}))(t)
		bound.DeviceID = d.ID
	}
	if _, err := b.Devices.Create(ctx, other, store.Patch{"token": "x", "deviceTypeToken": "t"}); err == nil {
		t.Fatal("a device of another tenant with a type that it does not have")
	}
	changed := 0
	b.Edges.OnSynced(func(tenant int64) {
		if tenant == acme.TenantID {
			changed++
		}
	})
	if _, _, err := b.Edges.DevicesFor(ctx, bound, ""); !errors.Is(err, ErrNoEdge) {
		t.Errorf("without an edge: %v", err)
	}
	must(b.Edges.Create(ctx, acme, store.Patch{"token": "north", "deviceToken": "gw", "enabled": true}))(t)
	if changed != 1 {
		t.Errorf("%d changes", changed)
	}
	all, next, err := b.Edges.DevicesFor(ctx, bound, "")
	if err != nil || next != "" || len(all) != 3 || all[0].Token != "a" || len(all[0].Credentials) != 1 || len(all[1].Credentials) != 0 || all[2].Token != "gw" {
		t.Fatalf("%+v, %q, %v", all, next, err)
	}
	if c := all[0].Credentials[0]; c.Type != AccessToken || c.IDHash != hashCredentialID("secret-a") || c.Password != "" {
		t.Errorf("%+v", c)
	}
	if rest, _, err := b.Edges.DevicesFor(ctx, bound, "a"); err != nil || len(rest) != 2 {
		t.Errorf("%+v, %v", rest, err)
	}
	must(b.Credentials.Update(ctx, acme, "b", store.Patch{"enabled": true}))(t)
	if changed != 2 {
		t.Errorf("%d changes", changed)
	}
	if _, err := b.Groups.Create(ctx, acme, store.Patch{"token": "g", "memberType": EntityDevice, "membershipMode": "static"}); err != nil {
		t.Fatal(err)
	}
	must(b.Edges.Update(ctx, acme, "north", store.Patch{"groupToken": "g"}))(t)
	if none, next, err := b.Edges.DevicesFor(ctx, bound, ""); err != nil || next != "" || len(none) != 0 {
		t.Errorf("out of scope: %+v, %q, %v", none, next, err)
	}
}
