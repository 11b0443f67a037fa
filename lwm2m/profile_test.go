package lwm2m

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
	"weir/lwm2m/content"
	"weir/model"
)

// TestWhatAProfileObserves: what it names, with its notification attributes, in its format, some of it together; what the device does not have, or
// refuses, is told. Numbers that it names become attributes, positions locations. A profile that changes counts from the next Update on.
func TestWhatAProfileObserves(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	said := `{"observe":[{"path":"/3303/0/5700","pmin":5,"pmax":60,"st":0.5,"format":"text"},{"path":"/3304/0"},{"path":"/3300/0/5700","composite":true},{"path":"/3301/0/5700","composite":true,"pmin":1}],
		"attributes":["/3303/0/5601","/3/0/9"],"location":true}`
	in, rows := &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}
	s := live(t, in, rows, Settings{}, func(d *Deps) {
		d.Profile = func(context.Context, model.Binding) (*model.LwM2MProfile, []model.MetricView, error) {
			mu.Lock()
			defer mu.Unlock()
			p, err := model.ParseLwM2MProfile([]byte(said))
			return p, nil, err
		}
	})
	var asked []string
	c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: s.address, Identity: "meter", Key: []byte("0123456789abcdef"), Timeout: time.Minute,
		Handle: func(m *lwm2mpeer.Message) *lwm2mpeer.Message {
			mu.Lock()
			defer mu.Unlock()
			line := fmt.Sprintf("%d %s %s", m.Code, m.Path(11), strings.Join(m.Queries(), "&"))
			if m.Uint(6) == 0 {
				line += fmt.Sprintf("observe %d", m.Uint(17))
			}
			asked = append(asked, line)
			body := func(format int, text string) *lwm2mpeer.Message {
				return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 5), Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{byte(format)}}}, Payload: []byte(text)}
			}
			switch path := m.Path(11); {
			case m.Code == 3 && path == "/3301/0/5700":
				return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 5)}
			case m.Code == 3:
				return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 4)}
			case m.Code == 5 && m.Uint(17) == 112:
				return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 6)}
			case m.Code == 5:
				return body(110, `[{"n":"/3300/0/5700","v":1},{"n":"/3301/0/5700","v":2}]`)
			case path == "/3303/0/5700":
				return body(0, "21.5")
			case path == "/6/0":
				return body(110, `[{"n":"/6/0/0","v":52.5},{"n":"/6/0/1","v":13.4},{"n":"/6/0/6","v":3},{"n":"/6/0/5","v":1e9}]`)
			case path == "/3/0/9":
				return body(110, `[{"n":"/3/0/9","v":80}]`)
			}
			return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 4)}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	at, err := c.Register(t.Context(), []string{"lt=300", "lwm2m=1.1"}, "</1/0>,</3/0>,</6/0>,</3300/0>,</3301/0>,</3303/0>")
	if err != nil {
		t.Fatal(err)
	}
	in.until(t, "/3/0/9", "80")
	observed := func() (all []string) {
		for _, o := range s.Seen(1, nil)[0].Observed {
			all = append(all, strings.Join(o.Paths, " ")+" "+o.Format)
		}
		return all
	}
	if got, want := observed(), []string{"/3300/0/5700 /3301/0/5700 senml-json", "/3303/0/5700 text", "/6/0 senml-cbor"}; !slices.Equal(got, want) {
		t.Errorf("observed is %q, want %q", got, want)
	}
	if got, want := fmt.Sprint(s.Seen(1, nil)[0].Refused), "map[/3301/0/5700?pmin=1:4.05 /3304/0:the device does not list it]"; got != want {
		t.Errorf("refused is %s, want %s", got, want)
	}
	mu.Lock()
	told := slices.DeleteFunc(slices.Clone(asked), func(s string) bool { return strings.HasPrefix(s, "1 /3/0/") })
	mu.Unlock()
	if want := []string{"3 /3303/0/5700 pmin=5&pmax=60&st=0.5", "1 /3303/0/5700 observe 0", "3 /3301/0/5700 pmin=1", "5 / observe 112", "5 / observe 110", "1 /6/0 observe 112", "1 /3303/0/5601 "}; !slices.Equal(told, want) {
		t.Errorf("the device was asked\n%q, want\n%q", told, want)
	}
	if _, err := c.Notify(t.Context(), "/3303/0/5700", 110, []byte(`[{"n":"/3303/0/5700","v":22},{"n":"/3303/0/5601","v":20}]`)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Notify(t.Context(), "/", 110, []byte(`[{"n":"/3300/0/5700","v":3}]`)); err != nil {
		t.Fatal(err)
	}
	in.until(t, "/3303/0/5601", "20")
	in.mu.Lock()
	if want := []float64{21.5, 1, 2, 22, 3}; !slices.Equal(in.readings, want) {
		t.Errorf("the readings are %v, want %v", in.readings, want)
	}
	if len(in.locations) != 1 || in.locations[0].Latitude != 52.5 || in.locations[0].Longitude != 13.4 || in.locations[0].Speed != 3 {
		t.Errorf("the locations are %+v", in.locations)
	}
	in.mu.Unlock()
	mu.Lock()
	said = `{"observe":[{"path":"/3303/0/5700","pmin":6,"format":"text"}]}`
	asked = nil
	mu.Unlock()
	if answer, err := c.Request(t.Context(), 2, at, nil, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(2, 4) {
		t.Fatalf("%+v %v", answer, err)
	}
	poll.True(t, "the new profile counts", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(asked, []string{"3 /3303/0/5700 pmin=6", "1 /3303/0/5700 observe 0"})
	})
	poll.True(t, "nothing else is observed", func() bool { return slices.Equal(observed(), []string{"/3303/0/5700 text"}) })
}

// TestMetricsGiveTypes: a resource that no definition knows has the type of the profile's metric of its path; a value that is none is left out, and the others count.
func TestMetricsGiveTypes(t *testing.T) {
	t.Parallel()
	in, rows := &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}
	s := live(t, in, rows, Settings{}, func(d *Deps) {
		d.Profile = func(context.Context, model.Binding) (*model.LwM2MProfile, []model.MetricView, error) {
			p, err := model.ParseLwM2MProfile([]byte(`{"observe":[{"path":"/32770/0","format":"tlv"}]}`))
			return p, []model.MetricView{{Key: "/32770/0/1", DataType: "DOUBLE"}, {Key: "count", SourceNames: []string{"/32770/0/2"}, DataType: "INT"}, {Key: "/32770/0/3", DataType: "BOOLEAN"},
				{Key: "/32770/0/4", DataType: "STRING"}, {Key: "/32770/0/6", DataType: "DOUBLE"}, {Key: "/32770/0/7", DataType: "BOOLEAN"}, {Key: "/32770/0", DataType: "DOUBLE"}}, err
		}
	})
	tlv := "\xc8\x01\x08\x40\x35\x80\x00\x00\x00\x00\x00" + // 21.5
		"\xc2\x02\x01\x00" + // 256
		"\xc1\x03\x01" + // true
		"\xc3\x04abc" +
		"\xc1\x05\x05" + // nothing is declared
		"\xc1\x06\x07" + // a whole number where a metric may have fractions
		"\xc2\x07\x01\x00" // no boolean
	c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: s.address, Identity: "meter", Key: []byte("0123456789abcdef"), Timeout: time.Minute,
		Handle: func(m *lwm2mpeer.Message) *lwm2mpeer.Message {
			if m.Code == 1 && m.Path(11) == "/32770/0" {
				return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 5), Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{0x2d, 0x16}}}, Payload: []byte(tlv)}
			}
			return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 4)}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Register(t.Context(), []string{"lt=300", "lwm2m=1.0"}, "</1/0>,</3/0>,</32770/0>"); err != nil {
		t.Fatal(err)
	}
	in.until(t, "/32770/0/4", "abc")
	in.mu.Lock()
	defer in.mu.Unlock()
	if want := []float64{21.5, 256, 1, 7}; !slices.Equal(in.readings, want) {
		t.Errorf("the readings are %v, want %v", in.readings, want)
	}
}

func TestPositions(t *testing.T) {
	t.Parallel()
	number := func(path string, v float64) content.Record {
		p, _ := content.ParsePath(path)
		return content.Record{Path: p, Value: content.Value{Kind: content.Float, Float: v}}
	}
	text := func(path, v string) content.Record {
		p, _ := content.ParsePath(path)
		return content.Record{Path: p, Value: content.Value{Kind: content.String, Text: v}}
	}
	for name, c := range map[string]struct {
		records []content.Record
		want    string
		rest    int
	}{
		"location":            {[]content.Record{number("/6/0/0", 1), number("/6/0/1", 2), number("/6/0/2", 3), number("/6/0/3", 4), number("/6/0/6", 5)}, "1 2 3 4 5", 0},
		"of IPSO":             {[]content.Record{number("/3336/1/6051", 1), number("/3336/1/6052", 2), number("/3336/1/6053", 3), number("/3336/1/5705", 3)}, "1 2 NaN 3 NaN", 1},
		"of IPSO, as texts":   {[]content.Record{text("/3336/0/5513", "1.5"), text("/3336/0/5514", " -2 ")}, "1.5 -2 NaN NaN NaN", 0},
		"no longitude":        {[]content.Record{number("/6/0/0", 1)}, "", 1},
		"none of this earth":  {[]content.Record{number("/6/0/0", 91), number("/6/0/1", 2)}, "", 2},
		"a text is no number": {[]content.Record{text("/3336/0/5513", "north"), text("/3336/0/5514", "2")}, "", 2},
		"something else":      {[]content.Record{number("/3303/0/5700", 1)}, "", 1},
	} {
		m, rest := positions(c.records)
		var got strings.Builder
		if m != nil {
			for _, l := range m.Locations {
				got.WriteString(fmt.Sprint(l.Latitude, l.Longitude, l.Elevation, l.Accuracy, l.Speed))
			}
		}
		if got.String() != c.want || len(rest) != c.rest {
			t.Errorf("%s: %q and %d records", name, got.String(), len(rest))
		}
	}
}
