package app

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/config"
	"weir/internal/test/poll"
	"weir/operate"
)

// An instance with backup.every makes its first backup by itself, and the next one when it is due.
func TestABackupIsMadeWhenItIsDue(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir() + "/d"
	cfg.Backup.Directory, cfg.Backup.Every = t.TempDir(), time.Hour
	cfg.Listeners = config.Listeners{API: "127.0.0.1:0"}
	cfg.Broker.Enabled = false
	in := New(cfg, Options{Version: "1.2.3"})
	ctx, stop := context.WithCancel(t.Context())
	err := in.Run(ctx, func() {
		defer stop()
		o := in.operator.asked
		made := func() *operate.Backups {
			var b *operate.Backups
			poll.Until(t, "the backup is made", func() (err error) {
				if b, err = o.Backups(); err == nil && (b.Running != nil || len(b.Files) == 0) {
					err = fmt.Errorf("%+v", b)
				}
				return err
			})
			return b
		}
		now := time.Now()
		o.BackupIfDue(now)
		b := made()
		if f := b.Files[0]; len(b.Files) != 1 || !f.Scheduled || !strings.HasPrefix(f.Name, "scheduled-") || b.Failure != nil || !b.Next.Equal(f.Modified.Add(time.Hour)) {
			t.Errorf("%+v", b)
		}
		o.BackupIfDue(now.Add(time.Minute))
		if b = made(); len(b.Files) != 1 {
			t.Errorf("one that is not due was made: %+v", b)
		}
	}, nil)
	if err != nil {
		t.Error(err)
	}
}
