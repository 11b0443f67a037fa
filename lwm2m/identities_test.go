package lwm2m

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
	"weir/model"
)

// makingKeys have one key, whose device is made once it is proven.
type makingKeys struct {
	made    atomic.Int32
	refuses atomic.Bool
}

func (k *makingKeys) Key(_ context.Context, identity string) (Key, error) {
	bound := model.Binding{Tenant: "acme", TenantID: 1, Device: "lw-meter", DeviceID: 7}
	key := Key{Secret: []byte("0123456789abcdef")}
	switch {
	case identity != "meter":
		return Key{}, ErrUnknown
	case k.made.Load() > 0:
		key.Binding = bound
		return key, nil
	}
	key.Make = func(context.Context) (model.Binding, error) {
		if k.refuses.Load() {
			return model.Binding{}, errors.New("limits.devices_per_tenant")
		}
		k.made.Add(1)
		return bound, nil
	}
	return key, nil
}

// TestADeviceIsMadeOnceItsKeyIsProven, and not before: a wrong key makes none. Where it cannot be made, the handshake ends.
func TestADeviceIsMadeOnceItsKeyIsProven(t *testing.T) {
	t.Parallel()
	keys := &makingKeys{}
	rows := &rowsOf{rows: map[int64]Registration{}}
	s := live(t, &intakeOf{}, rows, Settings{}, func(d *Deps) { d.Keys = keys })
	dial := func(key string, timeout time.Duration) (*lwm2mpeer.Client, error) {
		return lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: s.address, Identity: "meter", Key: []byte(key), Timeout: timeout})
	}
	if c, err := dial("another key 1234", time.Second); err == nil {
		c.Close()
		t.Error("a wrong key is let in")
	}
	keys.refuses.Store(true)
	if c, err := dial("0123456789abcdef", time.Minute); err == nil { // the handshake is complete for the device before it is known
		defer c.Close()
		<-c.Ended()
	}
	poll.True(t, "it is counted", func() bool { return testutil.ToFloat64(s.metrics.handshakes.WithLabelValues("error")) == 1 })
	if n := keys.made.Load(); n != 0 || s.sessionCount() != 0 {
		t.Fatalf("%d devices are made", n)
	}
	keys.refuses.Store(false)
	c, err := dial("0123456789abcdef", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Register(t.Context(), []string{"lt=300"}, "</1/0>"); err != nil {
		t.Fatal(err)
	}
	if seen := s.Seen(1, nil); keys.made.Load() != 1 || len(seen) != 1 || seen[0].Binding.Device != "lw-meter" {
		t.Errorf("%+v", seen)
	}
}

// TestARegistrationWhoseIdentityIsGone ends with the start, with its own reason; that of a credential stays.
func TestARegistrationWhoseIdentityIsGone(t *testing.T) {
	t.Parallel()
	row := func(device, credential int64, location string) Registration {
		return Registration{Binding: model.Binding{Tenant: "acme", TenantID: 1, Device: location, DeviceID: device, Credential: credential}, Location: location, Version: "1.1",
			Lifetime: 300, Session: 5, Registered: model.MicrosOf(time.Now()), Heard: model.MicrosOf(time.Now())}
	}
	rows := &rowsOf{rows: map[int64]Registration{1: row(1, 0, "gone"), 2: row(2, 0, "stays"), 3: row(3, 9, "credential")}}
	in := &intakeOf{}
	s := live(t, in, rows, Settings{}, func(d *Deps) {
		d.Orphaned = func(_ context.Context, b model.Binding) (bool, error) { return b.Device == "gone", nil }
	})
	poll.True(t, "it has ended", func() bool { return len(s.Seen(1, nil)) == 2 })
	if left := s.Seen(1, []int64{1}); len(left) != 0 {
		t.Errorf("%+v", left)
	}
}
