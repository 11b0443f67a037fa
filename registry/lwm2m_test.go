package registry

import (
	"errors"
	"testing"

	"weir/model"
	"weir/store"
)

// What a profile says about LwM2M counts for its devices as it was published, and is checked when it is written.
func TestWhatAProfileSaysAboutLwM2M(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	_, _, d := b.seed()
	said := func() string {
		t.Helper()
		p, metrics, err := b.Devices.LwM2MOf(ctx, acme.TenantID, d.ID)
		if err != nil {
			t.Fatal(err)
		}
		if p == nil {
			return ""
		}
		if len(metrics) != 1 || metrics[0].Key != "/32770/0/1" || metrics[0].DataType != "INT" {
			t.Errorf("the metrics are %+v", metrics)
		}
		return p.Observe[0].Path
	}
	must(b.Metrics.Create(ctx, acme, store.Patch{"token": "raw", "deviceProfileToken": "p", "metricKey": "/32770/0/1", "dataType": "INT"}))(t)
	_, err := b.Profiles.Update(ctx, acme, "p", store.Patch{"lwm2m": `{"observe":[{"path":"/3303","pmin":9,"pmax":8}]}`})
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeInvalidInput || e.Field != "lwm2m" {
		t.Errorf("%v", err)
	}
	must(b.Profiles.Update(ctx, acme, "p", store.Patch{"lwm2m": `{"observe":[{"path":"/3303"}]}`}))(t)
	if said, metrics, err := b.Devices.LwM2MOf(ctx, acme.TenantID, d.ID); said != nil || len(metrics) != 0 || err != nil {
		t.Errorf("a draft says %+v %+v %v", said, metrics, err)
	}
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	must(b.Profiles.Update(ctx, acme, "p", store.Patch{"lwm2m": `{"observe":[{"path":"/3304"}]}`}))(t)
	if got := said(); got != "/3303" {
		t.Errorf("the published version says %q", got)
	}
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	if got := said(); got != "/3304" {
		t.Errorf("the next version says %q", got)
	}
	must(b.Profiles.Update(ctx, acme, "p", store.Patch{"lwm2m": nil}))(t)
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	if got := said(); got != "" {
		t.Errorf("without the field it says %q", got)
	}
}
