package app

import (
	"context"
	"strings"
	"testing"

	"weir/config"
	"weir/operate"
)

func TestTheCommandsNameTheHostThatThePageWasOpenedOn(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir() + "/d"
	cfg.Listeners = config.Listeners{API: "127.0.0.1:0"}
	in := New(cfg, Options{})
	ctx, stop := context.WithCancel(t.Context())
	err := in.Run(ctx, func() {
		defer stop()
		steps := setupSteps{in.entities, in.applier, in.intake}
		if _, err := steps.MakeTenant(ctx, "acme", ""); err != nil {
			t.Error(err)
			return
		}
		in.listeners.opened(operate.MQTTListener, "[::]:1883") // as if they were open on every interface
		in.listeners.opened(operate.IngestListener, "0.0.0.0:8081")
		made, err := steps.MakeDevice(ctx, "acme", "d1", "gateway.lan")
		snippets, _ := made.Snippets.([]operate.Snippet)
		if err != nil || len(snippets) != 4 || !strings.HasPrefix(snippets[0].Text, "mosquitto_pub -h gateway.lan -p 1883 ") ||
			!strings.HasPrefix(snippets[1].Text, "curl -i http://gateway.lan:8081/weir/acme/devices/d1/telemetry ") ||
			!strings.Contains(snippets[2].Text, `client.connect("gateway.lan", 1883)`) ||
			!strings.Contains(snippets[3].Text, `"http://gateway.lan:8081/weir/acme/devices/d1/telemetry"`) {
			t.Errorf("%+v, %v", made, err)
		}
	}, nil)
	if err != nil {
		t.Error(err)
	}
}
