package lwm2m

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/command"
	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
	"weir/model"
)

// deskOf is a desk that notes what it is told. A command is live until it is ended, or is called off.
type deskOf struct {
	mu       sync.Mutex
	off      bool
	progress []string
	ended    []command.Receipt
}

func (d *deskOf) Reachable(int64) {}
func (d *deskOf) Claim(_ int64, _ string, done func(command.Dispatch, bool)) {
	done(command.Dispatch{}, false)
}

func (d *deskOf) Ended(r command.Receipt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = append(d.ended, r)
}

func (d *deskOf) Progress(p command.Progress) {
	d.mu.Lock()
	live := !d.off
	if live && (len(d.progress) == 0 || d.progress[len(d.progress)-1] != p.Text) {
		d.progress = append(d.progress, p.Text)
	}
	d.mu.Unlock()
	p.Done(live)
}

func (d *deskOf) told() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.progress)
}

// lastEnd waits for the end of a dispatch.
func (d *deskOf) lastEnd(t *testing.T) (r command.Receipt) {
	t.Helper()
	poll.True(t, "the dispatch ends", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.ended) == 0 {
			return false
		}
		r = d.ended[len(d.ended)-1]
		return true
	})
	return r
}

// artifactsOf are artifacts by token.
type artifactsOf map[string][]byte

func (all artifactsOf) Find(_ context.Context, _ int64, token string) (*model.Artifact, error) {
	b, ok := all[token]
	if !ok {
		return nil, nil
	}
	sum := sha256.Sum256(b)
	return &model.Artifact{Token: token, Version: "2.0", Bytes: int64(len(b)), SHA256: hex.EncodeToString(sum[:]), Body: int64(len(token))}, nil
}

func (all artifactsOf) ReadAt(_ context.Context, a *model.Artifact, p []byte, off int64) (int, error) {
	return bytes.NewReader(all[a.Token]).ReadAt(p, off)
}

// answer waits for the answer to a command.
func (in *intakeOf) answer(t *testing.T) (a model.Response) {
	t.Helper()
	poll.True(t, "the command is answered", func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		if len(in.answers) == 0 {
			return false
		}
		a = in.answers[0]
		return true
	})
	return a
}

// fleet is a server with artifacts, and a device on it.
type fleet struct {
	*life
	in    *intakeOf
	desk  *deskOf
	rows  *rowsOf
	files artifactsOf
	c     *lwm2mpeer.Client
	d     *lwm2mpeer.Machine
	over  atomic.Bool // the test: a device that has restarted finds nobody any more
}

var firmwareSettings = Settings{FirmwareTimeout: time.Minute, CommandTimeout: 5 * time.Second, PublicURI: "coaps://weir.example:5684/"}

func newFleet(t *testing.T, d *lwm2mpeer.Machine, set Settings) *fleet {
	t.Helper()
	f := &fleet{in: &intakeOf{}, desk: &deskOf{}, rows: &rowsOf{rows: map[int64]Registration{}}, files: artifactsOf{"fw": packageOf(40_000), "tiny": []byte("one block"), "big": packageOf(3_000_000)}, d: d}
	f.life = f.start(t, set)
	relay, err := lwm2mpeer.NewRelay(f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(relay.Close)
	if f.c, err = lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: relay.Address(), Identity: "meter", Key: []byte("0123456789abcdef"), Timeout: time.Minute, Handle: d.Handle}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.over.Store(true)
		_ = f.c.Close()
	})
	f.register(t)
	d.Lock()
	if d.Restart == nil {
		d.Restart = func() { f.restart(t) }
	}
	d.Unlock()
	return f
}

func (f *fleet) start(t *testing.T, set Settings) *life {
	return live(t, f.in, f.rows, set, func(deps *Deps) { deps.Desk, deps.Artifacts = f.desk, f.files })
}

func (f *fleet) register(t *testing.T) {
	if _, err := f.c.Register(context.WithoutCancel(t.Context()), []string{"ep=meter", "lt=300", "lwm2m=1.1"}, "</3/0>,</5/0>"); err != nil && !f.over.Load() {
		t.Error(err)
	}
}

// restart is what a device does that applies a package.
func (f *fleet) restart(t *testing.T) {
	f.d.Lock()
	f.d.State, f.d.Result = stateIdle, f.d.Becomes
	if f.d.Forgets {
		f.d.Result = 0
	}
	if f.d.Becomes == resultUpdated {
		f.d.Version = f.d.Next
	}
	f.d.Unlock()
	f.register(t)
}

// update begins an update.
func (f *fleet) update(artifact string) {
	payload := `{"artifact":"` + artifact + `"}`
	f.carrier.deliver(command.Dispatch{TenantID: 1, DeviceID: 7, Device: "meter", Token: "c1", Name: firmwareCommand, Payload: &payload, Nonce: "n1"}, false)
}

func (f *fleet) stored() (n int) {
	f.rows.mu.Lock()
	defer f.rows.mu.Unlock()
	return len(f.rows.firmware)
}

func packageOf(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	return b
}

func TestAFirmwareUpdateEndsWhenTheDeviceSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		d        *lwm2mpeer.Machine
		artifact string
		want     string // of the result, or of the error
		fails    bool
	}{
		"pushed":                                  {&lwm2mpeer.Machine{Becomes: 1, Next: "2.0"}, "fw", `"firmwareVersion":"2.0"`, false},
		"in one block":                            {&lwm2mpeer.Machine{Becomes: 1, Next: "2.0"}, "tiny", `"result":1`, false},
		"in small blocks":                         {&lwm2mpeer.Machine{Becomes: 1, Next: "2.0", Block: 256}, "fw", `"result":1`, false},
		"over a package of before":                {&lwm2mpeer.Machine{Becomes: 1, Next: "2.0", State: stateDownloaded}, "fw", `"result":1`, false},
		"the device forgets its result":           {&lwm2mpeer.Machine{Becomes: 1, Next: "2.0", Forgets: true}, "fw", `"firmwareVersion":"2.0"`, false},
		"the device fails":                        {&lwm2mpeer.Machine{Becomes: 8}, "fw", "the update failed (/5/0/5 is 8)", true},
		"the device says success, and has not":    {&lwm2mpeer.Machine{Becomes: 1, Next: "1.0"}, "fw", "reports success, yet its firmware version", true},
		"the package is refused":                  {&lwm2mpeer.Machine{Refuse: lwm2mpeer.Code2(4, 15)}, "fw", "4.15", true},
		"the device applies another":              {&lwm2mpeer.Machine{State: stateUpdating}, "fw", "applies another firmware", true},
		"the package is too large for the device": {&lwm2mpeer.Machine{Refuse: lwm2mpeer.Code2(4, 13)}, "fw", "4.13", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := c.d
			d.Version, d.Delivery = "1.0", 1
			f := newFleet(t, d, firmwareSettings)
			f.update(c.artifact)
			a := f.in.answer(t)
			if a.Success == c.fails || a.Nonce != "n1" || a.Command != "c1" || !strings.Contains(a.Payload+a.Error, c.want) {
				t.Fatalf("%+v, want %s", a, c.want)
			}
			if r := f.desk.lastEnd(t); r.End != command.Acknowledged || r.Nonce != "n1" {
				t.Errorf("%+v", r)
			}
			if d.Lock(); !c.fails && (!bytes.Equal(d.Got, f.files[c.artifact]) || d.Applied != 1) {
				t.Errorf("the device has %d bytes, and was told %d times", len(d.Got), d.Applied)
			}
			d.Unlock()
			if told := f.desk.told(); !c.fails && !slices.Equal(told, []string{"waiting", "transferring", "downloaded", "updating"}) {
				t.Errorf("told: %q", told)
			}
			poll.True(t, "nothing of it is stored", func() bool { return f.stored() == 0 })
		})
	}
}

// TestAnUpdateIsNotDoneBeforeTheDeviceIsBack: an order that was answered 2.04 says nothing yet.
func TestAnUpdateIsNotDoneBeforeTheDeviceIsBack(t *testing.T) {
	t.Parallel()
	applies := make(chan struct{})
	d := &lwm2mpeer.Machine{Version: "1.0", Next: "2.0", Becomes: 1, Delivery: 1, Restart: func() { close(applies) }}
	f := newFleet(t, d, firmwareSettings)
	f.update("tiny")
	<-applies
	poll.True(t, "it is looked at the device again", func() bool { return slices.Contains(f.desk.told(), "updating") })
	time.Sleep(2 * lookInterval)
	f.in.mu.Lock()
	if n := len(f.in.answers); n != 0 {
		t.Errorf("%d answers while the device applies its package", n)
	}
	f.in.mu.Unlock()
	f.restart(t)
	if a := f.in.answer(t); !a.Success {
		t.Errorf("%+v", a)
	}
}

func TestADeviceFetchesItsFirmware(t *testing.T) {
	t.Parallel()
	d := &lwm2mpeer.Machine{Version: "1.0", Next: "2.0", Becomes: 1, Delivery: 0}
	f := newFleet(t, d, firmwareSettings)
	f.update("fw")
	var path string
	poll.True(t, "the device is told where", func() bool {
		d.Lock()
		defer d.Unlock()
		rest, ok := strings.CutPrefix(d.URI, "coaps://weir.example:5684")
		path = rest
		return ok
	})
	if answer, err := f.c.Request(t.Context(), 1, "/fw/other", nil, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(4, 4) {
		t.Errorf("another path: %+v %v", answer, err)
	}
	var got []byte
	for n := 0; ; n++ {
		m := &lwm2mpeer.Message{Code: 1, Token: "f"}
		for s := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			m.Options = append(m.Options, lwm2mpeer.Option{Number: 11, Value: []byte(s)})
		}
		m.Options = append(m.Options, lwm2mpeer.Option{Number: 23, Value: []byte{byte(n >> 4), byte(n<<4 | 5)}}) // blocks of 512 bytes
		answer, err := f.c.Ask(t.Context(), m)
		if err != nil || answer.Code != lwm2mpeer.Code2(2, 5) || answer.Uint(12) != 42 || answer.Uint(28) != 40_000 {
			t.Fatalf("block %d: %+v %v", n, answer, err)
		}
		got = append(got, answer.Payload...)
		if answer.Uint(23)&8 == 0 {
			break
		}
	}
	if !bytes.Equal(got, f.files["fw"]) {
		t.Fatalf("%d bytes came", len(got))
	}
	d.Lock()
	d.State = stateDownloaded
	d.Unlock()
	if a := f.in.answer(t); !a.Success {
		t.Errorf("%+v", a)
	}
	if answer, err := f.c.Request(t.Context(), 1, path, nil, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(4, 4) {
		t.Errorf("after its end: %+v %v", answer, err)
	}
}

// TestAnUpdateGoesOnAfterACrash in the middle of its transfer: the same device, the same command, no handshake.
func TestAnUpdateGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	d := &lwm2mpeer.Machine{Version: "1.0", Next: "2.0", Becomes: 1, Delivery: 1, Hold: 20}
	f := &fleet{in: &intakeOf{}, desk: &deskOf{}, rows: &rowsOf{rows: map[int64]Registration{}}, files: artifactsOf{"fw": packageOf(40_000)}, d: d}
	f.life = f.start(t, firmwareSettings)
	relay, err := lwm2mpeer.NewRelay(f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	if f.c, err = lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: relay.Address(), Identity: "meter", Key: []byte("0123456789abcdef"), Timeout: time.Minute, Handle: d.Handle}); err != nil {
		t.Fatal(err)
	}
	defer f.c.Close()
	d.Restart = func() { f.restart(t) }
	f.register(t)
	f.update("fw")
	poll.True(t, "the transfer is on its way", func() bool { d.Lock(); defer d.Unlock(); return len(d.Got) == 20*1024 })
	crashed := f.rows.copyOf()
	f.stop()
	f.in.mu.Lock()
	if len(f.in.answers) != 0 {
		t.Errorf("the stop has ended it: %+v", f.in.answers)
	}
	f.in.mu.Unlock()
	d.Lock()
	d.Hold = 0
	d.Unlock()
	f.rows = crashed
	f.life = f.start(t, firmwareSettings)
	if err := relay.Target(f.address); err != nil {
		t.Fatal(err)
	}
	if a := f.in.answer(t); !a.Success || a.Nonce != "n1" {
		t.Fatalf("%+v", a)
	}
	if d.Lock(); !bytes.Equal(d.Got, f.files["fw"]) || d.Applied != 1 {
		t.Errorf("the device has %d bytes, and was told %d times", len(d.Got), d.Applied)
	}
	d.Unlock()
	if n := relay.Hellos(); n != 1 {
		t.Errorf("%d handshakes", n)
	}
	if twice := relay.Twice(); len(twice) != 0 {
		t.Errorf("numbers used twice: %q", twice)
	}
}

func TestAnUpdateThatIsCalledOffIsForTheDeviceToo(t *testing.T) {
	t.Parallel()
	d := &lwm2mpeer.Machine{Version: "1.0", Delivery: 1}
	f := newFleet(t, d, firmwareSettings)
	f.update("big")
	poll.True(t, "the transfer is on its way", func() bool { d.Lock(); defer d.Unlock(); return len(d.Got) > 10*1024 })
	f.desk.mu.Lock()
	f.desk.off = true
	f.desk.mu.Unlock()
	f.carrier.Over(7, "c1", "other") // another dispatch
	f.carrier.Over(7, "c1", "n1")
	poll.True(t, "the device is told", func() bool { d.Lock(); defer d.Unlock(); return d.Resets == 1 && d.Got == nil })
	poll.True(t, "nothing of it is stored", func() bool { return f.stored() == 0 })
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	if d.Lock(); len(f.in.answers) != 0 || d.Applied != 0 {
		t.Errorf("%+v, applied %d times", f.in.answers, d.Applied)
	}
	d.Unlock()
}

func TestAnUpdateThatTakesTooLongFails(t *testing.T) {
	t.Parallel()
	set := firmwareSettings
	set.FirmwareTimeout = 3 * time.Second
	d := &lwm2mpeer.Machine{Version: "1.0", Delivery: 1, Hold: 5}
	f := newFleet(t, d, set)
	f.update("fw")
	if r := f.desk.lastEnd(t); r.End != command.Undeliverable || !strings.Contains(r.Text, "firmware_timeout") || !strings.Contains(r.Text, "transferring") {
		t.Errorf("%+v", r)
	}
	poll.True(t, "the device is told", func() bool { d.Lock(); defer d.Unlock(); return d.Resets == 1 })
}

func TestWhatIsNoUpdateIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, &lwm2mpeer.Machine{Version: "1.0", Delivery: 1, Hold: 5}, firmwareSettings)
	for payload, want := range map[string]string{`{}`: "artifact is required", `{"artifact":"none"}`: "there is no", `{"artifact":"fw","x":1}`: "no parameter"} {
		f.desk.mu.Lock()
		f.desk.ended = nil
		f.desk.mu.Unlock()
		f.carrier.deliver(command.Dispatch{TenantID: 1, DeviceID: 7, Device: "meter", Token: "c2", Name: firmwareCommand, Payload: &payload, Nonce: "n2"}, false)
		if r := f.desk.lastEnd(t); r.End != command.Undeliverable || !strings.Contains(r.Text, want) {
			t.Errorf("%s: %+v", payload, r)
		}
	}
	f.update("fw")
	poll.True(t, "it is under way", func() bool { return f.stored() == 1 })
	f.desk.mu.Lock()
	f.desk.ended = nil
	f.desk.mu.Unlock()
	payload := `{"artifact":"fw"}`
	f.carrier.deliver(command.Dispatch{TenantID: 1, DeviceID: 7, Device: "meter", Token: "c3", Name: firmwareCommand, Payload: &payload, Nonce: "n3"}, false)
	if r := f.desk.lastEnd(t); r.End != command.Undeliverable || !strings.Contains(r.Text, "under way: the command c1") {
		t.Errorf("%+v", r)
	}
}
