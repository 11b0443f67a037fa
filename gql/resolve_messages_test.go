package gql

import (
	"testing"
	"time"

	"weir/ingest"
	"weir/model"
	"weir/store"
)

func TestASubscriberSeesWhereDevicesAreOnlyIfItMay(t *testing.T) {
	t.Parallel()
	at := ingest.Sighting{Received: 5e9, Ended: 5e9 + 3_200_000, Tenant: "acme", Transport: "mqtt", Device: "d", Outcome: store.OutcomeStored, Type: model.LocationEvent.String(),
		Values: []string{"(47.1, 8.5)"}, Offset: 7, Occurred: 5e9 + 120e9}
	for _, may := range []bool{true, false} {
		m := (&messageStream{maxSkew: time.Minute, locations: may}).show(&at)
		if got := len(m.Values) == 1; got != may {
			t.Errorf("location:read %v: %q", may, m.Values)
		}
		if m.Offset == nil || *m.Offset != "7" || m.DelayMS != 3.2 || m.Stored == nil || *m.Stored != 65e6 {
			t.Errorf("%+v", m)
		}
	}
	at.Type, at.Outcome = model.MeasurementEvent.String(), store.OutcomeDeadLetter
	if m := (&messageStream{}).show(&at); len(m.Values) != 1 || m.Outcome != "dead-letter" || m.Stored != nil {
		t.Errorf("%+v", m)
	}
}
