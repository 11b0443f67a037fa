package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"testing"
	"time"

	"weir/internal/setting"
)

func TestAChangedConfigCountsForWhatIsMintedFromThenOn(t *testing.T) {
	h := newHouse(t)
	h.deps.GenerateKey = func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 1024) }
	h.reopen(Config{InstanceID: "test", Settings: Settings{AccessTokenTTL: 3 * time.Hour}})
	h.member("ada@example.org")
	before := h.enter("ada@example.org", "acme").Access
	if w := h.askService("POST", serviceSecret, "192.0.2.9", askInfer); w.Code != 503 {
		t.Fatalf("without a secret: %d", w.Code)
	}
	first := h.keys.active().kid
	if err := h.SetConfig(Config{InstanceID: "test", Settings: Settings{AccessTokenTTL: time.Minute, RefreshTokenTTL: 2 * time.Minute, SigningKeyMaxAge: time.Hour, ServiceSecret: setting.NewSecret(serviceSecret)}}); err != nil {
		t.Fatal(err)
	}
	if w := h.askService("POST", serviceSecret, "192.0.2.9", askInfer); w.Code != 200 {
		t.Errorf("the new secret: %d", w.Code)
	}
	pair := h.enter("ada@example.org", "acme")
	h.clock.Step(10 * time.Minute)
	if h.accepts(PlaneTenant, pair.Access) || !h.accepts(PlaneTenant, before) {
		t.Error("the new time does not hold for new tokens, or holds for old ones")
	}
	if _, err := h.Refresh(t.Context(), pair.Refresh); err == nil {
		t.Error("a refresh token of two minutes lives longer")
	}
	h.clock.Step(time.Hour)
	if err := h.tidy(t.Context()); err != nil || h.keys.active().kid == first {
		t.Errorf("the signing key is not replaced: %v", err)
	}
}

func TestAConfigThatCannotBeUsedChangesNothing(t *testing.T) {
	h := newHouse(t)
	if err := h.SetConfig(Config{InstanceID: "test", Settings: Settings{AccessTokenTTL: time.Second}}); err == nil {
		t.Fatal("it is taken")
	}
	h.member("ada@example.org")
	token := h.enter("ada@example.org", "acme").Access
	h.clock.Step(time.Minute)
	if !h.accepts(PlaneTenant, token) {
		t.Error("it counts")
	}
}
