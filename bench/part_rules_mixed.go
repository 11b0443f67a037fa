package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/test/testweir"
)

// The mixed set: each of the profiles has rulesOfEach rules that judge every reading of its devices, the first of them a threshold; some have
// a rule for connections besides. 100 rules in all.
const (
	mixedProfiles  = 18
	rulesOfEach    = 5
	connectedRules = 10
	mixedDevices   = 10_000
	mixedPosters   = 64
	mixedEvents    = 100 // in each POST
	devicesAtAsset = 100
)

// judgedKinds are the kinds of the other rules, in turn; those of aggregates have their windows in turn.
var judgedKinds = []func(i int) string{
	func(int) string {
		return `{"name":"n","type":"deltaRate","severity":"minor","metric":"temp","op":"gt","threshold":5` + alarming
	},
	func(int) string {
		return `{"name":"n","type":"repeating","severity":"minor","count":500,"window":"5s","when":{"metric":"temp","op":"gt","threshold":22}` + alarming
	},
	func(int) string {
		return `{"name":"n","type":"duration","severity":"minor","hold":"10s","when":{"metric":"temp","op":"gt","threshold":21}` + alarming
	},
	func(int) string { return `{"name":"n","type":"absence","severity":"minor","timeout":"1h"` + alarming },
	func(i int) string {
		return `{"name":"n","type":"aggregate","severity":"minor","agg":"avg","metric":"temp","op":"gt","threshold":25,` +
			[]string{`"windowMode":"tumbling","window":"1m"`, `"windowMode":"sliding","window":"1m"`, `"windowMode":"session","gap":"10s"`, `"windowMode":"count","count":100`}[i%4] + alarming
	},
	func(int) string {
		return `{"name":"n","type":"correlation","severity":"minor","anchorType":"asset","count":50,"window":"10s","when":{"metric":"temp","op":"gt","threshold":25}}`
	},
}

const alarming = `,"actions":[{"type":"raiseAlarm","raiseAlarm":{}}]}`

// hotAlarm is the alarm of the first rule of each profile, which is a comparison here and an expression there.
const hotAlarm = "hot"

func hotRule(profile int) string {
	when := `{"metric":"temp","op":"gt","threshold":25}`
	if profile%2 == 1 {
		when = `{"cel":"\"temp\" in m && m[\"temp\"] > 25.0"}`
	}
	return `{"name":"n","type":"threshold","severity":"major","when":` + when + `,"actions":[{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"` + hotAlarm + `"}}]}`
}

func mixedProfile(i int) string { return fmt.Sprintf("m%02d", i) }

// mixedDefinitions are the rules of a profile, the first of them the threshold.
func mixedDefinitions(profile int) []string {
	all := []string{hotRule(profile)}
	for n := range rulesOfEach - 1 {
		slot := profile*(rulesOfEach-1) + n
		all = append(all, judgedKinds[slot%len(judgedKinds)](slot/len(judgedKinds)))
	}
	if profile < connectedRules {
		all = append(all, `{"name":"n","type":"connectivity","severity":"minor"`+alarming)
	}
	return all
}

// declareMixed makes the profiles, and so many devices of them in turn, each assigned to an asset.
func (in *instance) declareMixed(ctx context.Context, devices int) error {
	var site strings.Builder
	files := make([]strings.Builder, mixedProfiles)
	site.WriteString("version: 1\ntenants:\n  - token: " + tenant + "\n    deviceProfiles:\n")
	for p := range mixedProfiles {
		fmt.Fprintf(&site, "      - token: %s\n        detectionRules:\n", mixedProfile(p))
		for i, d := range mixedDefinitions(p) {
			fmt.Fprintf(&site, "          - {token: %s-r%d, definition: %s}\n", mixedProfile(p), i, d)
		}
	}
	site.WriteString("    assetTypes: [{token: line}]\n    assets:\n")
	for a := range (devices + devicesAtAsset - 1) / devicesAtAsset {
		fmt.Fprintf(&site, "      - {token: a%d, assetTypeToken: line}\n", a)
	}
	site.WriteString("    deviceTypes:\n")
	for p := range mixedProfiles {
		fmt.Fprintf(&site, "      - {token: t%d, profileToken: %s}\n", p, mixedProfile(p))
	}
	site.WriteString("    devicesFrom:\n")
	for p := range mixedProfiles {
		fmt.Fprintf(&site, "      - {file: t%d.csv, deviceTypeToken: t%d}\n", p, p)
		files[p].WriteString("token,accessToken\n")
	}
	site.WriteString("    entityRelationships:\n")
	for i := range devices {
		fmt.Fprintf(&files[i%mixedProfiles], "%s,%s\n", deviceToken(i), accessToken(i))
		fmt.Fprintf(&site, "      - {token: at-%d, sourceType: device, source: %s, targetType: asset, target: a%d, relationshipType: assigned}\n", i, deviceToken(i), i/devicesAtAsset)
	}
	file := filepath.Join(in.dir, "mixed.yaml")
	err := os.WriteFile(file, []byte(site.String()), 0o600)
	for p := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(in.dir, fmt.Sprintf("t%d.csv", p)), []byte(files[p].String()), 0o600))
	}
	if err != nil {
		return err
	}
	return in.run(ctx, "", "site", "apply", file)
}

// crowded are devices whose readings a few gateways post.
type crowded struct {
	bodies  []*body
	refused atomic.Int64 // posts for which there was no room
}

func newCrowded(devices int, kind bodyKind) *crowded {
	c := &crowded{bodies: make([]*body, devices)}
	for i := range c.bodies {
		c.bodies[i] = newBody(kind, uint64(i))
		c.bodies[i].token = accessToken(i)
	}
	return c
}

// kept is what must be there of them, and raised how many of the first rules are.
func (c *crowded) kept() (want kept, raised int64) {
	for _, d := range c.bodies {
		want.readings += d.number
		want.sum += d.sum
		want.edges += d.edges
		raised += min(d.over, 1)
	}
	return want, raised
}

// share are the devices of a poster.
func (c *crowded) share(s *sender) []*body {
	return c.bodies[len(c.bodies)*s.index/s.of : len(c.bodies)*(s.index+1)/s.of]
}

// posts posts the readings of a share, device by device. With a rate, all posters together send so many readings a second, and each delay is
// counted from the moment at which the post was due; with 0 each posts as soon as the one before is acknowledged.
func (c *crowded) posts(host string, rate float64) pattern {
	return func(s *sender, stop *atomic.Bool) error {
		mine, at := c.share(s), 0
		var every time.Duration
		if rate > 0 {
			every = time.Duration(float64(s.of*mixedEvents) / rate * float64(time.Second))
		}
		next := time.Now().Add(every * time.Duration(s.index) / time.Duration(s.of))
		var payload []byte
		for !stop.Load() {
			if rate > 0 {
				time.Sleep(time.Until(next))
			} else {
				next = time.Now()
			}
			payload = append(payload[:0], '[')
			for i := range mixedEvents {
				if i > 0 {
					payload = append(payload, ',')
				}
				payload = mine[at%len(mine)].append(payload)
				at++
			}
			if err := c.post(s, host, append(payload, ']')); err != nil {
				return err
			}
			if s.timed.Load() {
				s.lat.add(time.Since(next), 1)
			}
			s.acked.Add(mixedEvents)
			next = next.Add(every)
		}
		return nil
	}
}

// post posts until there is room.
func (c *crowded) post(s *sender, host string, payload []byte) error {
	for {
		err := s.post(host, payload)
		if e, ok := errors.AsType[*statusError](err); !ok || e.code != http.StatusTooManyRequests && e.code != http.StatusServiceUnavailable {
			return err
		}
		c.refused.Add(1)
		time.Sleep(10 * time.Millisecond)
	}
}

// posters are connections for them.
func (in *instance) posters(ctx context.Context, n int) ([]*sender, error) {
	senders := make([]*sender, n)
	for i := range senders {
		s, err := in.poster(ctx, i)
		if err != nil {
			return nil, err
		}
		s.of, senders[i] = n, s
	}
	return senders, nil
}

// administer makes the tenant and its administrator.
func (in *instance) administer(ctx context.Context) error {
	if err := in.run(ctx, "", "tenant", "create", tenant); err != nil {
		return err
	}
	if err := in.run(ctx, password, "admin", "create", email, "--password-file", "-"); err != nil {
		return err
	}
	return in.signIn(ctx)
}

// mixedRules measures readings that rules of all kinds judge: how many go the whole way, and at half of that how soon an edge is on the stream;
// and what is written where rules only wait.
func (b *bench) mixedRules(ctx context.Context) error {
	devices := mixedDevices
	if !b.all {
		devices /= 10
	}
	long := *b
	long.seconds = 3 * b.seconds
	in, err := b.fresh(ctx, setup{config: "detection: {max_samples_per_tenant: 50000000}\n"})
	if err != nil {
		return err
	}
	defer in.drop()
	if err := errors.Join(in.administer(ctx), in.declareMixed(ctx, devices+1)); err != nil { // one more for the stream
		return err
	}
	if err := b.quiet(ctx); err != nil {
		return err
	}
	c := newCrowded(devices, mixed)
	most, w, err := long.crowdLoad(ctx, in, c, "rules-mixed", 0, nil)
	if err != nil {
		return err
	}
	fired, err := in.verifyMixed(ctx, c)
	if err != nil {
		return err
	}
	sent, _ := c.kept()
	what := fmt.Sprintf("each reading judged by %d of 100 rules of all kinds, %s devices", rulesOfEach, count(float64(devices)))
	b.judged(atLeast(60_000, 150_000, perSecond), fmt.Sprintf("%s, %s: stored and judged", what, long.seconds), most.rate-w.grown(),
		"acknowledged %s, in arrays of %d over %d connections, %s posts sent again; 1 %% out of order; %.2f %% edges with an alarm; waiting for the applier %d at first, %d at last, %d at most; server %.2f cores, %.1f µs per reading%s",
		perSecond(most.rate), mixedEvents, mixedPosters, count(float64(c.refused.Load())), 100*float64(fired)/float64(sent.readings), w.first, w.last, w.most, most.cpu, most.micro, most.others())

	probe, err := in.probe(ctx, devices)
	if err != nil {
		return err
	}
	defer func() { _ = probe.Close() }()
	half, _, err := b.crowdLoad(ctx, in, c, "rules-half", (most.rate-w.grown())/2, probe.watch)
	if err != nil {
		return err
	}
	b.judged(within(50, millis), "an edge of a threshold on detectionStream, from the PUBACK of its reading on: p99", inMillis(probe.late.quantile(0.99)),
		"p50 %s, longest %s of %d edges, each waited for before the next; beside %s of the load above, half of the most; PUBACK p50 %s, p99 %s%s",
		short(probe.late.quantile(0.5)), short(probe.late.quantile(1)), probe.late.n, perSecond(half.rate), short(probe.acked.quantile(0.5)), short(probe.acked.quantile(0.99)), half.others())
	return silentDevices(b, ctx)
}

// crowdLoad lets the devices send, and looks at what waits for the applier.
func (b *bench) crowdLoad(ctx context.Context, in *instance, c *crowded, name string, rate float64, watch func(bool) error) (*outcome, *watchBacklog, error) {
	senders, err := in.posters(ctx, mixedPosters)
	if err != nil {
		return nil, nil, err
	}
	defer closeAll(senders)
	defer b.perf(ctx, name, in.pid())()
	w := &watchBacklog{in: in, ctx: ctx}
	o, err := b.drive(ctx, in.pid(), senders, c.posts(in.ingest, rate), func(begins bool) error {
		err := w.watch(begins)
		if watch != nil {
			err = errors.Join(err, watch(begins))
		}
		return err
	})
	return o, w, err
}

// grown is how many more records wait at the end than at the beginning, per second.
func (w *watchBacklog) grown() float64 {
	return max(float64(w.last-w.first)/w.finished.Sub(w.began).Seconds(), 0)
}

// verifyMixed compares what is there with what was acknowledged: readings, edges of the first rule of each profile, its alarms. It returns the
// edges of all rules.
func (in *instance) verifyMixed(ctx context.Context, c *crowded) (edges int64, err error) {
	want, raised := c.kept()
	if err := in.verify(ctx, want); err != nil {
		return 0, err
	}
	hot := int64(0)
	for p := range mixedProfiles {
		var got struct {
			RuleHealth []struct {
				RuleToken, Status string
				FireCount         int64
			}
		}
		if err := in.query(ctx, "event-processing", fmt.Sprintf(`{ruleHealth(profileToken:%q){ruleToken status fireCount}}`, mixedProfile(p)), nil, &got); err != nil {
			return 0, err
		}
		for _, r := range got.RuleHealth {
			if r.Status != "ACTIVE" {
				return 0, fmt.Errorf("rule %s is %s", r.RuleToken, r.Status)
			}
			if edges += r.FireCount; strings.HasSuffix(r.RuleToken, "-r0") {
				hot += r.FireCount
			}
		}
	}
	if hot != want.edges {
		return 0, fmt.Errorf("the thresholds fired %d times, %d expected", hot, want.edges)
	}
	active, err := in.activeAlarms(ctx, hotAlarm)
	if err == nil && active != raised {
		err = fmt.Errorf("%d alarms are active, %d expected", active, raised)
	}
	return edges, err
}

// activeAlarms is how many devices have an alarm of a key that is active.
func (in *instance) activeAlarms(ctx context.Context, key string) (int64, error) {
	var got struct {
		Alarms struct{ Pagination struct{ TotalRecords int64 } }
	}
	err := in.query(ctx, "device-management", `query($c:AlarmSearchCriteria!){alarms(criteria:$c){pagination{totalRecords}}}`,
		map[string]any{"c": map[string]any{"pageNumber": 1, "pageSize": 1, "state": "ACTIVE", "alarmKey": key}}, &got)
	return got.Alarms.Pagination.TotalRecords, err
}

// probeEvery is how often the probe sends.
const probeEvery = 50 * time.Millisecond

// probe is a device of which each reading has an edge, and a client that waits for the edges.
type probe struct {
	*sender
	ctx         context.Context
	socket      *testweir.Socket
	token       string
	edges       chan time.Time
	ended       chan error
	stop        atomic.Bool
	done        chan error
	acked, late hist
}

// probe connects a device of the mixed set, subscribes to the edges of its profile, and waits until they come.
func (in *instance) probe(ctx context.Context, device int) (*probe, error) {
	token := deviceToken(device)
	c, err := dialMQTT(ctx, in.mqtt, "weir:"+tenant+":"+token, tenant+":"+accessToken(device), "weir/"+tenant+"/devices/"+token+"/events")
	if err != nil {
		return nil, err
	}
	p := &probe{sender: &sender{client: c, body: newBody(flap, uint64(device)), of: 1}, ctx: ctx, token: token, edges: make(chan time.Time, 1024), ended: make(chan error, 1)}
	if p.socket, err = testweir.DialSocket(in.api, "event-processing", in.token); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	query := fmt.Sprintf(`subscription{detectionStream(profileToken:%q){ruleToken series}}`, mixedProfile(device%mixedProfiles))
	if err := p.socket.Subscribe("1", query, nil); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	go func() { p.ended <- p.read() }()
	return p, p.stands()
}

// Close ends both connections.
func (p *probe) Close() error {
	p.socket.Close()
	return p.client.Close()
}

// read takes the time at which each edge of the device's threshold comes.
func (p *probe) read() error {
	for {
		m, err := p.socket.Next(24 * time.Hour)
		if err != nil {
			return err
		}
		now := time.Now()
		if m.Type != "next" {
			return fmt.Errorf("the stream ended: %s %s", m.Type, m.Payload)
		}
		var got struct {
			Data struct {
				DetectionStream struct{ RuleToken, Series string }
			}
		}
		if err := json.Unmarshal(m.Payload, &got); err != nil {
			return err
		}
		if e := got.Data.DetectionStream; e.Series == p.token && strings.HasSuffix(e.RuleToken, "-r0") {
			p.edges <- now
		}
	}
}

// stands sends readings until the first edge comes: nothing else tells when a subscription stands.
func (p *probe) stands() error {
	for range 60 {
		if _, err := p.publish(); err != nil {
			return err
		}
		select {
		case <-p.edges:
			p.acked = hist{}
			return nil
		case err := <-p.ended:
			return err
		case <-time.After(time.Second):
		}
	}
	return errors.New("no edge came on the stream")
}

func (p *probe) watch(begins bool) error {
	if !begins {
		p.stop.Store(true)
		return <-p.done
	}
	p.done = make(chan error, 1)
	go func() { p.done <- p.run() }()
	return nil
}

// run sends a reading and waits for its edge, again and again.
func (p *probe) run() error {
	for next := time.Now(); !p.stop.Load(); next = next.Add(probeEvery) {
		if err := pause(p.ctx, time.Until(next)); err != nil {
			return err
		}
		for len(p.edges) > 0 { // of before the subscription was known to stand
			<-p.edges
		}
		acked, err := p.publish()
		if err != nil {
			return err
		}
		select {
		case at := <-p.edges:
			p.late.add(max(0, at.Sub(acked)), 1)
		case err := <-p.ended:
			return err
		case <-time.After(grace):
			return fmt.Errorf("no edge on the stream after %s", grace)
		}
	}
	return nil
}

// publish sends a reading and returns when it was acknowledged.
func (p *probe) publish() (time.Time, error) {
	payload, sent := p.body.append(nil), time.Now()
	if err := p.patient(sent); err != nil {
		return sent, err
	}
	if _, err := p.Write(appendPublish(nil, p.topic, p.sent, payload)); err != nil {
		return sent, err
	}
	if _, err := p.acks(p.sent); err != nil {
		return sent, err
	}
	p.sent++
	acked := time.Now()
	p.acked.add(acked.Sub(sent), 1)
	return acked, nil
}
