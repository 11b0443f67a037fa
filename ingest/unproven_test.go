package ingest

import (
	"fmt"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
)

func TestUnprovenSendersAreCountedByWhatTheyName(t *testing.T) {
	t.Parallel()
	u := NewUnprovenSenders(nil)
	u.note(rateAt(1), "mqtt", "acme", "boiler-9", "bad-credential", "first")
	u.note(rateAt(2), "http", "nowhere", "", "unknown-tenant", "")
	u.note(rateAt(3), "mqtt", "acme", "boiler-9", "bad-credential", strings.Repeat("x", 1000))
	all := u.List()
	if len(all) != 2 || all[0].Device != "boiler-9" || all[0].Count != 2 || !all[0].First.Equal(rateAt(1).Time()) || !all[0].Last.Equal(rateAt(3).Time()) ||
		len(all[0].Detail) != maxUnprovenText || all[1].Tenant != "nowhere" {
		t.Errorf("%+v", all)
	}
}

func TestTheSenderThatWasSeenLeastRecentlyMakesRoom(t *testing.T) {
	t.Parallel()
	u := NewUnprovenSenders(nil)
	for i := range maxUnproven + 1 {
		u.note(rateAt(i), "mqtt", "acme", fmt.Sprint("d", i), "unknown-device", "")
	}
	all := u.List()
	if len(all) != maxUnproven || all[0].Device != fmt.Sprint("d", maxUnproven) || all[len(all)-1].Device != "d1" {
		t.Errorf("%d, from %s to %s", len(all), all[0].Device, all[len(all)-1].Device)
	}
}

// A connection that a transport refuses is kept although no client watches; what a known device did is not.
func TestARefusedConnectionIsAnUnprovenSender(t *testing.T) {
	t.Parallel()
	tap := NewTap(func() model.Nanos { return rateAt(5) }, nil)
	tap.Unproven = NewUnprovenSenders(nil)
	tap.ConnectionRefused("mqtt", "mqtt1", "acme", "boiler-1", "bad-credential", "wrong password", true)
	tap.ended(&model.Record{Transport: "http", Tenant: "acme", Account: "acme", Device: "pump", Received: model.Stamp{Wall: rateAt(6)}}, store.OutcomeDeadLetter, ReasonUnknownDevice, "no such device")
	tap.ended(&model.Record{Transport: "http", Tenant: "acme", Account: "acme", Device: "boiler-1"}, store.OutcomeStored, ReasonNone, "")
	tap.ended(&model.Record{Transport: "http", Tenant: "acme", Account: "acme", Device: "boiler-1"}, store.OutcomeDeadLetter, ReasonInvalidValue, "")
	all := tap.Unproven.List()
	if len(all) != 2 || all[0].Device != "pump" || all[0].Detail != "no such device" || all[1].Detail != "wrong password" {
		t.Errorf("%+v", all)
	}
}
