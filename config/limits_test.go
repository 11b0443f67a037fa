package config

import (
	"reflect"
	"strings"
	"testing"
)

// limits are the keys that bound something: no setting may take the bound away.
var limits = []string{
	"ingest.max_body", "ingest.spool_max_bytes", "ingest.spool_max_messages", "ingest.dedupe_window", "ingest.dedupe_max_bytes",
	"ingest.http_header_timeout", "ingest.http_request_timeout", "spool.replay_bytes", "spool.head_age", "spool.disk_reserve",
	"governance.ingest_messages_per_second", "governance.ingest_burst", "governance.shed_priority", "broker.max_connections",
	"limits.memory", "limits.series_per_device", "limits.series_per_tenant", "limits.devices_per_tenant", "limits.device_types_per_tenant",
	"limits.device_profiles_per_tenant", "governance.registry_bytes", "limits.dead_letters_per_tenant",
	"limits.dead_letter_bytes_per_tenant", "detection.max_rule_duration", "detection.max_rules_per_tenant", "detection.max_keys_per_tenant", "detection.max_samples_per_tenant", "detection.lateness", "detection.max_edges_per_second",
	"connectors.outbox_max_rows", "connectors.outbox_max_bytes", "connectors.attempts", "connectors.max_age", "connectors.send_timeout", "connectors.max_concurrent_sends", "connectors.per_destination", "limits.connectors_per_tenant", "limits.http_secrets_per_tenant", "limits.outgoing_dead_letters_per_tenant", "limits.outgoing_dead_letter_bytes_per_tenant",
}

func TestNoSettingRemovesALimit(t *testing.T) {
	t.Parallel()
	def := Default()
	for _, path := range limits {
		f, ok := fieldAt(reflect.ValueOf(&def).Elem(), path)
		if !ok {
			t.Errorf("there is no key %s", path)
			continue
		}
		group, name, _ := strings.Cut(path, ".")
		for _, value := range []string{"0", "0s", "-1", "-1s", "null"} {
			got, err := load(group + ": {" + name + ": " + value + "}\n")
			if err != nil {
				if !strings.Contains(err.Error(), path) {
					t.Errorf("%s: %s is refused without naming the key: %v", path, value, err)
				}
				continue
			}
			if g, _ := fieldAt(reflect.ValueOf(got).Elem(), path); g.value.Interface() != f.value.Interface() {
				t.Errorf("%s: %s makes it %v, not the default %v", path, value, g.value, f.value)
			}
		}
	}
}
