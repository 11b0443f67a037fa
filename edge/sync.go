package edge

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"weir/auth"
	"weir/internal/edgewire"
	"weir/internal/smallfile"
	"weir/model"
)

// Bounds of the devices that are kept of a Weir above.
const (
	syncedName   = "devices.json"
	maxSynced    = 20_000
	maxSyncFile  = 64 << 20
	syncAgain    = 5 * time.Minute  // without a change
	syncPause    = 2 * time.Second  // after a change
	syncPerEach  = time.Millisecond // and for each device that there is
	syncTimeout  = 30 * time.Second // an answer that has not come by then is asked for again
	syncTick     = time.Second
	syncTenantID = 1 // row id of the only tenant that an edge knows
)

// Values of Settings.Auth.
const (
	AuthSynced = "synced"
	AuthShared = "shared"
	AuthOpen   = "open"
)

// syncedFile is what is kept of the devices of a Weir above. A newer edge reads it.
type syncedFile struct {
	Version int               `json:"version"`
	Tenant  string            `json:"tenant"`
	At      time.Time         `json:"at"`
	Devices []edgewire.Device `json:"devices"`
}

// devices are those at the site as a Weir above has them, with which they sign in also while it is away.
type devices struct {
	tenant string
	state  *stateFile

	mu    sync.Mutex
	byID  map[credentialKey]auth.CredentialRow
	count int
	at    time.Time // of the newest copy; zero: there is none

	// What is being asked for; only the goroutine that serves the connection uses it.
	wanted   bool
	nonce    string // of the page that is asked for; "": none
	asked    time.Duration
	next     time.Duration // no sooner
	gathered []edgewire.Device
	after    string
}

type credentialKey struct {
	kind string
	hash string // hexadecimal
}

// load reads what was kept. A file that does not read is left out: devices sign in again once the Weir above has said which there are.
func (d *devices) load() error {
	b, err := smallfile.Read(filepath.Join(d.state.dir, syncedName), maxSyncFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var f syncedFile
	if err := json.Unmarshal(b, &f); err != nil || f.Version != formatVersion || f.Tenant != d.tenant {
		return nil
	}
	d.take(f.Devices, f.At)
	return nil
}

// take replaces what is known, and returns the credentials that are no longer good or not as before.
func (d *devices) take(all []edgewire.Device, at time.Time) (gone []int64) {
	now := map[credentialKey]auth.CredentialRow{}
	for _, one := range all {
		for _, c := range one.Credentials {
			now[credentialKey{c.Type, c.IDHash}] = auth.CredentialRow{ID: c.ID, DeviceID: one.ID, Device: one.Token, Enabled: true, ExpiresAt: model.Micros(c.Expires), PasswordHash: c.Password}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, row := range d.byID {
		if now[key] != row {
			gone = append(gone, row.ID)
		}
	}
	d.byID, d.count, d.at = now, len(all), at
	return gone
}

// FindCredentials implements auth.CredentialFinder.
func (d *devices) FindCredentials(_ context.Context, tenantID int64, credentialType string, idHash [sha256.Size]byte) ([]auth.CredentialRow, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	row, ok := d.byID[credentialKey{credentialType, hex.EncodeToString(idHash[:])}]
	if !ok || tenantID != syncTenantID {
		return nil, nil
	}
	return []auth.CredentialRow{row}, nil
}

// Lookup implements auth.Tenants.
func (d *devices) Lookup(token string) (id int64, enabled, known bool) {
	if token == d.tenant {
		return syncTenantID, true, true
	}
	return 0, false, false
}

// TokenOf implements auth.Tenants.
func (d *devices) TokenOf(id int64) string {
	if id == syncTenantID {
		return d.tenant
	}
	return ""
}

// NotBefore implements auth.Tenants.
func (d *devices) NotBefore(string) model.Micros { return 0 }

// Verifier judges the credentials of the site's devices with edge.auth synced; nil with another.
func (e *Edge) Verifier() *auth.Verifier { return e.verifier }

// Synced reports whether devices sign in with credentials of a Weir above.
func (s *Settings) Synced() bool { return s.Auth == AuthSynced }

// openDevices takes over what an edge knows of the devices of the Weir above.
func (e *Edge) openDevices() error {
	if !e.cfg.Synced() {
		return nil
	}
	tenant, _, _ := cutTenant(e.cfg.Uplink.Username)
	e.devices = &devices{tenant: tenant, state: &e.state, byID: map[credentialKey]auth.CredentialRow{}}
	e.verifier = auth.NewVerifier(auth.VerifierConfig{Credentials: e.devices, Tenants: e.devices, Hasher: auth.NewHasher(auth.Params{}, e.deps.Registerer), Registerer: e.deps.Registerer,
		Clock: e.clock.forCertificates})
	return e.devices.load()
}

// syncs asks for what is wanted of the devices, as far as it is time. The goroutine that serves the connection calls it.
func (e *Edge) syncs(c *connection) {
	d := e.devices
	if d == nil || !c.weir {
		return
	}
	now := e.deps.elapsed()
	switch {
	case d.nonce != "" && now-d.asked < syncTimeout: // it is asked for
		return
	case d.nonce != "": // no answer has come
	case d.wanted && now >= d.next:
	case now >= d.next+syncAgain:
	default:
		return
	}
	d.wanted, d.gathered, d.after = false, nil, ""
	e.askDevices(c)
}

func (e *Edge) askDevices(c *connection) {
	up, _, ok := e.topics()
	if !ok {
		return
	}
	d := e.devices
	d.nonce, d.asked = rand.Text(), e.deps.elapsed()
	_ = say(c, up, &edgewire.Sync{Kind: edgewire.KindSync, Nonce: d.nonce, After: d.after}, func(byte) {}) // asked again where no answer comes
}

// connected has the devices asked for on a new connection.
func (e *Edge) connected(c *connection) {
	if d := e.devices; d != nil {
		d.wanted, d.nonce, d.gathered, d.next = true, "", nil, e.deps.elapsed()
		e.syncs(c)
	}
}

// changedAbove notes that devices have changed.
func (e *Edge) changedAbove() {
	if e.devices != nil {
		e.devices.wanted = true
	}
	if e.follow != nil {
		e.follow.wanted = true
	}
}

// gathers takes in a page of devices.
func (e *Edge) gathers(c *connection, page *edgewire.Devices) {
	d := e.devices
	if d == nil || d.nonce == "" || page.Nonce != d.nonce {
		return
	}
	d.nonce = ""
	if page.Refused != "" {
		d.next = e.deps.elapsed() + syncAgain
		e.log.Error("the Weir above gives this edge no credentials of devices", "why", page.Refused)
		return
	}
	d.gathered = append(d.gathered, page.Devices...)
	if len(d.gathered) > maxSynced {
		d.gathered, d.next = nil, e.deps.elapsed()+syncAgain
		e.log.Error("the Weir above has more devices for this edge than it keeps; those that it knows stay", "maximum", maxSynced)
		return
	}
	if page.Next != "" && page.Next > d.after {
		d.after = page.Next
		e.askDevices(c)
		return
	}
	all := d.gathered
	d.gathered, d.next = nil, e.deps.elapsed()+syncPause+time.Duration(len(all))*syncPerEach
	at, _ := e.clock.time()
	if err := e.state.replace(syncedName, &syncedFile{Version: formatVersion, Tenant: d.tenant, At: at, Devices: all}); err != nil {
		e.log.Error("the devices of the Weir above cannot be kept; those that were known stay", "error", err)
		d.wanted = true
		return
	}
	gone := d.take(all, at)
	slices.Sort(gone)
	for _, id := range slices.Compact(gone) {
		e.verifier.Invalidate(auth.Invalidation{CredentialID: id})
	}
	e.metrics.synced.Set(float64(len(all)))
	e.log.Debug("the devices of the Weir above", "devices", len(all), "credentials_gone", len(gone))
}

// syncAge is how long ago the devices were taken over, or the Weir above was followed, 0 while it is away or neither is wanted.
func (e *Edge) syncAge() time.Duration {
	d := e.devices
	follows := e.follow != nil && e.cfg.Uplink.Sync
	if d == nil && !follows {
		return 0
	}
	u := &e.forward.uplink
	u.mu.Lock()
	connected, since := u.connected && (d != nil || u.weir), u.since
	u.mu.Unlock()
	if !connected {
		return 0
	}
	var at time.Time
	if d != nil {
		d.mu.Lock()
		at = d.at
		d.mu.Unlock()
	} else {
		at, _ = e.Following()
	}
	if at.Before(since) {
		at = since
	}
	now, _ := e.clock.time()
	return max(0, now.Sub(at))
}

// syncProblem says why no device can sign in, "" where some may.
func (e *Edge) syncProblem() string {
	d := e.devices
	if d == nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() {
		return fmt.Sprintf("no device can sign in: the Weir above has not yet said which devices tenant %s has", d.tenant)
	}
	return ""
}
