package sparkplug

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

var topics = []struct {
	topic    string
	want     Topic
	external string
}{
	{"spBv1.0/g/NBIRTH/n", Topic{NBIRTH, "g", "n", ""}, "g/n"},
	{"spBv1.0/g/NDATA/n", Topic{NDATA, "g", "n", ""}, "g/n"},
	{"spBv1.0/g/NDEATH/n", Topic{NDEATH, "g", "n", ""}, "g/n"},
	{"spBv1.0/g/NCMD/n", Topic{NCMD, "g", "n", ""}, "g/n"},
	{"spBv1.0/g/DBIRTH/n/d", Topic{DBIRTH, "g", "n", "d"}, "g/n/d"},
	{"spBv1.0/g/DDATA/n/d", Topic{DDATA, "g", "n", "d"}, "g/n/d"},
	{"spBv1.0/g/DDEATH/n/d", Topic{DDEATH, "g", "n", "d"}, "g/n/d"},
	{"spBv1.0/g/DCMD/n/d", Topic{DCMD, "g", "n", "d"}, "g/n/d"},
	{"spBv1.0/Werk Süd/NDATA/Presse 7", Topic{NDATA, "Werk Süd", "Presse 7", ""}, "Werk Süd/Presse 7"},
}

var badTopics = []string{"", "spBv1.0", "spBv1.0/g/NDATA", "spBv1.0/g/NDATA/n/d", "spBv1.0/g/DDATA/n", "spBv1.0/g/DDATA/n/d/e", "spAv1.0/g/NDATA/n", "STATE/host",
	"spBv1.0/STATE/host", "spBv1.0//NDATA/n", "spBv1.0/g/NDATA/", "spBv1.0/g/DDATA/n/", "spBv1.0/g/ndata/n", "spBv1.0/g//n", "spBv1.0/g/NDATA/\xff", "spBv1.0/g/NDATA/a+b",
	"spBv1.0/g/NDATA/a\x00", "spBv1.0/g/NDATA/" + strings.Repeat("x", 129), strings.Repeat("x", 1<<16), "spBv1.0/g/STATE/n"}

func TestTopics(t *testing.T) {
	t.Parallel()
	for _, c := range topics {
		got, err := ParseTopic(c.topic)
		if err != nil || got != c.want || got.ExternalID() != c.external {
			t.Errorf("%s: %+v %q, %v", c.topic, got, got.ExternalID(), err)
		}
	}
	for _, topic := range badTopics {
		if got, err := ParseTopic(topic); !errors.Is(err, ErrTopic) {
			t.Errorf("%s: %+v, %v", cut(topic), got, err)
		}
	}
}

// TestWhatIsSubscribedTo: tck-id-message-flow-phid-sparkplug-subscription, tck-id-host-topic-phid-birth-sub-required.
func TestWhatIsSubscribedTo(t *testing.T) {
	t.Parallel()
	if got := filters("h", nil); !slices.Equal(got, []string{"spBv1.0/#", "spBv1.0/STATE/h"}) {
		t.Error(got)
	}
	if got := filters("h", []string{"a", "b"}); !slices.Equal(got, []string{"spBv1.0/a/#", "spBv1.0/b/#", "spBv1.0/STATE/h"}) {
		t.Error(got)
	}
	if got := commandTopic("g/n"); got != "spBv1.0/g/NCMD/n" { // tck-id-topics-ncmd-topic
		t.Error(got)
	}
}

func FuzzParseTopic(f *testing.F) {
	for _, c := range topics {
		f.Add(c.topic)
	}
	for _, topic := range badTopics {
		f.Add(topic)
	}
	f.Fuzz(func(t *testing.T, topic string) {
		got, err := ParseTopic(topic)
		if err != nil {
			if !errors.Is(err, ErrTopic) {
				t.Fatal(err)
			}
			return
		}
		again := strings.Join([]string{namespace, got.Group, got.Kind.String(), got.Node}, "/")
		if got.Device != "" {
			again += "/" + got.Device
		}
		if again != topic || len(got.ExternalID()) > 3*maxPart+2 {
			t.Fatalf("%q is read as %+v", topic, got)
		}
	})
}

var states = map[string]HostState{`{"online":true,"timestamp":1700000000000}`: {true, 1700000000000}, `{"online":false,"timestamp":0}`: {false, 0},
	` {"timestamp": 5, "online": false, "more": {}} `: {false, 5}}

var badStates = []string{"", "ONLINE", "OFFLINE", "{}", `{"online":true}`, `{"timestamp":1}`, `{"online":"true","timestamp":1}`, `{"online":true,"timestamp":"1"}`,
	`{"online":true,"timestamp":1.5}`, `{"online":true,"timestamp":1}{}`, `[]`, `null`, `{"online":null,"timestamp":1}`, strings.Repeat(" ", maxState+1)}

// TestStateMessages: tck-id-host-topic-phid-birth-payload, tck-id-host-topic-phid-death-payload.
func TestStateMessages(t *testing.T) {
	t.Parallel()
	for text, want := range states {
		if got, err := ParseState([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range badStates {
		if got, err := ParseState([]byte(text)); !errors.Is(err, ErrState) {
			t.Errorf("%s: %+v, %v", cut(text), got, err)
		}
	}
	if got := string(HostState{true, 1700000000000}.Append(nil)); got != `{"online":true,"timestamp":1700000000000}` {
		t.Error(got)
	}
}

func FuzzParseState(f *testing.F) {
	for text := range states {
		f.Add([]byte(text))
	}
	for _, text := range badStates {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseState(b)
		if err != nil {
			if !errors.Is(err, ErrState) {
				t.Fatal(err)
			}
			return
		}
		if again, err := ParseState(s.Append(nil)); err != nil || again != s {
			t.Fatalf("%+v is read as %+v, %v", s, again, err)
		}
	})
}
