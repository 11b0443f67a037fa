package registry

import (
	"fmt"
	"slices"
	"testing"

	"weir/model"
	"weir/store"
)

func entry(token, deviceType string, more ...string) Entry {
	e := Entry{Device: store.Patch{"token": token, "deviceTypeToken": deviceType}}
	for i := 0; i < len(more); i += 2 {
		e.Device[more[i]] = more[i+1]
	}
	return e
}

func proven(e Entry, fields ...string) Entry {
	e.Credential = store.Patch{}
	for i := 0; i < len(fields); i += 2 {
		e.Credential[fields[i]] = fields[i+1]
	}
	return e
}

func TestAnImportMakesItsDevicesWithWhatTheyProveThemselvesBy(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	entries := []Entry{entry("i1", "t", "name", "One", "externalId", "SN 1"), entry("i2", "fresh"),
		proven(entry("i3", "t"), "credentialType", MQTTBasic, "credentialId", "user", "credentialValue", "password")}
	b.unchanged("dry run", func() {
		_, problems, err := b.Devices.Import(ctx, acme, Import{Entries: entries, EnsureType: store.Patch{"token": "fresh"}, DryRun: true})
		if err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	})
	secrets, problems, err := b.Devices.Import(ctx, acme, Import{Entries: entries, EnsureType: store.Patch{"token": "fresh"}})
	if err != nil || len(problems) > 0 || len(secrets) != 3 || len(secrets[0]) != 64 || secrets[2] != "" || secrets[0] == secrets[1] {
		t.Fatalf("%d secrets, %v, %v", len(secrets), problems, err)
	}
	ds := must(b.Devices.ByToken(ctx, acme, []string{"i1", "i2", "i3"}))(t)
	if len(ds) != 3 || text(ds[0].Name) != "One" || text(ds[0].ExternalID) != "SN 1" {
		t.Errorf("%+v", ds)
	}
	for i, d := range ds[:2] {
		if got := b.find(acme, AccessToken, secrets[i]); len(got) != 1 || got[0].DeviceID != d.ID {
			t.Errorf("%s: found %+v", d.Token, got)
		}
	}
	if got := b.find(acme, MQTTBasic, "user"); len(got) != 1 || got[0].PasswordHash == "" {
		t.Errorf("found %+v", got)
	}
	views := b.views()
	if len(views) != 4 { // a type and three devices
		t.Errorf("%d view changes", len(views))
	}
}

func TestAnImpossibleImportReportsEveryErrorAndCreatesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	must(b.Devices.Update(ctx, acme, "d", store.Patch{"externalId": "taken"}))(t)
	must(b.Credentials.Create(ctx, acme, store.Patch{"token": "c", "deviceToken": "d", "credentialType": AccessToken, "credentialId": "secret-1", "enabled": true}))(t)
	entries := []Entry{
		entry("ok", "t"),
		entry("d", "t", "externalId", "taken"),
		entry("no.token", "nowhere", "metadata", "{", "name", string(make([]byte, 200))),
		entry("ok", "t", "externalId", "x"),
		entry("y", "t", "externalId", "x"),
		proven(entry("z1", "t"), "credentialType", AccessToken, "credentialId", "secret-1"),
		proven(entry("z2", "t"), "credentialType", "KEY", "credentialId", "k", "expiresAt", "soon"),
		proven(entry("z3", "t"), "credentialType", X509Certificate, "credentialId", "abc"),
		proven(entry("z4", "t"), "credentialValue", "p"),
	}
	b.unchanged("import", func() {
		secrets, problems, err := b.Devices.Import(ctx, acme, Import{Entries: entries, EnsureType: store.Patch{"token": "fresh"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(secrets) == 0 {
			t.Error("no secrets to leave out")
		}
		var got []string
		for _, p := range problems {
			s := fmt.Sprintf("%d %s", p.Entry, p.Field)
			if p.Other >= 0 {
				s += fmt.Sprintf(" as %d", p.Other)
			}
			got = append(got, s)
		}
		slices.Sort(got)
		want := []string{"1 externalId", "1 token", "2 deviceTypeToken", "2 metadata", "2 name", "2 token", "3 token as 0", "4 externalId as 3",
			"5 credentialId", "6 credentialType", "6 expiresAt", "7 credentialId", "8 credentialId", "8 credentialType"}
		if !slices.Equal(got, want) {
			t.Errorf("found\n%q\nnot\n%q", got, want)
		}
	})
}

func TestAnImportKeepsToTheCeilingAndToItsOwnBound(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 2}})
	b.seed()
	b.unchanged("ceiling", func() {
		_, _, err := b.Devices.Import(t.Context(), acme, Import{Entries: []Entry{entry("a", "t"), entry("b", "t")}})
		b.refused("ceiling", err, model.CodeLimitExceeded, "at most 2 devices")
		_, _, err = b.Devices.Import(t.Context(), acme, Import{Entries: make([]Entry, MaxImport+1)})
		b.refused("bound", err, model.CodeLimitExceeded, "at most 20000 devices")
	})
}

func TestDevicesGoTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	must(b.Devices.Create(t.Context(), acme, store.Patch{"token": "e", "deviceTypeToken": "t"}))(t)
	b.unchanged("one is not there", func() {
		_, err := b.Devices.DeleteAll(t.Context(), acme, []string{"d", "nope"})
		b.refused("one is not there", err, model.CodeNotFound, `device "nope"`)
	})
	if n, err := b.Devices.DeleteAll(t.Context(), acme, []string{"d", "e", "d"}); n != 2 || err != nil {
		t.Errorf("%d removed, %v", n, err)
	}
	if have := must(b.Devices.ByToken(t.Context(), acme, []string{"d", "e"}))(t); len(have) > 0 {
		t.Errorf("%d are left", len(have))
	}
}

func TestAccessTokensAreReplacedAndLentOnesGoWhenTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	must(b.Credentials.Create(ctx, acme, store.Patch{"token": "u", "deviceToken": "d", "credentialType": MQTTBasic, "credentialId": "user", "enabled": true}))(t)
	issue := func(q TokenRequest) *IssuedToken {
		t.Helper()
		q.Device = "d"
		return must(b.Credentials.IssueToken(ctx, acme, q))(t)
	}
	first := issue(TokenRequest{}).Secret
	now := model.Micros(b.now.Load())
	over := issue(TokenRequest{Until: new(now)}).Secret
	lent := issue(TokenRequest{Until: new(now + 3_600_000_000)})
	if lent.Replaced != 0 || lent.Credential.ExpiresAt == nil || *lent.Credential.ExpiresAt != now+3_600_000_000 {
		t.Fatalf("%+v", lent)
	}
	for secret, want := range map[string]int{first: 1, over: 0, lent.Secret: 1} {
		if got := b.find(acme, AccessToken, secret); len(got) != want {
			t.Errorf("%d of them", len(got))
		}
	}
	second := issue(TokenRequest{Replace: true})
	if second.Replaced != 2 {
		t.Errorf("%d removed", second.Replaced)
	}
	for secret, want := range map[string]int{first: 0, lent.Secret: 0, second.Secret: 1} {
		if got := b.find(acme, AccessToken, secret); len(got) != want {
			t.Errorf("after the replacement %d of them", len(got))
		}
	}
	if len(b.find(acme, MQTTBasic, "user")) != 1 {
		t.Error("the user name went along")
	}
}

// TestAProblemOfAnEntryNamesTheFieldOfItsError: not what the message looks like.
func TestAProblemOfAnEntryNamesTheFieldOfItsError(t *testing.T) {
	t.Parallel()
	reworded := model.Invalid("name", "is long")
	reworded.Message = "sorry: too long"
	for name, c := range map[string]struct {
		err  *model.Error
		want EntryProblem
	}{
		"a field":              {model.Invalid("name", "a: b"), EntryProblem{Field: "name", Reason: "a: b"}},
		"reworded":             {reworded, EntryProblem{Field: "name", Reason: "is long"}},
		"what must be unique":  {model.NotUnique("device", "externalId", "7"), EntryProblem{Field: "externalId", Reason: `externalId of a device must be unique, "7" is in use`}},
		"no field but a colon": {model.Errorf(model.CodeUnavailable, "unavailable: later"), EntryProblem{Field: "token", Reason: "unavailable: later"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var noted []EntryProblem
			c.want.Entry, c.want.Other = 3, -1
			if ok := new(importing).noteRefusal(&noted, 3, fmt.Errorf("entry: %w", c.err)); !ok || len(noted) != 1 || noted[0] != c.want {
				t.Errorf("got %+v, want %+v", noted, c.want)
			}
		})
	}
}
