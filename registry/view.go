package registry

import (
	"encoding/json"
	"strconv"

	"weir/model"
	"weir/store"
)

// setView puts a view row on the change: body is what (kind, key) means from the control record on.
func setView(c *store.Change, kind model.ViewKind, key string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	c.View(model.ViewChange{Kind: kind, Key: key, Body: b})
	return nil
}

// endView ends a view row.
func endView(c *store.Change, kind model.ViewKind, key string) {
	c.View(model.ViewChange{Kind: kind, Key: key})
}

func idKey(id int64) string { return strconv.FormatInt(id, 10) }

// deviceKey is the key of a device's view row: readings name their device by tokens.
func deviceKey(tenant, device string) string { return tenant + "/" + device }
