package auth

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/setting"
)

const serviceSecret = "0123456789abcdef0123456789abcdef"

func (h *house) askService(method, secret, from, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/auth/service-token", strings.NewReader(body))
	r.RemoteAddr = from + ":4242"
	if secret != "" {
		r.Header.Set("X-Weir-Service-Secret", secret)
	}
	w := httptest.NewRecorder()
	h.ServiceToken().ServeHTTP(w, r)
	return w
}

const askInfer = `{"subject": "rules", "authorities": ["ai:infer"]}`

func TestServiceTokenStatuses(t *testing.T) {
	h := newHouseWith(t, Config{InstanceID: "test", Settings: Settings{ServiceSecret: setting.NewSecret(serviceSecret)}})
	for name, c := range map[string]struct {
		method, secret, body string
		status               int
	}{
		"minted":                  {"POST", serviceSecret, askInfer, 200},
		"several authorities":     {"POST", serviceSecret, `{"subject": "x", "authorities": ["tenant:read", "device:read", "*"]}`, 200},
		"GET":                     {"GET", serviceSecret, "", 405},
		"wrong secret":            {"POST", serviceSecret + "0", askInfer, 401},
		"no secret":               {"POST", "", askInfer, 401},
		"wrong secret, bad body":  {"POST", "x", "{", 401},
		"empty subject":           {"POST", serviceSecret, `{"subject": "  ", "authorities": ["ai:infer"]}`, 400},
		"no subject":              {"POST", serviceSecret, `{"authorities": ["ai:infer"]}`, 400},
		"long subject":            {"POST", serviceSecret, `{"subject": "` + strings.Repeat("x", 129) + `", "authorities": ["ai:infer"]}`, 400},
		"empty list":              {"POST", serviceSecret, `{"subject": "x", "authorities": []}`, 400},
		"no list":                 {"POST", serviceSecret, `{"subject": "x"}`, 400},
		"unknown authority":       {"POST", serviceSecret, `{"subject": "x", "authorities": ["ai:infer", "ai:dream"]}`, 400},
		"no JSON":                 {"POST", serviceSecret, `subject`, 400},
		"two documents":           {"POST", serviceSecret, askInfer + askInfer, 400},
		"an array":                {"POST", serviceSecret, `[` + askInfer + `]`, 400},
		"authority as a number":   {"POST", serviceSecret, `{"subject": "x", "authorities": [1]}`, 400},
		"empty":                   {"POST", serviceSecret, ``, 400},
		"larger than 64 KiB":      {"POST", serviceSecret, `{"subject": "x", "authorities": ["ai:infer"], "pad": "` + strings.Repeat("x", 65<<10) + `"}`, 400},
		"a body of almost 64 KiB": {"POST", serviceSecret, `{"subject": "x", "authorities": ["ai:infer"], "pad": "` + strings.Repeat("x", 60<<10) + `"}`, 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := h.askService(c.method, c.secret, "192.0.2.9", c.body)
			if w.Code != c.status {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			if strings.Contains(w.Body.String(), serviceSecret) {
				t.Error("the answer shows the secret")
			}
			if w.Code != http.StatusOK {
				return
			}
			var reply struct {
				Token     string
				ExpiresAt int64
			}
			if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil {
				t.Fatal(err)
			}
			if want := h.clock.Now().Add(15 * time.Minute).Unix(); reply.ExpiresAt != want {
				t.Errorf("expiresAt %d, want %d", reply.ExpiresAt, want)
			}
			if !h.accepts(PlaneTenant, reply.Token) || h.accepts(PlaneTenantSocket, reply.Token) || h.accepts(PlaneIdentity, reply.Token) {
				t.Error("the token counts on the wrong planes")
			}
		})
	}
}

func TestNoServiceTokenWithoutAConfiguredSecret(t *testing.T) {
	h := newHouse(t)
	if w := h.askService("POST", "", "192.0.2.1", askInfer); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
}

func TestWrongServiceSecretsAreBoundedPerAddress(t *testing.T) {
	h := newHouseWith(t, Config{InstanceID: "test", Settings: Settings{ServiceSecret: setting.NewSecret(serviceSecret)}})
	for i := range 10 {
		if w := h.askService("POST", "wrong", "192.0.2.1", askInfer); w.Code != http.StatusUnauthorized {
			t.Fatalf("attempt %d: %d", i+1, w.Code)
		}
	}
	h.clock.Step(20 * time.Second)
	w := h.askService("POST", serviceSecret, "192.0.2.1", askInfer)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "40" {
		t.Errorf("status %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	if w := h.askService("POST", serviceSecret, "192.0.2.2", askInfer); w.Code != http.StatusOK {
		t.Errorf("another address: %d", w.Code)
	}
	h.clock.Step(40 * time.Second)
	if w := h.askService("POST", serviceSecret, "192.0.2.1", askInfer); w.Code != http.StatusOK {
		t.Errorf("after the minute: %d", w.Code)
	}
	for i := range maxSecretSources + 10 {
		h.askService("POST", "wrong", fmt.Sprintf("10.0.%d.%d", i/256, i%256), askInfer)
	}
	if n := h.serviceTries.all.len(); n != maxSecretSources {
		t.Errorf("%d sources are remembered", n)
	}
}

func FuzzServiceRequest(f *testing.F) {
	for _, seed := range []string{askInfer, "", "{}", "[]", "null", `{"subject":"x","authorities":["*","*"]}`, `{"subject":1}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		req, why := readServiceRequest(strings.NewReader(body))
		if why == "" && (req.Subject == "" || len(req.Authorities) == 0) {
			t.Errorf("%q gives %+v", body, req)
		}
	})
}
