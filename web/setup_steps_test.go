package web

import (
	"context"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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
		if got := strings.Join(setupURLs(c.base, c.listen, c.name, own), " "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if got := setupURLs("", "[::]:8080", "", nil); len(got) != 1 || got[0] != "http://127.0.0.1:8080" {
		t.Errorf("without a network: %q", got)
	}
	many := make([]netip.Addr, 100)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	}
	if got := setupURLs("", "[::]:8080", "gateway", many); len(got) != 8 {
		t.Errorf("with many networks there are %d", len(got))
	}
}

func TestSetupHintIsForAPageThatOnlyTheMachineReaches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base, listen string
		want         bool
	}{{"", "127.0.0.1:8080", true}, {"", "[::1]:8080", true}, {"", "[::]:8080", false}, {"", "10.0.0.7:8080", false}, {"http://gateway", "127.0.0.1:8080", false}} {
		if got := setupHint(c.base, c.listen); (got != "") != c.want || c.want && !strings.Contains(got, "ssh -L 8080:"+c.listen) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestPlainHostIsSafeInACommand(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"gateway.lan": "gateway.lan", "gateway.lan:8080": "gateway.lan", "10.0.0.7:80": "10.0.0.7", "[fd00::7]:80": "fd00::7",
		"my_host": "my_host", "": "", "a;reboot": "", "a$(b)": "", "a'b": "", "a b": "", "-oProxy": "", "héllo": "", strings.Repeat("a", 254): ""} {
		if got := PlainHost(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

// hostSteps notes the host under which the page was reached.
type hostSteps struct {
	SetupSteps
	host string
}

func (*hostSteps) HasAdministrator() bool { return false }

func (*hostSteps) MakeTenant(_ context.Context, token, _ string) (*SetupTenant, error) {
	return &SetupTenant{Token: token}, nil
}

func (h *hostSteps) MakeDevice(_ context.Context, tenant, token, host string) (*SetupDevice, error) {
	h.host = host
	return &SetupDevice{Tenant: tenant, Token: token}, nil
}

func TestTheDeviceIsMadeForTheHostThatThePageWasOpenedOn(t *testing.T) {
	t.Parallel()
	steps := &hostSteps{}
	s, _ := NewSetup(SetupConfig{Metrics: prometheus.NewRegistry()}, steps)
	secret, _, err := s.links.Mint()
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.links.Redeem(secret, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://gateway.lan:8080/setup/v1/device", nil)
	if _, err := s.makeTenant(r, setupTenant{Page: page, Token: "acme"}); err != nil {
		t.Fatal(err)
	}
	if made, err := s.makeDevice(r, setupDevice{Page: page, Token: "d1"}); err != nil || made.Tenant != "acme" || steps.host != "gateway.lan" {
		t.Errorf("%+v for %q, %v", made, steps.host, err)
	}
}
