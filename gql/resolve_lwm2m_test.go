package gql_test

import (
	"fmt"
	"testing"

	"weir/gql"
	"weir/model"
)

// noLwm2m has no device.
type noLwm2m struct{}

func (noLwm2m) Registrations(int64, []int64) []gql.Lwm2mRegistration { return nil }

// someLwm2m has two devices of tenant 1.
type someLwm2m struct{}

func (someLwm2m) Registrations(tenant int64, devices []int64) (all []gql.Lwm2mRegistration) {
	if tenant != 1 {
		return nil
	}
	for i, token := range []string{"meter-2", "meter-1"} {
		if devices == nil || len(devices) > i {
			all = append(all, gql.Lwm2mRegistration{DeviceToken: token, Endpoint: fmt.Sprint(len(devices)), Session: "LIVE", Heard: model.Micros(1e15)})
		}
	}
	return all
}

// Registrations are those of the caller's tenant; a device that is not its own is none, and with no device there is nothing.
func TestLwm2mRegistrations(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	for _, c := range []struct {
		as   *model.Principal
		q, a string
	}{
		{reader, `{lwm2mRegistrations{deviceToken session lastHeardTime objects{path}}}`,
			`{"lwm2mRegistrations":[{"deviceToken":"meter-1","session":"LIVE","lastHeardTime":"2001-09-09T01:46:40Z","objects":[]},{"deviceToken":"meter-2","session":"LIVE","lastHeardTime":"2001-09-09T01:46:40Z","objects":[]}]}`},
		{reader, `{lwm2mRegistrations(deviceTokens:null){deviceToken}}`, `{"lwm2mRegistrations":[{"deviceToken":"meter-1"},{"deviceToken":"meter-2"}]}`},
		{reader, `{lwm2mRegistrations(deviceTokens:[]){deviceToken}}`, `{"lwm2mRegistrations":[]}`},
		{reader, `{lwm2mRegistrations(deviceTokens:["nobody"]){deviceToken}}`, `{"lwm2mRegistrations":[]}`},
		{neighbour, `{lwm2mRegistrations{deviceToken}}`, `{"lwm2mRegistrations":[]}`},
	} {
		got, err := w.as(c.as, c.q, nil).MarshalJSON()
		if want := `{"data":` + c.a + `}`; err != nil || string(got) != want {
			t.Errorf("%s\n%s %v\nwant\n%s", c.q, got, err, want)
		}
	}
}
