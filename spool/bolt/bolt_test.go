package bolt

import (
	"path/filepath"
	"testing"

	"weir/internal/setting"
	"weir/spool"
	"weir/spool/spooltest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	spooltest.Run(t, func(t *testing.T, opt spooltest.Options) spool.Log {
		t.Helper()
		l, err := Open(filepath.Join(opt.Place, "spool"), Options{
			Capacity:       spool.Capacity{MaxBytes: setting.Size(opt.MaxBytes)},
			SpanBytes:      opt.SpanBytes,
			UnsyncedBytes:  opt.UnsyncedBytes,
			TailBytes:      opt.TailBytes,
			CommitSettings: spool.CommitSettings{CommitInterval: setting.Auto},
			Meta:           opt.Meta,
			Sync:           opt.Sync,
			MinOffset:      opt.MinOffset,
			PairID:         opt.PairID,
			unsafe:         true, // the suite kills nothing
		})
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
}
