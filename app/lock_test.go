package app

import "testing"

// TestConnectionsFollowTheOpenFiles: what goes to each adds up to less than there is.
func TestConnectionsFollowTheOpenFiles(t *testing.T) {
	t.Parallel()
	for _, files := range []int{minFiles, 256, 1024, 65536, 1 << 20} {
		in := &lock{files: files, base: &base{budget: NewBudget(64 << 30)}}
		mqtt, shaking, http := in.maxConnections(100_000), in.maxHandshakes(), in.apiConnections()+in.ingestConnections()
		if mqtt < 1 || shaking < 1 || mqtt+shaking+http+ownFiles > files {
			t.Errorf("%d files: %d connections, %d handshakes, %d over HTTP", files, mqtt, shaking, http)
		}
	}
	if n := (&lock{base: &base{budget: NewBudget(64 << 30)}}).maxConnections(100_000); n != 100_000 {
		t.Errorf("without a limit: %d", n)
	}
}
