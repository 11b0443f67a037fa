package site

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/model"
	"weir/store"
)

// timing tells how long the one writer was held.
type timing struct {
	store.Writer
	held time.Duration
}

func (w *timing) Mutate(ctx context.Context, by *model.Principal, fn func(*store.Change) error) error {
	return w.Writer.Mutate(ctx, by, func(c *store.Change) error {
		began := time.Now()
		defer func() { w.held = time.Since(began) }()
		return fn(c)
	})
}

// BenchmarkTenThousandDevices applies ten thousand devices with an access token each: to an empty instance, and once more.
func BenchmarkTenThousandDevices(b *testing.B) {
	var list strings.Builder
	list.WriteString("token,externalId,name,accessToken\n")
	for i := range 10_000 {
		fmt.Fprintf(&list, "d%d,SN-%06d,Meter,%064d\n", i, i, i)
	}
	for _, again := range []bool{false, true} {
		b.Run(map[bool]string{false: "made", true: "unchanged"}[again], func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				w := newWorld(b)
				w.files(map[string]string{"fleet.csv": list.String(),
					"site.yaml": "version: 1\ntenants: [{token: acme, deviceTypes: [{token: t}], devicesFrom: [{file: fleet.csv, deviceTypeToken: t}]}]\n"})
				clock := &timing{Writer: w.Site.parts.Writer}
				w.Site.parts.Writer = clock
				apply := func() time.Duration {
					d, _, err := Read(Source{}, filepath.Join(w.dir, "site.yaml"))
					if err != nil {
						b.Fatal(err)
					}
					w.apply(d, Options{})
					return clock.held
				}
				if again {
					apply()
				}
				b.StartTimer()
				b.ReportMetric(float64(apply().Milliseconds()), "ms-held/op")
			}
		})
	}
}
