package crash_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// check holds the running instance, to which nothing is sent, against the books: of each source a prefix of its messages
// that reaches over the acknowledged ones, no reading twice, the rules fired as often as those readings make them, and every
// change of the registry that was answered.
func (w *world) check() {
	w.t.Helper()
	messages := map[*source]int{}
	for tenant := range maps.Keys(w.tokens) {
		w.checkSums(tenant, messages)
		w.checkFires(tenant, messages)
	}
	w.checkChurn()
	if w.passing != nil {
		w.passing.check(w)
	}
}

// sums are count and sum of a device's values.
type sums struct {
	Sum   float64
	Count int
}

// checkSums finds out how many messages of each source are there: count and sum of the values allow one answer only.
func (w *world) checkSums(tenant string, messages map[*source]int) {
	w.t.Helper()
	of := map[string][]*source{}
	for _, s := range w.sources {
		if s.tenant == tenant && s.ago == 0 {
			of[s.device] = append(of[s.device], s)
		}
	}
	if len(of) == 0 {
		return
	}
	var q strings.Builder
	for _, device := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&q, "%[1]s:bucketedMeasurements(criteria:{deviceToken:%[1]q,name:\"n\",intervalSeconds:86400}){sum count}\n", device)
	}
	var got map[string][]sums
	w.p.Query("event-management", w.tokens[tenant], "{"+q.String()+"}", nil, &got)
	for device, sources := range of {
		var all sums
		for _, b := range got[device] {
			all.Sum += b.Sum
			all.Count += b.Count
		}
		if !match(sources, all, messages) {
			w.t.Errorf("%s/%s holds %d readings with the sum %.0f, which no prefix between what was acknowledged and what was sent has: %s",
				tenant, device, all.Count, all.Sum, books(sources))
		}
	}
}

func books(sources []*source) string {
	var out []string
	for _, s := range sources {
		out = append(out, fmt.Sprintf("%d acknowledged, %d sent, of %d readings above %d", s.acked, s.sent, s.per, s.base))
	}
	return strings.Join(out, "; ")
}

// match finds for each source how many of its messages are there.
func match(sources []*source, got sums, messages map[*source]int) bool {
	if len(sources) == 0 {
		return got == sums{}
	}
	s := sources[0]
	for n := s.acked; n <= s.sent; n++ {
		k := n * s.per
		rest := sums{Sum: got.Sum - float64(s.base*k+k*(k+1)/2), Count: got.Count - k}
		if rest.Count >= 0 && match(sources[1:], rest, messages) {
			messages[s] = n
			return true
		}
	}
	return false
}

func (w *world) checkFires(tenant string, messages map[*source]int) {
	w.t.Helper()
	want := map[string]int{}
	for _, s := range w.sources {
		if s.tenant == tenant {
			s.fires(messages[s], ruleLimits, want)
		}
	}
	var health struct {
		RuleHealth []struct {
			RuleToken string
			FireCount int
		}
	}
	w.p.Query("event-processing", w.tokens[tenant], `{ruleHealth(profileToken:"wave"){ruleToken fireCount}}`, nil, &health)
	if len(health.RuleHealth) != len(ruleLimits) {
		w.t.Errorf("%s: rule health: %+v", tenant, health)
	}
	for _, h := range health.RuleHealth {
		if h.FireCount != want[h.RuleToken] {
			w.t.Errorf("%s: rule %s fired %d times, want %d", tenant, h.RuleToken, h.FireCount, want[h.RuleToken])
		}
	}
}

func (w *world) checkChurn() {
	w.t.Helper()
	c := w.churn
	var tokens []string
	for k := range c.made {
		tokens = append(tokens, fmt.Sprintf("x%d", k))
	}
	there := map[string]bool{}
	for part := range slices.Chunk(tokens, 200) {
		var got struct{ DevicesByToken []struct{ Token string } }
		w.p.Query("device-management", c.token, `query($t:[String!]!){devicesByToken(tokens:$t){token}}`, map[string]any{"t": part}, &got)
		for _, d := range got.DevicesByToken {
			there[d.Token] = true
		}
	}
	for k, made := range c.made {
		gone, asked := c.gone[k]
		has := there[fmt.Sprintf("x%d", k)]
		if has && gone || !has && made && !asked {
			w.t.Errorf("device x%d is there: %v; made: %v, deleted: %v (asked: %v)", k, has, made, gone, asked)
		}
	}
	c.checkRelated(w, there)
	c.checkReported(w)
	c.checkMoved(w)
	var profiles struct {
		DeviceProfilesByToken []struct{ ActiveVersion *int }
	}
	w.p.Query("device-management", c.token, `{deviceProfilesByToken(tokens:["p"]){activeVersion}}`, nil, &profiles)
	version := 0
	if p := profiles.DeviceProfilesByToken; len(p) == 1 && p[0].ActiveVersion != nil {
		version = *p[0].ActiveVersion
	}
	if version < c.published || version > c.asked {
		w.t.Errorf("version %d of the profile is active, %d publications were answered, %d asked for", version, c.published, c.asked)
	}
	found := map[int]int{}
	for _, v := range w.list(c.tenant, "") {
		found[v]++
	}
	for k, kept := range c.kept {
		if kept && found[k] != 1 || found[k] > 1 {
			w.t.Errorf("the reading of x%d is there %d times; acknowledged: %v", k, found[k], kept)
		}
	}
	anchors := []map[string]any{{"type": "group", "token": "all"}, {"type": "area", "token": "hall"}}
	if c.full {
		anchors = anchors[:1]
	}
	for _, anchor := range anchors {
		more := maps.Clone(found)
		for _, v := range w.find(c.tenant, map[string]any{"anchor": anchor}) {
			more[v]--
		}
		for k, n := range more {
			if n != 0 {
				w.t.Errorf("the reading of x%d is there %d times more than with its anchor %v: a change was half in force", k, n, anchor)
			}
		}
	}
}

// checkRelated looks for the relationships that devices have made: of a device that is there its one, once, and the event of each.
func (c *churn) checkRelated(w *world, there map[string]bool) {
	w.t.Helper()
	var got struct {
		EntityRelationships struct {
			Results []struct{ Source struct{ Token string } }
		}
	}
	w.p.Query("device-management", c.token, `{entityRelationships(criteria:{pageNumber:1,pageSize:1000,targetType:"area",target:"hall"}){results{source{token}}}}`, nil, &got)
	related := map[string]int{}
	for _, r := range got.EntityRelationships.Results {
		related[r.Source.Token]++
	}
	events := map[string]int{}
	for before := ""; ; {
		criteria := map[string]any{"pageNumber": 1, "pageSize": 1000, "eventTypes": []int{0}}
		if before != "" {
			criteria["before"] = before
		}
		var page struct {
			Events struct {
				Results []struct{ ID, DeviceToken string }
			}
		}
		w.p.Query("event-management", c.token, `query($c:EventSearchCriteria!){events(criteria:$c){results{id deviceToken}}}`, map[string]any{"c": criteria}, &page)
		results := page.Events.Results
		if len(results) == 0 {
			break
		}
		for _, r := range results {
			events[r.DeviceToken]++
		}
		before = results[len(results)-1].ID
	}
	for k, made := range c.related {
		x := fmt.Sprintf("x%d", k)
		if n := related[x]; n > 1 || n == 1 && !there[x] || n == 0 && there[x] && made && !c.full {
			w.t.Errorf("%s has %d relationships; it is there: %v, its event was acknowledged: %v", x, n, there[x], made)
		}
		if n := events[x]; n > 1 || n == 0 && made && !c.full {
			w.t.Errorf("the event of the relationship of %s is there %d times; acknowledged: %v", x, n, made)
		}
	}
}

// checkReported looks whether the attributes are those of one report: the newest that was answered, or one that was sent since.
func (c *churn) checkReported(w *world) {
	w.t.Helper()
	var got struct {
		EntityAttributes struct {
			Results []struct{ Scope, AttrKey, ValueType, Value string }
		}
	}
	w.p.Query("device-management", c.token, `{entityAttributes(criteria:{pageNumber:1,pageSize:10,entityType:"device",entity:"reporter"}){results{scope attrKey valueType value}}}`, nil, &got)
	is := map[string]int{}
	for _, a := range got.EntityAttributes.Results {
		n, err := strconv.Atoi(a.Value)
		if err != nil || a.Scope != "CLIENT" || a.ValueType != "LONG" {
			w.t.Errorf("an attribute that nobody has reported: %+v", a)
		}
		is[a.AttrKey] = n
	}
	want := map[string]int{}
	if n := is["first"]; n > 0 {
		want["first"] = n
		if n%2 == 0 {
			want["second"] = n
		}
	}
	if n := is["first"]; !maps.Equal(is, want) || n < c.reported && !c.full || n > c.reporting {
		w.t.Errorf("the attributes are %v, report %d was answered, %d sent", is, c.reported, c.reporting)
	}
}

// checkMoved looks whether the newest version of the set of geofences holds the geofence as it is.
func (c *churn) checkMoved(w *world) {
	w.t.Helper()
	type fence struct{ Geometry string }
	var got struct {
		GeoFencesByToken   []fence
		CurrentGeoFenceSet struct {
			Version int
			Fences  struct{ Results []fence }
		}
	}
	w.p.Query("device-management", c.token, `{geoFencesByToken(tokens:["yard"]){geometry} currentGeoFenceSet{version fences(pagination:{pageNumber:1,pageSize:10}){results{geometry}}}}`, nil, &got)
	changes, is, asked := got.CurrentGeoFenceSet.Version-1, got.GeoFencesByToken, false
	for k := c.movedLast; k <= c.moving; k++ {
		asked = asked || slices.Equal(is, []fence{{yard(k)}})
	}
	if changes < c.moved || changes > c.moving || !asked || !slices.Equal(got.CurrentGeoFenceSet.Fences.Results, is) {
		w.t.Errorf("%d changes of the geofence were answered, %d asked for: %+v", c.moved, c.moving, got)
	}
}

// list returns the values of n that a tenant, or one device of it, holds, newest first.
func (w *world) list(tenant, device string) []int {
	w.t.Helper()
	if device == "" {
		return w.find(tenant, nil)
	}
	return w.find(tenant, map[string]any{"deviceToken": device})
}

// find returns the values of n that a tenant holds which match criteria, newest first.
func (w *world) find(tenant string, match map[string]any) (out []int) {
	w.t.Helper()
	for before := ""; ; {
		var page struct {
			MeasurementEvents struct {
				Results []struct {
					ID    string
					Name  string
					Value float64
				}
			}
		}
		criteria := map[string]any{"pageNumber": 1, "pageSize": 1000}
		maps.Copy(criteria, match)
		if before != "" {
			criteria["before"] = before
		}
		w.p.Query("event-management", w.tokens[tenant], `query($c:EventSearchCriteria!){measurementEvents(criteria:$c){results{id name value}}}`, map[string]any{"c": criteria}, &page)
		results := page.MeasurementEvents.Results
		if len(results) == 0 {
			return out
		}
		for _, r := range results {
			if r.Name == "n" {
				out = append(out, int(r.Value))
			}
		}
		before = results[len(results)-1].ID
	}
}

// checkWhole is check and more: each reading by its value, the ledger recounted, and nothing damaged.
func (w *world) checkWhole() {
	w.t.Helper()
	w.check()
	messages := map[*source]int{}
	for tenant := range maps.Keys(w.tokens) {
		w.checkSums(tenant, messages)
	}
	want := map[string]map[int]int{} // by device, how often each value
	for _, s := range w.sources {
		if want[s.String()] == nil {
			want[s.String()] = map[int]int{}
		}
		for v := s.base + 1; v <= s.base+messages[s]*s.per; v++ {
			want[s.String()][v]++
		}
	}
	for _, s := range w.sources {
		if s.ago > 0 {
			continue
		}
		values := want[s.String()]
		for _, v := range w.list(s.tenant, s.device) {
			values[v]--
		}
		for v, missing := range values {
			if missing != 0 {
				w.t.Errorf("%s: the reading %d is there %d times", s, v, 1-missing)
			}
			delete(values, v)
		}
		if s.device == "two" {
			break // both of its sources at once, and it is the last
		}
	}
	w.recount()
}

// recount lets the ledger be verified, and the doctor look for damage.
func (w *world) recount() {
	w.t.Helper()
	if out, err := w.p.TryRun("", "ledger", "verify", "--json"); err != nil {
		w.t.Errorf("the ledger does not balance: %v\n%s", err, out)
	}
	out, _ := w.p.TryRun("", "doctor", "--json") // it may have found something of this machine
	w.noDamage(out)
}

// noDamage reads what the doctor has found.
func (w *world) noDamage(out string) {
	w.t.Helper()
	var report struct {
		Findings []struct{ ID, Result, Finding string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Findings) == 0 {
		w.t.Errorf("the doctor says %q: %v", out, err)
	}
	for _, f := range report.Findings {
		if f.Result == "fail" {
			w.t.Errorf("the doctor finds %s: %s", f.ID, f.Finding)
		}
	}
}
