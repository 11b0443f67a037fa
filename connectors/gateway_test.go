//go:build gateway

package connectors

import (
	"slices"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
)

// TestAProgramForGateways: the types that it is built without are described with the reason, refused, and a stored connector of one is not delivered to.
func TestAProgramForGateways(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	if names := TypeNames(); !slices.Equal(names, []string{"mqtt"}) {
		t.Error(names)
	}
	w.connector(acme, "c", map[string]any{"urls": []string{"mqtt://b.example.com:1883"}, "topic": "t"}, "")
	for _, typ := range []string{"kafka", "aws_sns", "aws_sqs"} {
		_, err := w.c.Connectors.Create(t.Context(), w.by(acme), store.Patch{"token": "d", "type": typ, "config": typeNamed(typ).Example})
		w.refused(err, model.CodeUnsupported, "which is built without kafka, aws_sns and aws_sqs")
		w.must(w.db.Write(t.Context(), store.Durable, func(tx store.Tx) error { // of a backup that the full program has made
			_, err := tx.Exec(`UPDATE connector_versions SET snapshot = '{"v":1,"type":"` + typ + `","config":"{}"}'`)
			return err
		}))
		if o, f := outcome(t, w.c.Publish(t.Context(), w.id(acme), publish("c", "m"))); o != Unsupported || !strings.Contains(f.Text, typ) {
			t.Errorf("%s: %s %v", typ, o, f)
		}
	}
}
