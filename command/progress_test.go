package command

import (
	"slices"
	"testing"
	"time"

	"weir/model"
)

// tell tells the progress of a dispatch and returns whether it is still under way.
func (c *carrier) tell(d Dispatch, text string) (live bool) {
	c.w.Helper()
	told := false
	c.w.Progress(Progress{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Carrier: c.traits.Name, Text: text, Done: func(l bool) { live, told = l, true }})
	c.w.settle()
	if !told {
		c.w.Fatal("nobody was told whether the dispatch is under way")
	}
	return live
}

// long is a world with a command whose exchange takes long.
func long(t *testing.T, o Order) (w *world, d Dispatch) {
	t.Helper()
	w = newWorld(t)
	pump := w.device("pump", "mqtt1")
	w.carrier.traits = Traits{Name: "lwm2m", Sources: []string{"mqtt1"}, ByAnswer: true}
	w.carrier.connect(pump)
	o.Token, o.Device = "c1", "pump"
	w.order(o)
	w.settle()
	return w, w.carrier.flying[0]
}

func TestProgressIsShownAndKeepsACommandFromBeingStranded(t *testing.T) {
	w, d := long(t, Order{})
	events := w.Events.Subscribe(nil, 10)
	defer events.Close()
	for range 2 {
		if !w.carrier.tell(d, model.ProgressTransferring) {
			t.Fatal("a dispatch that is under way is not live")
		}
	}
	if c, err := events.Next(t.Context()); err != nil || c.Progress != "transferring" || c.State != sent {
		t.Errorf("a follower got %+v, %v", c, err)
	}
	w.pass(2 * time.Hour)
	if c := w.expect("c1", sent); c.Progress != "transferring" || c.Nonce != d.Nonce {
		t.Errorf("stored: %+v", c)
	}
	if done := w.answer(Response{DeviceID: d.DeviceID, Token: "c1", Nonce: d.Nonce, Success: true}); done != Moved {
		t.Fatal(done)
	}
	w.expect("c1", successful)
	if !slices.Equal(w.carrier.over, []string{d.Nonce}) {
		t.Errorf("over: %q", w.carrier.over)
	}
	if w.carrier.tell(d, model.ProgressUpdating) {
		t.Error("a dispatch whose command is final is live")
	}
}

func TestACommandWithoutProgressIsStranded(t *testing.T) {
	w, _ := long(t, Order{})
	w.pass(time.Hour)
	if c := w.get("c1"); c.Nonce == w.carrier.all[0].Nonce && c.State == sent {
		t.Errorf("%+v", c)
	}
	if len(w.carrier.over) != 0 {
		t.Errorf("over: %q", w.carrier.over)
	}
}

func TestACommandIsCalledOffUntilItsDeviceAppliesIt(t *testing.T) {
	for progress, want := range map[string]State{"": sent, model.ProgressWaiting: cancelled, model.ProgressTransferring: cancelled, model.ProgressDownloaded: cancelled, model.ProgressUpdating: sent} {
		w, d := long(t, Order{})
		if progress != "" {
			w.carrier.tell(d, progress)
		}
		if c, err := w.Cancel(t.Context(), caller(), "c1"); err != nil || c.State != want {
			t.Errorf("%q: %+v, %v", progress, c, err)
		}
		w.expect("c1", want)
		if want == cancelled != slices.Equal(w.carrier.over, []string{d.Nonce}) {
			t.Errorf("%q: over: %q", progress, w.carrier.over)
		}
	}
}

func TestALifeThatEndsEndsWhatTakesLong(t *testing.T) {
	w, d := long(t, Order{Expires: model.MicrosOf(time.Date(2030, 1, 1, 0, 5, 0, 0, time.UTC))})
	w.carrier.tell(d, model.ProgressTransferring)
	w.pass(6 * time.Minute)
	w.expect("c1", timedOut)
	if !slices.Equal(w.carrier.over, []string{d.Nonce}) {
		t.Errorf("over: %q", w.carrier.over)
	}
}
