//go:build linux

package siege_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/test/loopdisk"
	"weir/internal/test/need"
	"weir/internal/test/testweir"
)

const (
	memory   = 192 << 20
	diskRate = 5_000_000 // bytes a second
	diskSize = 1 << 30
	registry = 16 << 20 // bytes of a tenant's rows, as of the profile gateway

	known = "acme" // the tenant that must be served
	evil  = "evil" // the one whose user and device attack the others

	mqttDevices, httpDevices = 6, 6
)

var errNotApplied = errors.New("messages wait for the applier")

// target is the instance under siege.
type target struct {
	*testweir.Proc
	disk       *loopdisk.Disk // nil: that of the machine
	user, evil string         // access tokens of a user of the known tenant, and of the evil one
}

// begin starts the instance on its disk. Without must it may be that of the machine.
func begin(t *testing.T, must bool) *target {
	t.Helper()
	x, dir := &target{}, t.TempDir()
	disk, err := loopdisk.Make(dir, diskSize)
	if err == nil {
		t.Cleanup(func() {
			if err := disk.Close(); err != nil {
				t.Error(err)
			}
		})
		err = disk.Limit(diskRate)
	}
	switch {
	case err == nil:
		x.disk, dir = disk, disk.Dir
		t.Logf("disk: an ext4 with a journal on a loop device, %d bytes a second at most by the kernel's block throttle", diskRate)
	case must || need.Must():
		t.Fatalf("no disk of %d bytes a second: %v", diskRate, err)
	default:
		t.Logf("disk: that of the machine, at its own speed: %v", err)
	}
	x.Proc = testweir.Start(t, testweir.Options{Dir: dir, Config: fmt.Sprintf(`
limits: {memory: %d}
governance: {registry_bytes: %d}
auth: {access_token_ttl: 12h}
logging: {format: json}
`, memory, registry)})
	for _, tenant := range []string{known, evil} {
		x.Run("", "tenant", "create", tenant)
	}
	x.user, x.evil = x.SignIn(known), x.SignIn(evil)
	x.furnish(x.user, names("mqtt", mqttDevices)...)
	x.furnish(x.user, names("http", httpDevices)...)
	x.furnish(x.user, "visitor", "large")
	x.furnish(x.evil, "d")
	return x
}

func names(role string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", role, i)
	}
	return all
}

func secret(device string) string { return "secret-of-" + device }

// furnish makes devices with an access token, of a type with a rule that no reading meets.
func (x *target) furnish(token string, devices ...string) {
	do := func(doc string, vars map[string]any) { x.Query("device-management", token, doc, vars, nil) }
	for _, d := range devices {
		if d == devices[0] {
			do(fmt.Sprintf(`mutation{createDeviceType(request:{token:"t-%s"}){id}}`, d), nil)
		}
		do(fmt.Sprintf(`mutation{a:createDevice(request:{token:%[1]q,deviceTypeToken:"t-%[3]s"}){id}
			b:createDeviceCredential(request:{token:%[1]q,deviceToken:%[1]q,credentialType:"ACCESS_TOKEN",credentialId:%[2]q,enabled:true}){id}}`, d, secret(d), devices[0]), nil)
	}
}

// count compares what is stored of a device with what was acknowledged and sent.
func (x *target) count(token string, d *device) error {
	var page struct {
		MeasurementEvents struct{ Pagination struct{ TotalRecords int64 } }
	}
	if err := x.TryQuery("event-management", token, `query($d:String!){measurementEvents(criteria:{deviceToken:$d,pageNumber:1,pageSize:1}){pagination{totalRecords}}}`,
		map[string]any{"d": d.name}, &page); err != nil {
		return err
	}
	got, acknowledged, sent := page.MeasurementEvents.Pagination.TotalRecords, d.acknowledged.Load(), d.sent.Load()
	if got < acknowledged || got > sent || acknowledged == 0 {
		return fmt.Errorf("%s: %d readings are stored, %d were acknowledged, %d sent", d.name, got, acknowledged, sent)
	}
	return nil
}

// span is a stretch of time and what the instance did in it.
type span struct {
	x     *target
	began time.Time
	taken int64 // by the disk
	lines int   // of the log
	took  time.Duration
}

func (x *target) span(t *testing.T) *span {
	t.Helper()
	s := &span{x: x, began: time.Now(), lines: strings.Count(x.Stderr(), "\n")}
	s.taken = x.taken(t)
	return s
}

func (x *target) taken(t *testing.T) int64 {
	t.Helper()
	if x.disk == nil {
		return 0
	}
	n, err := x.disk.Taken()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *span) age() time.Duration { return time.Since(s.began) }

// end makes the span one that lies behind: taken and lines are those within it.
func (s *span) end(t *testing.T) *span {
	t.Helper()
	s.took = s.age()
	s.taken = s.x.taken(t) - s.taken
	s.lines = strings.Count(s.x.Stderr(), "\n") - s.lines
	return s
}

// written is what the disk took per second.
func (s *span) written() float64 { return float64(s.taken) / s.took.Seconds() }
