package operate

import (
	"encoding/json"
	"slices"
	"testing"
)

func someListeners() Listeners {
	return Listeners{
		{Name: "api", Key: "listeners.api", Configured: ":1", Address: "[::]:1"},
		{Name: "api_tls", Key: "listeners.api_tls", TLS: true},
		{Name: "mqtts", Key: "listeners.mqtts", Configured: "h:2", Address: "10.0.0.1:2", TLS: true},
		{Name: "open_topics", Key: "broker.open_topics", Configured: "h:3", Address: "10.0.0.1:3"},
		{Name: "socket", Address: "/d/weir.sock"},
	}
}

func TestTheListenersThatAreOpenAreAnObjectInTheirOrder(t *testing.T) {
	t.Parallel()
	const want = `{"api":"[::]:1","mqtts":"10.0.0.1:2","openTopics":"10.0.0.1:3","socket":"/d/weir.sock"}`
	for _, ls := range []Listeners{someListeners(), func() (back Listeners) {
		if err := json.Unmarshal([]byte(want), &back); err != nil {
			t.Fatal(err)
		}
		return back
	}()} {
		if got, err := json.Marshal(ls); err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
		if ls.At("open_topics") != "10.0.0.1:3" || ls.At("api_tls") != "" || ls.At("nowhere") != "" {
			t.Errorf("addresses of %+v", ls)
		}
	}
	if got, err := json.Marshal(Listeners(nil)); err != nil || string(got) != "{}" {
		t.Errorf("of none: %s, %v", got, err)
	}
	for _, text := range []string{`[]`, `7`, `{"api":7}`} {
		if err := json.Unmarshal([]byte(text), new(Listeners)); err == nil {
			t.Errorf("%s is read as listeners", text)
		}
	}
}

func TestTheSocketIsNoPort(t *testing.T) {
	t.Parallel()
	ls := someListeners()
	var configured, opened []string
	for _, l := range ls.configured() {
		configured = append(configured, l.Key+" "+l.Address)
	}
	for _, l := range ls.opened() {
		opened = append(opened, l.Key+" "+l.Address)
	}
	if want := []string{"listeners.api :1", "listeners.api_tls ", "listeners.mqtts h:2", "broker.open_topics h:3"}; !slices.Equal(configured, want) {
		t.Errorf("configured %q, want %q", configured, want)
	}
	if want := []string{"listeners.api [::]:1", "listeners.api_tls ", "listeners.mqtts 10.0.0.1:2", "broker.open_topics 10.0.0.1:3"}; !slices.Equal(opened, want) {
		t.Errorf("opened %q, want %q", opened, want)
	}
	if got := ls.Secure(); !slices.Equal(got, []string{"mqtts"}) {
		t.Errorf("with TLS: %q", got)
	}
	for i, want := range []string{"; no TLS", "; TLS", "; TLS", "; no TLS", ""} {
		if got := ls[i].Description(); got != want {
			t.Errorf("%s: %q, want %q", ls[i].Name, got, want)
		}
	}
}
