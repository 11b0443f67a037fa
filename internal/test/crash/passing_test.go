package crash_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/internal/test/fixture"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
	"weir/store"
	"weir/store/erase"
)

// shortWaits lets the whole of an erase happen within seconds, keeps a snapshot of the state of rules and sweeps all the time, in a build
// with the tag faults.
const shortWaits = "FAULTS_WAITS=erase.every=200ms,erase.settle=500ms,erase.hold=1s,rules.snapshot=3s,retention.every=300ms"

const (
	// mark is in every name and value of the tenants that pass, except in their tokens: those stay in journals on purpose.
	mark = "zebra"
	// maxErases is how many deletions may be incomplete at a time: each pass of the eraser goes over all of them.
	maxErases = 2
)

// passing makes tenants with rows of many kinds and deletes them while the rest goes on. A token is never used twice.
type passing struct {
	identity string
	next     int
	there    []string        // made or asked for, not deleted yet
	deleted  map[string]bool // false: asked for
}

func newPassing(p *testweir.Proc) *passing {
	return &passing{identity: p.Identity(), deleted: map[string]bool{}}
}

// step deletes the tenants that are there, and makes the next one unless enough is being erased.
func (c *passing) step(p *testweir.Proc, client *http.Client) bool {
	if !c.deleteAll(p) {
		return false
	}
	var open struct {
		TenantDeletions struct{ Pagination struct{ TotalRecords int } }
	}
	if err := p.TryQuery("user-management/admin", c.identity, `{tenantDeletions(criteria:{pageNumber:1,pageSize:1,completed:false}){pagination{totalRecords}}}`, nil, &open); err != nil {
		return false
	}
	if open.TenantDeletions.Pagination.TotalRecords >= maxErases {
		time.Sleep(planAge)
		return true
	}
	c.next++
	name := fmt.Sprintf("passing-%d", c.next)
	c.there = append(c.there, name)
	return c.inhabit(p, client, name)
}

func (c *passing) deleteAll(p *testweir.Proc) bool {
	for len(c.there) > 0 {
		name := c.there[0]
		c.deleted[name] = false
		if err := p.TryQuery("user-management/admin", c.identity, fmt.Sprintf(`mutation{deleteTenant(token:%q)}`, name), nil, nil); err != nil {
			return false
		}
		c.deleted[name], c.there = true, c.there[1:]
	}
	return true
}

// inhabit makes a tenant that has something in every part of the instance.
func (c *passing) inhabit(p *testweir.Proc, client *http.Client, name string) bool {
	var in struct {
		SelectTenant struct{ AccessToken string }
	}
	if p.TryQuery("user-management/admin", c.identity, fmt.Sprintf(`mutation{createTenant(request:{token:%q,tierToken:"silver",name:"The %s company"}){id}}`, name, mark), nil, nil) != nil ||
		p.TryQuery("user-management", "", fmt.Sprintf(`mutation{selectTenant(identityToken:%q,tenant:%q){accessToken}}`, c.identity, name), nil, &in) != nil {
		return false
	}
	for _, q := range []struct{ area, mutations string }{
		{"device-management", `a:createDeviceProfile(request:{token:"@-profile",name:"@"}){id}
			b:createMetricDefinition(request:{token:"@-metric",deviceProfileToken:"@-profile",metricKey:"@_metric",dataType:"INT"}){id}
			c:createDetectionRule(request:{token:"@-rule",deviceProfileToken:"@-profile",enabled:true,definition:"{\"name\":\"@ rule\",\"type\":\"threshold\",\"severity\":\"major\",\"when\":{\"metric\":\"@_metric\",\"op\":\"gt\",\"threshold\":50}}"}){id}
			d:createDeviceType(request:{token:"@-type",profileToken:"@-profile"}){id}
			e:publishDeviceProfile(token:"@-profile"){version}`},
		{"device-management", `a:createAreaType(request:{token:"@-at"}){id} b:createArea(request:{token:"@-area",name:"@ area",areaTypeToken:"@-at"}){id}
			c:createGeoFence(request:{token:"@-fence",name:"@ fence",geometry:"{\"kind\":\"POLYGON_2D\",\"geometry\":{\"type\":\"Polygon\",\"coordinates\":[[[0,0],[1,0],[1,1],[0,0]]]}}"}){id}
			d:createDevice(request:{token:"@-1",name:"@ device",deviceTypeToken:"@-type"}){id}
			e:createDeviceCredential(request:{token:"@-1",deviceToken:"@-1",credentialType:"ACCESS_TOKEN",credentialId:"@-secret",enabled:true}){id}`},
		{"device-management", `a:setEntityAttribute(request:{entityType:"device",entity:"@-1",scope:"SHARED",attrKey:"@",valueType:"STRING",value:"@-value"}){id}
			b:createEntityGroup(request:{token:"@-group",name:"@ group",memberType:"device",membershipMode:"dynamic",selector:"attr[\"@\"] == \"@-value\""}){id}
			c:publishEntityGroup(token:"@-group",label:"@ label"){version}`},
		{"dashboard-management", `a:createDashboard(request:{token:"@-dashboard",name:"@ dashboard",definition:"{\"title\":\"@\"}"}){id}
			b:publishDashboard(token:"@-dashboard",label:"@ label"){version}`},
	} {
		if p.TryQuery(q.area, in.SelectTenant.AccessToken, "mutation{"+marked(q.mutations)+"}", nil, nil) != nil {
			return false
		}
	}
	const as = `"credentialType":"ACCESS_TOKEN","credentialId":"@-secret"`
	var events []string
	for i := range 24 { // so many that their altIds are kept as texts
		events = append(events, fmt.Sprintf(`{"eventType":"Measurement","altId":"@%d","payload":{"entries":[{"measurements":{"@_metric":"%d"}}]},%s}`, i, 40+i, as))
	}
	events = append(events, `{"eventType":"Location","altId":"@-l","payload":{"entries":[{"latitude":"47.1","longitude":"8.2"}]},`+as+`}`,
		`{"eventType":"Alert","altId":"@-a","payload":{"entries":[{"type":"@.alert","level":1,"message":"@ is hot"}]},`+as+`}`,
		`{"eventType":"NewRelationship","payload":{"relationshipType":"assigned","targetType":"area","target":"@-area"},`+as+`}`,
		`{"eventType":"NewRelationship","payload":{"relationshipType":"assigned","targetType":"area","target":"@-nowhere"},`+as+`}`) // a dead letter
	return post(client, p, name, []byte(marked("["+strings.Join(events, ",")+"]"))) && report(client, p, name, marked("@-1"), marked("@-secret"), marked(`{"attributes":{"@":"@-value"}}`))
}

// marked puts the mark where a name or value has an @.
func marked(text string) string { return strings.ReplaceAll(text, "@", mark) }

// check holds the running instance against what was answered: a tenant that was deleted is never there again.
func (c *passing) check(w *world) {
	w.t.Helper()
	var got struct {
		Tenants         []struct{ Token, PurgeState string }
		TenantDeletions struct {
			Results []struct{ Token string }
		}
	}
	w.p.Query("user-management/admin", c.identity, `{tenants{token purgeState} tenantDeletions(criteria:{pageNumber:1,pageSize:1000}){results{token}}}`, nil, &got)
	for _, t := range got.Tenants {
		if c.deleted[t.Token] && t.PurgeState != "purging" {
			w.t.Errorf("the tenant %s is %s, its deletion was answered", t.Token, t.PurgeState)
		}
	}
	deletions := map[string]int{}
	for _, d := range got.TenantDeletions.Results {
		deletions[d.Token]++
	}
	for name := range maps.Keys(c.deleted) {
		if deletions[name] > 1 {
			w.t.Errorf("%s was deleted %d times", name, deletions[name])
		}
		if !c.deleted[name] {
			continue
		}
		if err := w.p.TryQuery("user-management", "", fmt.Sprintf(`mutation{selectTenant(identityToken:%q,tenant:%q){accessToken}}`, c.identity, name), nil, nil); err == nil {
			w.t.Errorf("the deleted tenant %s can be entered", name)
			break
		}
	}
}

// checkErased deletes what is still there, waits until every erase is complete (with short waits: until every token is free), stops
// the instance, and looks for what is left in tables and files.
func (c *passing) checkErased(w *world, short bool) {
	w.t.Helper()
	if !c.deleteAll(w.p) {
		w.t.Error("a tenant cannot be deleted")
	}
	want := []string{"NONE"}
	if !short {
		want = []string{"SETTLE", "TOKEN_HOLD"}
	}
	var got struct {
		TenantDeletions struct {
			Results []struct {
				Token, Awaiting string
				BlockedBy       []string
			}
		}
	}
	poll.Until(w.t, "every deleted tenant is erased", func() error {
		w.p.Query("user-management/admin", c.identity, `{tenantDeletions(criteria:{pageNumber:1,pageSize:1000}){results{token awaiting blockedBy}}}`, nil, &got)
		for _, d := range got.TenantDeletions.Results {
			if !slices.Contains(want, d.Awaiting) {
				return fmt.Errorf("%+v", d)
			}
		}
		return nil
	})
	if len(got.TenantDeletions.Results) == 0 {
		w.t.Error("no tenant was deleted: the test shows nothing")
	}
	c.check(w)
	if err := w.p.Stop(); err != nil {
		w.t.Fatal(err)
	}
	data := filepath.Join(w.opt.Dir, "data")
	db := fixture.StoreIn(w.t, data)
	left := map[string]map[string]int{}
	if err := db.Read(w.t.Context(), func(tx store.Tx) error {
		found, _, err := erase.List(tx, store.Page{Number: 1, Size: store.MaxPageSize}, erase.Filter{})
		for _, d := range found {
			rows, e := erase.Left(tx, d.Tenant)
			if e != nil {
				return e
			}
			if len(rows) > 0 {
				left[d.Token] = rows
			}
		}
		return err
	}); err != nil || len(left) > 0 {
		w.t.Errorf("rows of erased tenants are left: %v, %v", left, err)
	}
	if files := holding(w, data, mark); len(files) > 0 {
		w.t.Errorf("files hold something of erased tenants:\n%s", strings.Join(files, "\n"))
	}
	w.t.Logf("%d tenants were deleted", len(got.TenantDeletions.Results))
}

// holding returns the files below a directory that hold a text.
func holding(w *world, dir, text string) (files []string) {
	w.t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if at := bytes.Index(b, []byte(text)); at >= 0 {
			files = append(files, fmt.Sprintf("%s: %d times, at %d: %q", path, bytes.Count(b, []byte(text)), at, b[max(0, at-60):min(len(b), at+60)]))
		}
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return files
}
