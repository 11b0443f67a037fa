package provision

import (
	"fmt"
	"testing"
	"time"

	"weir/model"
	"weir/registry"
	"weir/store"
)

// claimBench is a tenant with the device d and the customers c and e.
func claimBench(t testing.TB) *bench {
	t.Helper()
	b := newBench(t, registry.DeviceSettings{})
	for _, made := range []struct {
		table string
		p     store.Patch
	}{
		{"devices", store.Patch{"token": "d", "deviceTypeToken": "pump"}},
		{"customer_types", store.Patch{"token": "ct"}}, {"customers", store.Patch{"token": "c", "customerTypeToken": "ct"}},
		{"customers", store.Patch{"token": "e", "customerTypeToken": "ct"}},
		{"entity_relationship_types", store.Patch{"token": "owned", "tracked": true}},
	} {
		if _, err := b.r.Kinds.Of(made.table).Create(t.Context(), acme, made.p); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bench) initiate(secret string, until *model.Micros) {
	b.Helper()
	c, err := b.InitiateClaim(b.Context(), acme, ClaimInitiate{Device: "d", Secret: secret, ExpiresAt: until})
	if err != nil || c.Status != ClaimOpen || c.ClaimedAt != nil || c.CustomerID != nil || c.Failures != 0 {
		b.Fatalf("%+v %v", c, err)
	}
}

func (b *bench) claim(device, secret string) (*registry.Relationship, error) {
	return b.ClaimDevice(b.Context(), acme, ClaimRequest{Device: device, Secret: secret, Customer: "c", RelationshipType: "owned"})
}

func (b *bench) status(want string) *Claim {
	b.Helper()
	c, err := b.ClaimOf(b.Context(), acme, "d")
	if err != nil || c == nil || c.Status != want {
		b.Fatalf("%+v %v, want %s", c, err, want)
	}
	return c
}

// owners returns the relationships of the device.
func (b *bench) owners() []*registry.Relationship {
	b.Helper()
	rows, _, err := b.r.Relationships.List(b.Context(), acme, store.Page{})
	if err != nil {
		b.Fatal(err)
	}
	return rows
}

// controls counts the changes that are records of the log.
func (b *bench) controls() (n int) {
	b.Helper()
	if err := b.parts.Store.Read(b.Context(), func(tx store.Tx) error {
		return tx.QueryRow(`SELECT count(DISTINCT sequence) FROM control`).Scan(&n)
	}); err != nil {
		b.Fatal(err)
	}
	return n
}

func TestADeviceIsClaimed(t *testing.T) {
	t.Parallel()
	b := claimBench(t)
	if c, err := b.ClaimOf(t.Context(), acme, "d"); c != nil || err != nil {
		t.Errorf("no claim yet: %+v %v", c, err)
	}
	b.initiate("printed", nil)
	controls := b.controls()
	made, err := b.claim("d", "printed")
	if err != nil || made.SourceType != "device" || made.Source != "d" || made.TargetType != "customer" || made.Target != "c" {
		t.Fatalf("%+v %v", made, err)
	}
	c := b.status(ClaimClaimed)
	customer, err := b.r.Kinds.Of("customers").ByToken(t.Context(), acme, []string{"c"})
	if err != nil || c.ClaimedAt == nil || *c.ClaimedAt != model.MicrosOf(b.clock.Now()) || *c.CustomerID != customer[0].(*registry.Customer).ID {
		t.Errorf("%+v %v", c, err)
	}
	if n := b.controls(); n != controls+1 { // the relationship is of a tracked type, and anchors the device from its place in the log on
		t.Errorf("%d control records, before the claim %d", n, controls)
	}
	// It is opened again: the ownership ends.
	b.initiate("new", nil)
	if left := b.owners(); len(left) != 0 {
		t.Errorf("%d relationships are left", len(left))
	}
	if canceled, err := b.CancelClaim(t.Context(), acme, "d"); !canceled || err != nil {
		t.Error(canceled, err)
	}
	b.status(ClaimCanceled)
	if canceled, err := b.CancelClaim(t.Context(), acme, "d"); canceled || err != nil {
		t.Errorf("a second time: %v %v", canceled, err)
	}
	// A relationship that was removed by hand does not keep a claim from being opened again.
	b.initiate("third", nil)
	if made, err = b.claim("d", "third"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.r.Relationships.RemoveAll(t.Context(), acme, []string{made.Token}); err != nil {
		t.Fatal(err)
	}
	b.initiate("fourth", nil)
	// With the device its claim goes.
	if gone, err := b.r.Devices.Delete(t.Context(), acme, "d"); !gone || err != nil {
		t.Fatal(gone, err)
	}
	if c, err := b.ClaimOf(t.Context(), acme, "d"); c != nil || err != nil {
		t.Errorf("the claim of a device that is gone: %+v %v", c, err)
	}
	if canceled, err := b.CancelClaim(t.Context(), acme, "d"); canceled || err != nil {
		t.Errorf("of a device that is gone: %v %v", canceled, err)
	}
	_, err = b.InitiateClaim(t.Context(), acme, ClaimInitiate{Device: "d", Secret: "x"})
	b.refused("of a device that is gone", err, model.CodeInvalidInput, "deviceToken")
}

func TestEveryRefusalOfAClaimReadsAlike(t *testing.T) {
	t.Parallel()
	b := claimBench(t)
	refusals := map[string]error{}
	claim := func(what, device, secret string) {
		t.Helper()
		_, err := b.claim(device, secret)
		refusals[what] = err
	}
	claim("no such device", "none", "printed")
	claim("no claim", "d", "printed")
	b.initiate("printed", new(model.MicrosOf(b.clock.Now().Add(time.Minute))))
	claim("a wrong secret", "d", "wrong")
	claim("no secret", "d", "")
	b.clock.Step(time.Minute)
	claim("it has expired", "d", "printed")
	b.status(ClaimOpen)
	b.initiate("printed", nil)
	if _, err := b.ClaimDevice(t.Context(), other, ClaimRequest{Device: "d", Secret: "printed", Customer: "c", RelationshipType: "owned"}); model.CodeOf(err) != model.CodeInvalidInput {
		t.Errorf("of another tenant: %v", err)
	}
	if _, err := b.claim("d", "printed"); err != nil {
		t.Fatal(err)
	}
	claim("it is claimed", "d", "printed")
	b.initiate("printed", nil)
	if _, err := b.CancelClaim(t.Context(), acme, "d"); err != nil {
		t.Fatal(err)
	}
	claim("it is canceled", "d", "printed")
	for what, err := range refusals {
		if err == nil || err.Error() != errClaim().Error() || model.CodeOf(err) != model.CodeInvalidInput {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A customer or a type that does not exist is refused before the claim is looked at, and costs it nothing.
	b.initiate("printed", nil)
	for field, q := range map[string]ClaimRequest{"customerToken": {"d", "wrong", "none", "owned"}, "relationshipType": {"d", "wrong", "c", "none"}} {
		_, err := b.ClaimDevice(t.Context(), acme, q)
		b.refused(field, err, model.CodeInvalidInput, field)
	}
	if c := b.status(ClaimOpen); c.Failures != 0 {
		t.Errorf("%d failures", c.Failures)
	}
	_, err := b.ClaimDevice(t.Context(), guest, ClaimRequest{Device: "d", Secret: "printed", Customer: "c", RelationshipType: "owned"})
	b.refused("without the authority", err, model.CodeForbidden, "device:write")
	if _, err := b.ClaimDevice(t.Context(), acme, ClaimRequest{Device: "d", Secret: "printed", Customer: "e", RelationshipType: "assigned"}); err != nil {
		t.Errorf("a built-in type needs not be made before: %v", err)
	}
}

func TestTenWrongSecretsCloseAClaim(t *testing.T) {
	t.Parallel()
	b := claimBench(t)
	b.initiate("printed", nil)
	for i := range maxFailures - 1 {
		if _, err := b.claim("d", fmt.Sprint(i)); err == nil {
			t.Fatal("a guess was right")
		}
	}
	if c := b.status(ClaimOpen); c.Failures != maxFailures-1 {
		t.Errorf("%d failures", c.Failures)
	}
	b.initiate("printed", nil) // counts anew
	for i := range maxFailures {
		b.status(ClaimOpen)
		if _, err := b.claim("d", fmt.Sprint(i)); err == nil {
			t.Fatal("a guess was right")
		}
	}
	b.status(ClaimCanceled)
	if _, err := b.claim("d", "printed"); err == nil || len(b.owners()) != 0 {
		t.Errorf("the right secret, too late: %v", err)
	}
}
