package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// What the registry is asked over.
const (
	registryDevices    = 100_000
	registryAttributes = 10 // of each device
	registryClients    = 8
	registryBatch      = 5_000 // devices in one site file
	publishedRules     = 100
)

// registry measures what a console asks of a large registry, and what it holds in memory.
func (b *bench) registry(ctx context.Context) error {
	devices := registryDevices
	if !b.all {
		devices /= 10
	}
	in, err := b.ready(ctx, setup{devices: devices, rules: 1})
	if err != nil {
		return err
	}
	defer in.drop()
	began := time.Now()
	if err := in.attribute(ctx, devices); err != nil {
		return err
	}
	b.say.Printf("  %d attributes of %s devices declared in %s", registryAttributes, count(float64(devices)), short(time.Since(began)))
	if err := in.groups(ctx); err != nil {
		return err
	}
	if err := in.restart(ctx); err != nil { // without the memory that creating them needed
		return err
	}
	if err := b.registryMemory(ctx, in, devices); err != nil {
		return err
	}
	if err := in.signIn(ctx); err != nil {
		return err
	}
	for _, measure := range []func(context.Context, *instance, int) error{b.randomDevices, b.registryPages, b.publishing, b.attributeWrites} {
		if err := measure(ctx, in, devices); err != nil {
			return err
		}
	}
	return nil
}

// attribute gives each device its attributes, by site files as an operator would. Of n a hundredth has each value, of k a
// thousandth, and of zone a half.
func (in *instance) attribute(ctx context.Context, devices int) error {
	for from := 0; from < devices; from += registryBatch {
		var site strings.Builder
		site.WriteString("version: 1\ntenants:\n  - token: " + tenant + "\n    devices:\n")
		for i := from; i < min(from+registryBatch, devices); i++ {
			fmt.Fprintf(&site, "      - token: %s\n        serverAttributes: {n: %d, k: %d, zone: %q", deviceToken(i), i%100, i%1000, []string{"north", "south"}[i/100%2])
			for a := range registryAttributes - 3 {
				fmt.Fprintf(&site, ", a%d: %d.5", a, i%(a+7))
			}
			site.WriteString("}\n")
		}
		file := filepath.Join(in.dir, "attributes.yaml")
		if err := os.WriteFile(file, []byte(site.String()), 0o600); err != nil {
			return err
		}
		if err := in.run(ctx, "", "site", "apply", file); err != nil {
			return err
		}
	}
	return nil
}

// Groups of two comparisons: which devices they match.
var registryGroups = []struct {
	token, selector, matching string
	goal                      goal
}{
	{"many", `attr["n"] < 60 && attr["zone"] == "north"`, "30 %", within(20, millis)},
	{"few", `attr["k"] == 7 && attr["n"] >= 0`, "0.1 %", within(150, millis)},
}

func (in *instance) groups(ctx context.Context) error {
	for _, g := range registryGroups {
		if err := in.query(ctx, "device-management", `mutation($t:String!,$s:String!){createEntityGroup(request:{token:$t,memberType:"device",membershipMode:"dynamic",selector:$s}){id} publishEntityGroup(token:$t){version}}`,
			map[string]any{"t": g.token, "s": g.selector}, nil); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) registryMemory(ctx context.Context, in *instance, devices int) error {
	if err := pause(ctx, b.seconds/2); err != nil {
		return err
	}
	n, err := anonymous(in.pid())
	if err != nil {
		return err
	}
	b.judged(atMost(160, 90, mebibytes), fmt.Sprintf("memory, idle, %s devices × %d attributes", count(float64(devices)), registryAttributes), float64(n)/(1<<20),
		"RSS without file pages, %s after the start", (b.seconds / 2).Round(time.Second))
	return nil
}

// apiClient asks one question after the other over a connection of its own.
type apiClient struct {
	in    *instance
	area  string
	token string
	http  *http.Client
}

func newAPIClient(in *instance) *apiClient {
	return &apiClient{in, "device-management", in.token, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}
}

// ask posts a request; the token's signature is verified with each.
func (c *apiClient) ask(ctx context.Context, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.in.api+"/api/"+c.area+"/graphql", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || bytes.Contains(answer, []byte(`"errors"`))) {
		err = fmt.Errorf("%s: %.500s", resp.Status, answer)
	}
	return answer, err
}

func requestBody(doc string, vars map[string]any) []byte {
	body, _ := json.Marshal(map[string]any{"query": doc, "variables": vars}) // texts and numbers always have a JSON form
	return body
}

// clients lets so many ask for a time, and returns what all of their answers took.
func clients(ctx context.Context, in *instance, n int, length time.Duration, question func(r *rand.Rand) []byte) (all hist, rate float64, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	until := time.Now().Add(length)
	for i := range n {
		wg.Go(func() {
			c, r := newAPIClient(in), rand.New(rand.NewPCG(5, uint64(i)))
			var h hist
			var failed error
			for failed == nil && time.Now().Before(until) && ctx.Err() == nil {
				body := question(r)
				began := time.Now()
				_, failed = c.ask(ctx, body)
				h.add(time.Since(began), 1)
			}
			mu.Lock()
			defer mu.Unlock()
			all.merge(&h)
			err = errors.Join(err, failed)
		})
	}
	wg.Wait()
	return all, float64(all.n) / length.Seconds(), err
}

func (b *bench) randomDevices(ctx context.Context, in *instance, devices int) error {
	const doc = `query($t:[String!]!){devicesByToken(tokens:$t){id token name externalId metadata deviceType{token name}}}`
	question := func(r *rand.Rand) []byte {
		return requestBody(doc, map[string]any{"t": []string{deviceToken(r.IntN(devices))}})
	}
	if _, _, err := clients(ctx, in, registryClients, b.warmup, question); err != nil {
		return err
	}
	alone, _, err := clients(ctx, in, 1, b.seconds/2, question)
	if err != nil {
		return err
	}
	before, err := cpuTime(in.pid())
	if err != nil {
		return err
	}
	all, rate, err := clients(ctx, in, registryClients, b.seconds, question)
	if err != nil {
		return err
	}
	after, err := cpuTime(in.pid())
	if err != nil {
		return err
	}
	what := fmt.Sprintf("one device of %s by token, with its type", count(float64(devices)))
	b.judged(within(1, millis), what+", one client", inMillis(alone.quantile(0.5)), "p50 of %s over HTTP, p99 %s; the signature of the token is verified each time", count(float64(alone.n)), short(alone.quantile(0.99)))
	b.judged(atLeast(3000, 3000, perSecond), fmt.Sprintf("%s, %d clients", what, registryClients), rate, "p50 %s, p99 %s; server %s of CPU time each",
		short(all.quantile(0.5)), short(all.quantile(0.99)), short((after-before)/time.Duration(max(all.n, 1))))
	return nil
}

// registryPages are the pages of lists, searches and groups.
func (b *bench) registryPages(ctx context.Context, in *instance, devices int) error {
	of := fmt.Sprintf(" of %s devices", count(float64(devices)))
	const device = `id token createdAt updatedAt deletedAt externalId name description metadata deviceType{id token createdAt name description imageUrl icon backgroundColor foregroundColor borderColor metadata}`
	const page = `query($c:DeviceSearchCriteria!){devices(criteria:$c){results{` + device + `} pagination{totalRecords}}}`
	const members = `query($t:[String!]!){entityGroupsByToken(tokens:$t){members(pagination:{pageNumber:1,pageSize:100}){results{id token}%s}}}`
	pages := max(devices/100, 1)
	if err := b.pageRow(ctx, in, "page of 100 × 20 fields"+of, within(8, millis), 200, func(r *rand.Rand) []byte {
		return requestBody(page, map[string]any{"c": map[string]any{"pageNumber": 1 + r.IntN(min(pages, 10)), "pageSize": 100}})
	}); err != nil {
		return err
	}
	if err := b.pageRow(ctx, in, "search for a part of the token"+of, within(50, millis), 50, func(r *rand.Rand) []byte {
		return requestBody(page, map[string]any{"c": map[string]any{"pageNumber": 1, "pageSize": 100, "search": fmt.Sprintf("%03d", r.IntN(devices/100))}})
	}); err != nil {
		return err
	}
	for _, g := range registryGroups {
		what := fmt.Sprintf("dynamic group of two comparisons, %s match%s, first page", g.matching, of)
		ask := func(more string) func(*rand.Rand) []byte {
			return func(*rand.Rand) []byte {
				return requestBody(fmt.Sprintf(members, more), map[string]any{"t": []string{g.token}})
			}
		}
		if err := b.pageRow(ctx, in, what, g.goal, 50, ask("")); err != nil {
			return err
		}
		more := g.goal
		more.must += 250
		if err := b.pageRow(ctx, in, what+" and totalRecords", more, 20, ask(" pagination{totalRecords}")); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) pageRow(ctx context.Context, in *instance, what string, g goal, times int, question func(*rand.Rand) []byte) error {
	c, r := newAPIClient(in), rand.New(rand.NewPCG(6, 7))
	var h hist
	for i := range times + 1 {
		body := question(r)
		began := time.Now()
		if _, err := c.ask(ctx, body); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if i > 0 { // the first fills caches
			h.add(time.Since(began), 1)
		}
	}
	b.judged(g, what, inMillis(h.quantile(0.5)), "p50 of %d over HTTP, p99 %s", times, short(h.quantile(0.99)))
	return nil
}

// publishing measures the publish of a profile with many rules: all of them are compiled and frozen.
func (b *bench) publishing(ctx context.Context, in *instance, _ int) error {
	do := func(doc string, vars map[string]any) error { return in.query(ctx, "device-management", doc, vars, nil) }
	if err := do(`mutation{createDeviceProfile(request:{token:"many-rules"}){token}}`, nil); err != nil {
		return err
	}
	for i := range publishedRules {
		def := fmt.Sprintf(`{"name":"rule %d","type":"threshold","severity":"major","when":{"metric":"temp","op":"gt","threshold":%d}}`, i, i)
		if err := do(fmt.Sprintf(`mutation($d:String!){createDetectionRule(request:{token:"many-%d",deviceProfileToken:"many-rules",definition:$d,enabled:true}){token}}`, i), map[string]any{"d": def}); err != nil {
			return err
		}
	}
	var h hist
	const times = 10
	for i := range times {
		if err := do(`mutation($n:String!){updateDeviceProfile(token:"many-rules",request:{name:$n}){token}}`, map[string]any{"n": fmt.Sprint("version ", i)}); err != nil {
			return err
		}
		began := time.Now()
		if err := do(`mutation{publishDeviceProfile(token:"many-rules"){version}}`, nil); err != nil {
			return err
		}
		h.add(time.Since(began), 1)
	}
	b.judged(within(100, millis), fmt.Sprintf("publishing a profile with %d rules", publishedRules), inMillis(h.quantile(0.5)), "p50 of %d over HTTP, longest %s", times, short(h.quantile(1)))
	return nil
}

// attributesBeside is the rate of attribute writes beside a load: what must be reached without one.
const attributesBeside = 300

// at lets questions begin at a rate, whoever asks them.
func at(perSecond float64, question func(*rand.Rand) []byte) func(*rand.Rand) []byte {
	var asked atomic.Int64
	began := time.Now()
	return func(r *rand.Rand) []byte {
		time.Sleep(time.Until(began.Add(time.Duration(float64(asked.Add(1)) / perSecond * float64(time.Second)))))
		return question(r)
	}
}

// attributeWrites measures writes of an attribute that a selector in use names, and what they do to a load at half of the rate
// that the instance takes.
func (b *bench) attributeWrites(ctx context.Context, in *instance, devices int) error {
	const doc = `mutation($r:EntityAttributeSetRequest!){setEntityAttribute(request:$r){id}}`
	question := func(r *rand.Rand) []byte {
		return requestBody(doc, map[string]any{"r": map[string]any{"entityType": "device", "entity": deviceToken(r.IntN(devices)), "scope": "SERVER", "attrKey": "n", "valueType": "LONG", "value": fmt.Sprint(r.IntN(100))}})
	}
	if _, _, err := clients(ctx, in, registryClients, b.warmup, question); err != nil {
		return err
	}
	all, rate, err := clients(ctx, in, registryClients, b.seconds, question)
	if err != nil {
		return err
	}
	b.judged(atLeast(300, 1000, perSecond), fmt.Sprintf("attribute writes that take an offset, %d clients", registryClients), rate, "p50 %s, p99 %s", short(all.quantile(0.5)), short(all.quantile(0.99)))

	most, err := b.load(ctx, in, "registry-most", min(50, devices), closedLoop(8, false), kept{}, nil)
	if err != nil {
		return err
	}
	want := kept{readings: most.acked, sum: most.sum, edges: most.edges}
	quiet, err := b.load(ctx, in, "registry-quiet", min(50, devices), paced(most.rate/2), want, nil)
	if err != nil {
		return err
	}
	want.readings, want.sum, want.edges = want.readings+quiet.acked, want.sum+quiet.sum, want.edges+quiet.edges
	writing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	var written hist
	beside, err := b.load(ctx, in, "registry-beside", min(50, devices), paced(most.rate/2), want, func(begins bool) error {
		if begins {
			go func() {
				var err error
				written, _, err = clients(writing, in, registryClients, 24*time.Hour, at(attributesBeside, question))
				ended <- err
			}()
			return nil
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	alone := quiet.lat.quantile(0.99)
	b.judged(within(max(2*inMillis(alone), 5), millis), fmt.Sprintf("PUBACK p99 at half of the measured rate while %d attributes a second are written", attributesBeside), inMillis(beside.lat.quantile(0.99)),
		"%s alone; paced at %s; %s attributes written meanwhile, p99 %s%s", short(alone), perSecond(beside.rate), count(float64(written.n)), short(written.quantile(0.99)), beside.others())
	return nil
}
