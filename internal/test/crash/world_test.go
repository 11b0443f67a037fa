package crash_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/test/seed"
	"weir/internal/test/testweir"
)

// settings write heads and files of the log all the time, and leave little room to what is kept for previews, so that what ends the
// program meets every part of their life.
const settings = `
ingest: {spool_max_bytes: 16MiB}
spool: {replay_bytes: 64KiB, head_age: 2s}
governance: {ingest_messages_per_second: 1000000, ingest_burst: 1000000}
auth: {access_token_ttl: 24h}
history: {event_retention_days: 2}
detection: {preview_bytes: 64KiB}
`

// seldom writes a head at a stop only, so that all that is sent lies in the log alone.
const seldom = `
ingest: {spool_max_bytes: 512MiB}
spool: {replay_bytes: 32MiB, head_age: 1h}
governance: {ingest_messages_per_second: 1000000, ingest_burst: 1000000}
auth: {access_token_ttl: 24h}
`

// ruleLimits are the rules of the profile wave: name and limit. Each fires when the wave passes its limit, up or down.
var ruleLimits = map[string]int{"high": 50, "low": 20}

// world is what sends to an instance, and the books of what it was answered.
type world struct {
	t       *testing.T
	opt     testweir.Options
	r       *rand.Rand
	p       *testweir.Proc
	tokens  map[string]string // of administrators, by tenant
	sources []*source
	churn   *churn
	every   *every
	passing *passing      // nil: no tenant is deleted
	twin    *twin         // nil: there is none
	alerts  int           // that were acknowledged
	took    time.Duration // the newest start
	looked  time.Duration // at what was at rest
}

// furnish makes tenants, profiles, rules and devices on a new instance, which is left running.
func furnish(t *testing.T, opt testweir.Options, r *rand.Rand) *world {
	t.Helper()
	return furnishWith(t, opt, settings, r)
}

func furnishWith(t *testing.T, opt testweir.Options, config string, r *rand.Rand) *world {
	t.Helper()
	opt.Config = config
	w := &world{t: t, opt: opt, r: r, tokens: map[string]string{}, p: testweir.Start(t, opt), took: time.Second}
	w.tenant("acme")
	w.tenant("beside")
	w.tenant("churn")
	w.tenant("old")
	w.every = newEvery(w)
	w.churn = newChurn("churn")
	w.churn.token = w.tokens["churn"]
	w.p.Query("device-management", w.churn.token, `mutation{a:createEntityGroup(request:{token:"all",memberType:"device",membershipMode:"dynamic",selector:"attr[\"limit\"] > 0"}){id}
		b:publishEntityGroup(token:"all"){version}
		c:createAreaType(request:{token:"floor"}){id} d:createArea(request:{token:"hall",areaTypeToken:"floor"}){id}}`, nil, nil)
	w.p.Query("device-management", w.churn.token, `mutation($g:String!){a:createDevice(request:{token:"reporter",deviceTypeToken:"plain"}){id}
		b:createDeviceCredential(request:{token:"reporter",deviceToken:"reporter",credentialType:"ACCESS_TOKEN",credentialId:"reporter-key",enabled:true}){id}
		c:createGeoFence(request:{token:"yard",geometry:$g}){id}}`, map[string]any{"g": yard(0)}, nil)
	for i := range 3 {
		w.source("acme", fmt.Sprintf("m%d", i), "wave", source{per: 1, wave: true})
	}
	w.source("acme", "h0", "wave", source{per: 1, http: true, wave: true})
	w.source("acme", "b0", "wave", source{per: 256, http: true, wave: true})
	w.source("beside", "m0", "wave", source{per: 1, wave: true})
	// What retention takes away again.
	w.source("old", "h0", "plain", source{per: 1, http: true, ago: 72 * time.Hour})
	// Two sources in turn on one series.
	w.source("beside", "two", "plain", source{per: 1})
	second := *w.sources[len(w.sources)-1]
	second.http, second.base = true, 1_000_000
	w.sources = append(w.sources, &second)
	return w
}

func (w *world) tenant(name string) {
	w.t.Helper()
	w.p.Run("", "tenant", "create", name)
	w.tokens[name] = w.p.SignIn(name)
	q := func(query string, vars map[string]any) {
		w.p.Query("device-management", w.tokens[name], query, vars, nil)
	}
	q(`mutation{a:createDeviceProfile(request:{token:"wave"}){token}
		b:createMetricDefinition(request:{token:"m",deviceProfileToken:"wave",metricKey:"wave",dataType:"INT"}){token}
		c:createDeviceProfile(request:{token:"p"}){token} d:createDeviceType(request:{token:"plain"}){token}}`, nil)
	for _, rule := range slices.Sorted(maps.Keys(ruleLimits)) {
		def := fmt.Sprintf(`{"name":"%s","type":"threshold","severity":"major","when":{"metric":"wave","op":"gt","threshold":%d}}`, rule, ruleLimits[rule])
		q(`mutation($d:String!){createDetectionRule(request:{token:"`+rule+`",deviceProfileToken:"wave",definition:$d,enabled:true}){token}}`, map[string]any{"d": def})
	}
	q(`mutation{a:createDeviceType(request:{token:"wave",profileToken:"wave"}){token} b:publishDeviceProfile(token:"wave"){version}}`, nil)
}

func (w *world) source(tenant, device, deviceType string, s source) {
	w.t.Helper()
	s.tenant, s.device, s.token = tenant, device, tenant+"-"+device
	w.p.Query("device-management", w.tokens[tenant], fmt.Sprintf(`mutation{a:createDevice(request:{token:%[1]q,deviceTypeToken:%[2]q}){id}
		b:createDeviceCredential(request:{token:%[1]q,deviceToken:%[1]q,credentialType:"ACCESS_TOKEN",credentialId:%[3]q,enabled:true}){id}}`, device, deviceType, s.token), nil, nil)
	w.sources = append(w.sources, &s)
}

// load sends from all sources at once, and sees to it that the program comes by a point that it does not pass by itself. It
// ends when the function that it returns is called; sent is closed when the sources have sent all that they have for now. The
// process may be gone before.
func (w *world) load(point string) (stop func(), sent <-chan struct{}) {
	closed, done := make(chan struct{}), make(chan struct{})
	var sending, running sync.WaitGroup
	for _, s := range w.sources {
		most := 20 + w.r.IntN(200)/s.per
		r := seed.Fork(w.r)
		sending.Go(func() { s.run(w.p, most, closed, r) })
	}
	running.Go(func() {
		sending.Wait()
		if strings.HasPrefix(point, "erase.") {
			<-closed // an erase takes longer
		}
		close(done)
	})
	running.Go(func() { keepOn(closed, func(c *http.Client) bool { return w.churn.step(w.p, c) }) })
	running.Go(func() { keepOn(closed, func(c *http.Client) bool { return w.every.step(w.p, c) }) })
	if w.passing != nil {
		running.Go(func() { keepOn(closed, func(c *http.Client) bool { return w.passing.step(w.p, c) }) })
	}
	if strings.HasPrefix(point, "backup.") {
		running.Go(func() {
			_, _ = w.p.TryRun("", "backup", "create", filepath.Join(w.t.TempDir(), "copy.tar")) // it is killed
		})
	}
	return func() {
		close(closed)
		running.Wait()
	}, done
}

// restart starts the instance again, which has ended.
func (w *world) restart() {
	w.t.Helper()
	w.p = testweir.Start(w.t, w.opt)
}

// rested holds what an instance has left that has ended against what must be. whole: it has stopped by itself, and was not still at what
// it found in its log.
func (w *world) rested(whole bool) {
	w.t.Helper()
	defer func(began time.Time) { w.looked += time.Since(began) }(time.Now())
	data := filepath.Join(w.opt.Dir, "data")
	db := atRest(w.t, data)
	db.agree()
	db.close()
	if w.twin != nil {
		w.twin.check(whole)
	}
}

// total says what the world has sent.
func (w *world) total() string {
	messages := 0
	for _, s := range w.sources {
		messages += s.acked
	}
	edges, orders := 0, 0
	if w.twin != nil {
		edges, orders = w.twin.edges, w.twin.orders
	}
	return fmt.Sprintf("%d messages were acknowledged, %d changes of the registry, %d reports; %d steps of rules of every kind, %d edges, %d orders",
		messages, w.churn.published+len(w.churn.gone)+len(w.churn.made)+w.churn.moved, w.churn.reported, w.every.steps, edges, orders)
}
