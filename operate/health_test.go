package operate

import (
	"fmt"
	"strings"
	"testing"

	"weir/store"
)

func TestAFailedSyncAsksForARestartAndDamageForABackup(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err        error
		text, hint string
		not        string
	}{
		{fmt.Errorf("writing: %w", store.ErrUnsynced), "until weir is restarted", "restart weir", "backup restore"},
		{fmt.Errorf("page 7: %w", store.ErrDamaged), "is damaged", "backup restore", "restart weir"},
	} {
		hint := doubtHint("/d", tc.err)
		if !strings.Contains(hint, tc.hint) || strings.Contains(hint, tc.not) || !strings.Contains(doubtText(tc.err), tc.text) {
			t.Errorf("%v: %q, %q", tc.err, doubtText(tc.err), hint)
		}
	}
}
