package registry

import (
	"encoding/json"
	"strconv"
	"strings"
)

// executeLwM2M is the command that executes a resource of an LwM2M device.
const executeLwM2M = "lwm2m.execute"

// destructive reports whether a command executes the resource Factory Reset of an LwM2M device, /3/0/5, in whatever spelling. The payload
// is JSON.
func destructive(key string, payload *string) bool {
	if key != executeLwM2M || payload == nil {
		return false
	}
	var members map[string]json.RawMessage
	var path string
	if json.Unmarshal([]byte(*payload), &members) != nil || json.Unmarshal(members["path"], &path) != nil {
		return false
	}
	var numbers []uint64
	for part := range strings.SplitSeq(path, "/") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimPrefix(part, "+"), 10, 64)
		if err != nil {
			return false
		}
		numbers = append(numbers, n)
	}
	return len(numbers) >= 3 && numbers[0] == 3 && numbers[1] == 0 && numbers[2] == 5
}
