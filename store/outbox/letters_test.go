package outbox

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"weir/model"
)

// readAs is what becomes of the order of a row that is given up and sent again.
func readAs(r *Row) (Letter, bool) {
	return readLetter(letter(r, "detection-action", "t1", "exhausted", "why", 1).Record)
}

func TestAnOrderThatIsGivenUpIsReadBackWhole(t *testing.T) {
	t.Parallel()
	for body, readable := range map[string]bool{
		`{"kind":"sendCommand","deviceToken":"d","payload":"{\"a\":\"<é>\"}","sendCommand":{"command":"open"}}`: true,
		`{}`: true, ``: false, `{`: false, `"text"`: false, `{"kind":1}`: false, "\xff": false,
	} {
		r := &Row{Head: Head{Attempts: 3}, Order: model.Order{Kind: "sendCommand", Target: "x:1", Key: "k", DeviceID: 4, Occurred: 5, Expires: 7, Edge: model.EdgeID{Offset: 8}, Body: []byte(body)}}
		l, ok := readAs(r)
		if ok != readable {
			t.Errorf("%q: read %t", body, ok)
			continue
		}
		if l.Kind != "sendCommand" || l.Target != "x:1" || l.Key != "k" || l.DeviceID != 4 || l.Occurred != 5 || l.Expires != 7 || l.Offset != 8 || l.Attempts != 3 {
			t.Errorf("%q: %+v", body, l)
		}
		if readable && !sameJSON(t, l.Dispatch, []byte(body)) {
			t.Errorf("%q is read back as %q", body, l.Dispatch)
		}
	}
	for _, record := range []string{``, `{}`, `null`, `[]`, `{"dispatch":{}}`, `{"kind":"k","dispatch":{}}`, `{"idempotencyKey":"k","dispatch":{}}`, `{"kind":"k","idempotencyKey":"k"}`,
		`{"kind":"k","idempotencyKey":"k","dispatch":"{}"}`, `{"kind":"k","idempotencyKey":"k","expires":1e30,"dispatch":{}}`} {
		if _, ok := readLetter([]byte(record)); ok {
			t.Errorf("%s is read as an order", record)
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// FuzzLetter: whatever the record of a dead letter holds, nothing breaks; what is read as an order can be performed, and is the same order
// when it is given up once more.
func FuzzLetter(f *testing.F) {
	f.Add([]byte(`{"kind":"sendCommand","idempotencyKey":"k","deviceId":1,"offset":2,"occurred":3,"received":4,"expires":5,"attempts":6,"dispatch":{"kind":"sendCommand","payload":"<"}}`))
	f.Add([]byte(`{"kind":"k","idempotencyKey":"\ud800","dispatch":{"a":"&"}}`))
	f.Add([]byte(`{"dispatch":null}`))
	f.Fuzz(func(t *testing.T, record []byte) {
		l, ok := readLetter(record)
		if !ok {
			return
		}
		r := &Row{Head: Head{Received: l.Received, Attempts: l.Attempts}, Order: model.Order{Kind: l.Kind, Target: l.Target, Key: l.Key, DeviceID: l.DeviceID, Occurred: l.Occurred,
			Expires: l.Expires, Edge: model.EdgeID{Offset: l.Offset}, Body: l.Dispatch}}
		again, ok := readAs(r)
		var was, is model.Dispatch
		if !ok || json.Unmarshal(l.Dispatch, &was) != nil || json.Unmarshal(again.Dispatch, &is) != nil {
			t.Fatalf("%q is read once, and not again", record)
		}
		a, errA := json.Marshal(was)
		b, errB := json.Marshal(is)
		l.Dispatch, again.Dispatch = nil, nil
		x, errX := json.Marshal(l)
		y, errY := json.Marshal(again)
		if errA != nil || errB != nil || errX != nil || errY != nil || !bytes.Equal(a, b) || !bytes.Equal(x, y) {
			t.Errorf("%q is read as %s %s, and then as %s %s", record, x, a, y, b)
		}
	})
}
