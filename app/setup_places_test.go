package app

import (
	"context"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"weir/config"
)

func TestSetupIsFoundWhereTheAPIIsReached(t *testing.T) {
	t.Parallel()
	own := []netip.Addr{}
	for _, a := range []string{"127.0.0.1", "192.168.1.7", "169.254.3.4", "::1", "fe80::1", "fd00::7"} {
		own = append(own, netip.MustParseAddr(a))
	}
	for _, c := range []struct{ base, listen, name, want string }{
		{"https://iot.example.org/weir/", "[::]:8080", "gateway", "https://iot.example.org/weir"},
		{"", "[::]:8080", "gateway", "http://gateway:8080 http://192.168.1.7:8080 http://169.254.3.4:8080 http://[fd00::7]:8080"},
		{"", "0.0.0.0:80", "gateway", "http://gateway:80 http://192.168.1.7:80 http://169.254.3.4:80"},
		{"", "[::]:8080", "localhost", "http://192.168.1.7:8080 http://169.254.3.4:8080 http://[fd00::7]:8080"},
		{"", "192.168.1.7:8080", "gateway", "http://192.168.1.7:8080"},
		{"", "127.0.0.1:8080", "gateway", "http://127.0.0.1:8080"},
		{"", "[::1]:8080", "gateway", "http://[::1]:8080"},
	} {
		if got := strings.Join(setupPlaces(c.base, c.listen, c.name, own), " "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if got := setupPlaces("", "[::]:8080", "", nil); len(got) != 1 || got[0] != "http://127.0.0.1:8080" {
		t.Errorf("without a network: %q", got)
	}
	many := make([]netip.Addr, 100)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	}
	if got := setupPlaces("", "[::]:8080", "gateway", many); len(got) != 8 {
		t.Errorf("with many networks there are %d", len(got))
	}
}

func TestSetupHintIsForAPageThatOnlyTheMachineReaches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base, listen string
		told         bool
	}{{"", "127.0.0.1:8080", true}, {"", "[::1]:8080", true}, {"", "[::]:8080", false}, {"", "10.0.0.7:8080", false}, {"http://gateway", "127.0.0.1:8080", false}} {
		if got := setupHint(c.base, c.listen); (got != "") != c.told || c.told && !strings.Contains(got, "ssh -L 8080:"+c.listen) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestPlainHostIsSafeInACommand(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"gateway.lan": "gateway.lan", "gateway.lan:8080": "gateway.lan", "10.0.0.7:80": "10.0.0.7", "[fd00::7]:80": "fd00::7",
		"my_host": "my_host", "": "", "a;reboot": "", "a$(b)": "", "a'b": "", "a b": "", "-oProxy": "", "héllo": "", strings.Repeat("a", 254): ""} {
		if got := plainHost(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestTheCommandsNameTheHostThatThePageWasOpenedOn(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir() + "/d"
	cfg.Listeners = config.Listeners{API: "127.0.0.1:0"}
	in := New(cfg, Options{})
	ctx, stop := context.WithCancel(t.Context())
	err := in.Run(ctx, func() {
		defer stop()
		secret, _, err := in.setup.links.Mint()
		if err != nil {
			t.Error(err)
			return
		}
		page, err := in.setup.links.Redeem(secret, func() error { return nil })
		if err != nil {
			t.Error(err)
			return
		}
		r := httptest.NewRequestWithContext(ctx, "POST", "http://gateway.lan:8080/setup/v1/device", nil)
		if _, err := in.setup.makeTenant(r, setupTenant{Page: page, Token: "acme"}); err != nil {
			t.Error(err)
			return
		}
		in.addrs.MQTT, in.addrs.Ingest = "[::]:1883", "0.0.0.0:8081" // as if they were open on every interface
		made, err := in.setup.makeDevice(r, setupDevice{Page: page, Token: "d1"})
		if err != nil || len(made.Snippets) != 3 || !strings.HasPrefix(made.Snippets[0].Text, "mosquitto_pub -h gateway.lan -p 1883 ") ||
			!strings.HasPrefix(made.Snippets[1].Text, "curl -i http://gateway.lan:8081/weir/acme/events ") ||
			!strings.Contains(made.Snippets[2].Text, `"http://gateway.lan:8081/weir/acme/events"`) {
			t.Errorf("%+v, %v", made, err)
		}
	}, nil)
	if err != nil {
		t.Error(err)
	}
}
