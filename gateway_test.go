package main

import (
	"os/exec"
	"strings"
	"testing"

	"weir/internal/test/testweir"
)

// TestAProgramForGatewaysSaysSo: it is built with the tag gateway, and says what it is built without, as text and as JSON.
func TestAProgramForGatewaysSaysSo(t *testing.T) {
	t.Parallel()
	binary := testweir.Tagged(t, "gateway")
	for want, args := range map[string][]string{"for gateways, without the connector types kafka, aws_sns and aws_sqs": {"version"}, `"edition": "gateway"`: {"version", "--json"}} {
		out, err := exec.Command(binary, args...).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("weir %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
