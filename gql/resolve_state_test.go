package gql

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/registry"
	"weir/store"
)

// someStates are states and the devices that have them; every third device has a profile of its own silence.
type someStates struct{ rows []*store.DeviceState }

func (s someStates) DeviceStates(context.Context, int64) ([]*store.DeviceState, error) {
	return slices.Clone(s.rows), nil
}

func (s someStates) DeviceStatesOf(context.Context, int64, []int64) (map[int64]*store.DeviceState, error) {
	return nil, nil
}

func (s someStates) tokens(context.Context, *model.Principal) (map[int64]string, error) {
	all := map[int64]string{}
	for _, row := range s.rows {
		all[row.DeviceID] = fmt.Sprint("d", row.DeviceID)
	}
	return all, nil
}

func (s someStates) Silence(_, device string, standard time.Duration) time.Duration {
	var n int
	if _, err := fmt.Sscanf(device, "d%d", &n); err == nil && n%3 == 0 {
		return []time.Duration{time.Minute, time.Hour}[n/3%2]
	}
	return standard
}

func (s someStates) ByID(_ context.Context, _ *model.Principal, ids []int64) (ds []*registry.Device, err error) {
	for _, id := range ids {
		ds = append(ds, &registry.Device{Row: store.Row{ID: id}, Token: fmt.Sprint("d", id)})
	}
	return ds, nil
}

func (s someStates) ByToken(context.Context, *model.Principal, []string) ([]*registry.Device, error) {
	return nil, nil
}

// The devices that a list takes as active are those that deviceStates shows as active.
func TestActiveDevicesAreThoseOfDeviceStates(t *testing.T) {
	t.Parallel()
	var s someStates
	now := int64(10 * time.Hour)
	for i, age := range []time.Duration{0, time.Second, 59 * time.Second, time.Minute, 61 * time.Second, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 9 * time.Hour} {
		for j := range 6 {
			s.rows = append(s.rows,
				&store.DeviceState{DeviceID: int64(24*i + 4*j + 1), HasActivity: true, ActivityListen: now - int64(age)},
				&store.DeviceState{DeviceID: int64(24*i + 4*j + 2), Asserted: true, HasActivity: j%2 == 0, ActivityListen: now - int64(age), State: model.PresenceState(1 + j%3)},
				&store.DeviceState{DeviceID: int64(24*i + 4*j + 3)},
				&store.DeviceState{DeviceID: int64(24*i + 4*j + 4), HasActivity: true, ActivityListen: now - int64(age)})
		}
	}
	for _, standard := range []time.Duration{time.Second, time.Minute, 10 * time.Minute, 2 * time.Hour} {
		d := StateDeps{States: s, Devices: s, Tokens: s.tokens, Listening: func() int64 { return now }, Silence: func() time.Duration { return standard }}
		by := fixture.Member("ada", "acme", 1, model.DeviceRead)
		resolvers, ctx := newStateResolvers(d), WithCall(t.Context(), Call{Principal: by})
		rows, err := resolvers.all(ctx, func(*store.DeviceState, func() bool) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		all, err := resolvers.shown(ctx, rows)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, v := range all {
			if v.Active {
				want = append(want, v.ID)
			}
		}
		ids, err := d.ActiveDevices(t.Context(), by)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(ids)
		var got []string
		for _, id := range ids {
			got = append(got, fmt.Sprint(id))
		}
		if !slices.Equal(got, want) || len(want) < 20 || len(want) > 200 {
			t.Errorf("silence %v: %d active, deviceStates shows %d\n%v\n%v", standard, len(got), len(want), got, want)
		}
	}
}
