package crash_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/internal/test/seed"
	"weir/internal/test/testweir"
	"weir/model"
	"weir/store"
)

const (
	// perMessage and commandsPerEnd are how much is asked of devices: with the 200 ends of make crash it comes to more than 10,000 actions of
	// rules and 1,000 commands of operators, as many of these as the ends let through.
	perMessage     = 6 // readings
	commandsPerEnd = 10
	fewActing      = 8 // ends show that the test runs
)

// Killed while actions of rules and commands of operators are under way, with devices that answer, are slow, come and go, hang up, and have
// two sessions, and with other systems that hang up: every action ends once, as a command or as a dead letter, or arrives at its target, always
// under one key; every command ends in a state that says why, and none is
// delivered more often, or later, than the states allow.
func TestActing(t *testing.T) { // by itself: its devices keep both processors of a small machine busy
	r := seed.Rand(t)
	points := pointsOf(t)
	maps.DeleteFunc(points, func(p string, _ int) bool { return !ofActing(p) })
	for _, p := range slices.Sorted(maps.Keys(points)) {
		points[p] = 1 + r.IntN(4)
	}
	k := &killer{t: t, file: filepath.Join(t.TempDir(), "plan"), pass: points, missed: map[string]int{}, met: map[string]int{}}
	a := newActing(t, k.file, r)
	began, impatient, starting, ends := time.Now(), 0, 0, max(*kills, fewActing)
	all := ends >= 4*len(k.pass)
	for round := range ends {
		point := ""
		if left := ends - round; r.IntN(2) == 0 || all && left <= 2*k.unmet() {
			point = k.next()
		}
		k.plan(point, round)
		end := a.load()
		wait := time.Duration(50+r.IntN(400)) * time.Millisecond
		if point != "" {
			wait = time.Second
		}
		select {
		case <-a.p.Ended():
		case <-time.After(wait):
		}
		if point == "" && r.IntN(3) == 0 {
			impatient++
			threeSignals(a.p)
		}
		a.p.Kill()
		end()
		met := k.took()
		if round%10 == 0 {
			a.rested(false)
		}
		write(t, k.file, "")
		time.Sleep(planAge)
		if r.IntN(6) == 0 && a.killAtStart(k.file) {
			k.met[recovering]++
			starting++
		}
		a.restart()
		k.count(point, met, r)
		if *verbose {
			t.Logf("round %d, planned %q, killed at %q; %s", round, point, met, a.total())
		}
		if t.Failed() {
			t.Fatalf("round %d, planned %q, killed at %q", round, point, met)
		}
	}
	a.calm()
	a.checkWhole()
	t.Logf("%d ends in %v, %d of them by three signals, and %d more at the start; %s", ends, time.Since(began).Round(time.Second), impatient, starting, a.total())
	k.table(all)
}

// ofActing says that a point lies on the way of what rules and operators ask of devices.
func ofActing(point string) bool {
	return strings.HasPrefix(point, "actions.") || strings.HasPrefix(point, "command.")
}

// threeSignals ends a process as an operator does who does not wait for what was begun.
func threeSignals(p *testweir.Proc) {
	for range 100 {
		if p.Over() || syscall.Kill(p.PID(), syscall.SIGTERM) != nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// recovering is the point at which a start puts right what was on its way.
const recovering = "command.swept"

// killAtStart starts the instance and kills it where it puts right what was on its way, or soon after. It reports whether it came by there.
func (a *acting) killAtStart(plan string) bool {
	a.t.Helper()
	write(a.t, plan, recovering+" 1\n")
	p, err := testweir.TryStart(a.t, a.opt)
	switch {
	case err == nil:
		select {
		case <-p.Ended():
		case <-time.After(100 * time.Millisecond):
		}
		p.Kill()
	case !strings.Contains(err.Error(), "signal: killed"):
		a.t.Fatal(err)
	}
	met := (&killer{t: a.t, file: plan}).took() != ""
	write(a.t, plan, "")
	time.Sleep(planAge)
	return met
}

// acting is a world in which devices are asked for something.
type acting struct {
	*world
	books   *receipts
	valves  []*valve
	targets *targets

	next   int
	orders map[string]*ordered // commands of operators, by token
	unsure []string            // were asked for and not answered
}

// ordered is a command that an operator has asked for.
type ordered struct {
	device            string
	made, cancelAsked bool
	cancelled         bool // and the answer said so
}

const acts = "acts"

// newActing starts an instance with devices of every habit.
func newActing(t *testing.T, plan string, r *rand.Rand) *acting {
	t.Helper()
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	out := newTargets(t)
	opt := testweir.Options{Dir: dir, Binary: testweir.Tagged(t, "faults"), Env: []string{"FAULTS_PLAN=" + plan, "FAULTS_KEEP=" + kept}, Config: settings + out.config()}
	w := &world{t: t, opt: opt, r: r, tokens: map[string]string{}, p: testweir.Start(t, opt)}
	w.twin = newTwin(t, filepath.Join(dir, "data"), kept, w.p.Config)
	w.tenant(acts)
	w.twin.targets = out
	a := &acting{world: w, books: newReceipts(), orders: map[string]*ordered{}, targets: out}
	w.p.Run("", "api", "user-management-admin", fmt.Sprintf(`mutation{updateTenant(token:%q,request:{outboundMessagesPerSecond:100000,outboundBurst:100000}){token}}`, acts))
	w.p.Query("outbound-connectors", w.tokens[acts], `mutation($c:String!){createConnector(request:{token:"plant",type:"mqtt",config:$c}){id} publishConnector(token:"plant"){version}}`,
		map[string]any{"c": fmt.Sprintf(`{"urls":["mqtt://%s"],"topic":"alerts","qos":1}`, out.broker.Addr())}, nil)
	a.profile("valve", map[string]string{
		"plain":   `{"command":"open","payload":"{\"by\":1}"}}`,
		"brief":   `{"command":"open","payload":"{\"by\":2}"},"maxAge":"3s"}`,
		"patient": `{"command":"shut"},"maxAge":"0s"}`,
		"wrong":   `{"command":"open","payload":"{\"by\":\"x\"}"}}`, // not what the profile declares: a dead letter
		"call":    fmt.Sprintf(`{"type":"httpCall","httpCall":{"url":"http://%s/alerts","bodyTemplate":"series"}}`, out.web.Addr()),
		"publish": `{"type":"publish","publish":{"connectorRef":"plant","payloadTemplate":"series"}}`,
		"barred":  `{"type":"httpCall","httpCall":{"url":"http://127.0.0.1:9/alerts"}}`, // the operator does not allow it: a dead letter
	})
	a.profile("mute", map[string]string{"muted": `{"command":"open","payload":"{\"by\":3}"},"maxAge":"3s"}`})
	for i := range 2 * len(habits) {
		h := habits[i%len(habits)]
		v := &valve{books: a.books, tenant: acts, token: fmt.Sprintf("%s%d", h, i/len(habits)), habit: h, r: seed.Fork(r)}
		of := "valve"
		if h == mute {
			of = "mute"
		}
		w.source(acts, v.token, of, source{per: perMessage, swing: true, client: ":sensor"})
		v.key = w.sources[i].token
		a.valves = append(a.valves, v)
	}
	return a
}

// profile makes a profile with two commands, and rules that each have an action when the metric wave swings up: one of their own, or a command.
func (a *acting) profile(name string, actions map[string]string) {
	a.t.Helper()
	q := func(query string, vars map[string]any) {
		a.p.Query("device-management", a.tokens[acts], query, vars, nil)
	}
	q(fmt.Sprintf(`mutation($s:String!){a:createDeviceProfile(request:{token:%[1]q}){id} b:createDeviceType(request:{token:%[1]q,profileToken:%[1]q}){id}
		c:createMetricDefinition(request:{token:"%[1]s-wave",deviceProfileToken:%[1]q,metricKey:"wave",dataType:"INT"}){id}
		d:createCommandDefinition(request:{token:"%[1]s-open",deviceProfileToken:%[1]q,commandKey:"open",parameterSchema:$s}){id}
		e:createCommandDefinition(request:{token:"%[1]s-shut",deviceProfileToken:%[1]q,commandKey:"shut"}){id}}`, name), map[string]any{"s": `[{"name":"by","dataType":"INT"}]`})
	for rule, action := range actions {
		if !strings.HasPrefix(action, `{"type"`) {
			action = `{"type":"sendCommand","sendCommand":` + action
		}
		q(`mutation($r:DetectionRuleCreateRequest!){createDetectionRule(request:$r){id}}`, map[string]any{"r": map[string]any{"token": rule, "deviceProfileToken": name, "enabled": true,
			"definition": `{"name":"n","severity":"major","type":"threshold","when":{"metric":"wave","op":"gt","threshold":50},"actions":[` + action + `]}`}})
	}
	q(fmt.Sprintf(`mutation{publishDeviceProfile(token:%q){version}}`, name), nil)
}

// load lets devices live and send, and operators ask. What it returns ends all of it; the process may be gone before.
func (a *acting) load() (end func()) {
	stop := make(chan struct{})
	var running sync.WaitGroup
	p := a.p
	for _, v := range a.valves {
		running.Go(func() { v.live(p, stop) })
	}
	// A message orders 12 times of a valve and three times of one that is mute: half of the devices send one, on average.
	for _, s := range a.sources {
		if most := a.r.IntN(2); most > 0 {
			r := seed.Fork(a.r)
			running.Go(func() {
				pass(stop, time.Duration(r.IntN(100))*time.Millisecond)
				s.run(p, most, stop, r)
			})
		}
	}
	r := seed.Fork(a.r)
	running.Go(func() { a.operate(p, stop, r) })
	return func() {
		close(stop)
		running.Wait()
	}
}

// operate asks for commands again that were not answered, and for new ones, and cancels some of them.
func (a *acting) operate(p *testweir.Proc, stop <-chan struct{}, r *rand.Rand) {
	for len(a.unsure) > 0 {
		if !a.ask(p, a.unsure[0]) {
			return
		}
		a.unsure = a.unsure[1:]
	}
	for range commandsPerEnd {
		if over(stop) {
			return
		}
		v := a.valves[r.IntN(len(a.valves))]
		if v.habit == mute {
			v = a.valves[0]
		}
		a.next++
		token := fmt.Sprintf("%s%d", operatorPrefix, a.next)
		a.orders[token] = &ordered{device: v.token}
		if !a.ask(p, token) {
			a.unsure = append(a.unsure, token)
			return
		}
		switch r.IntN(5) {
		case 0:
			pass(stop, time.Duration(r.IntN(20))*time.Millisecond)
		case 1: // one that is with its device
			a.books.mu.Lock()
			token = cmp.Or(a.books.busy, token)
			a.books.mu.Unlock()
		default:
			continue
		}
		if !a.cancel(p, token) {
			return
		}
	}
}

// ask makes a command; once more, where it is there already.
func (a *acting) ask(p *testweir.Proc, token string) bool {
	var got struct {
		CreateCommand struct {
			Command   *struct{ Token string }
			Rejection *struct{ Code string }
		}
	}
	payload := fmt.Sprintf(`{"by":%s}`, strings.TrimPrefix(token, operatorPrefix))
	if err := p.TryQuery("command-delivery", a.tokens[acts], `mutation($r:CommandCreateRequest!){createCommand(request:$r){command{token} rejection{code}}}`,
		map[string]any{"r": map[string]any{"token": token, "deviceToken": a.orders[token].device, "name": "open", "payload": payload}}, &got); err != nil {
		return false
	}
	if got.CreateCommand.Command == nil || got.CreateCommand.Command.Token != token {
		a.t.Errorf("%s for %s is refused: %+v", token, a.orders[token].device, got.CreateCommand.Rejection)
	}
	a.orders[token].made = true
	return true
}

func (a *acting) cancel(p *testweir.Proc, token string) bool {
	var got struct{ CancelCommand struct{ Status string } }
	a.orders[token].cancelAsked = true
	if err := p.TryQuery("command-delivery", a.tokens[acts], fmt.Sprintf(`mutation{cancelCommand(token:%q){status}}`, token), nil, &got); err != nil {
		return false
	}
	if got.CancelCommand.Status == string(model.CommandCancelled) {
		a.books.mu.Lock()
		a.books.cancelled[token] = true
		a.books.mu.Unlock()
		a.orders[token].cancelled = true
	}
	return true
}

// calm lets every device be there and answer, until nothing is under way any more, and stops the instance.
func (a *acting) calm() {
	a.t.Helper()
	stop := make(chan struct{})
	var running sync.WaitGroup
	for _, v := range a.valves {
		v.calm.Store(true)
		running.Go(func() { v.live(a.p, stop) })
	}
	for _, s := range a.sources { // what was begun
		s.run(a.p, 0, stop, a.r)
	}
	for len(a.unsure) > 0 {
		if !a.ask(a.p, a.unsure[0]) {
			a.t.Fatal("a command cannot be asked for again")
		}
		a.unsure = a.unsure[1:]
	}
	poll.Until(a.t, "nothing is under way", func() error {
		time.Sleep(50 * time.Millisecond)
		var open struct {
			Commands struct {
				Results []struct{ Token, Status, DeviceToken string }
			}
		}
		a.p.Query("command-delivery", a.tokens[acts], `{commands(criteria:{pageNumber:1,pageSize:3,statuses:["QUEUED","HELD","PARKED","SENT"]}){results{token status deviceToken}}}`, nil, &open)
		owes := 0
		for _, v := range a.valves {
			owes += v.owes()
		}
		waits := a.outbox()
		if len(open.Commands.Results) > 0 || owes > 0 || waits > 0 {
			return fmt.Errorf("open: %v; %d answers are owed; %d orders wait: %s", open.Commands.Results, owes, waits, a.p.Run("", "outbox", acts))
		}
		return nil
	})
	close(stop)
	running.Wait()
}

// outbox is how many orders wait.
func (a *acting) outbox() int64 {
	a.t.Helper()
	var got struct{ Rows int64 }
	a.p.RunJSON(&got, "outbox", acts)
	return got.Rows
}

// letters are the keys of the actions that were given up, as the ledger lists them.
func (a *acting) letters() (keys []string) {
	a.t.Helper()
	for _, kind := range []string{store.DeadLetterAction, store.DeadLetterConnector} {
		for before := int64(0); ; {
			var page struct {
				DeadLetters []struct {
					ID             int64
					IdempotencyKey string
				}
			}
			a.p.RunJSON(&page, "ledger", "dead-letters", "--tenant", acts, "--kind", kind, "--limit", "500", "--before", fmt.Sprint(before))
			if len(page.DeadLetters) == 0 {
				break
			}
			for _, d := range page.DeadLetters {
				keys, before = append(keys, d.IdempotencyKey), d.ID
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// checkWhole holds all that became of commands and actions against the books, and stops the instance.
func (a *acting) checkWhole() {
	a.t.Helper()
	messages := map[*source]int{}
	a.checkSums(acts, messages)
	a.recount()
	letters := a.letters()
	if err := a.p.Stop(); err != nil {
		a.t.Error(err)
	}
	a.rested(true)
	db := atRest(a.t, filepath.Join(a.opt.Dir, "data"))
	defer db.close()
	p := db.places(acts, db.tenants()[acts])
	if len(p.waiting) > 0 {
		a.t.Errorf("%d orders wait", len(p.waiting))
	}
	if listed := slices.Sorted(maps.Keys(p.givenUp)); !slices.Equal(letters, listed) {
		a.t.Errorf("the ledger lists %d actions that were given up, there are %d", len(letters), len(listed))
	}
	a.checkEdges(messages, p)
	a.books.mu.Lock()
	defer a.books.mu.Unlock()
	for _, what := range a.books.wrong {
		a.t.Error(what)
	}
	states := map[model.CommandState]int{}
	for token := range p.performed {
		c := p.performed[token]
		states[c.State]++
		a.checkCommand(&c)
	}
	a.checkOrder(p)
	for token, o := range a.orders {
		if _, there := p.performed[token]; !there {
			a.t.Errorf("%s for %s is lost; its making was answered: %v", token, o.device, o.made)
		}
	}
	for token, got := range a.books.of {
		if _, there := p.performed[token]; !there {
			a.t.Errorf("%s received %s, which there is not", got[0].device, token)
		}
	}
	arrived, twiceSent := a.targets.keys()
	a.targets.mu.Lock()
	defer a.targets.mu.Unlock()
	for _, what := range a.targets.wrong {
		a.t.Error(what)
	}
	a.t.Logf("%d actions, of which %d were given up, and %d arrived at other systems, %d of them again; %d commands of operators; %v",
		len(p.performed)-len(a.orders)+len(p.givenUp)+len(arrived), len(p.givenUp), len(arrived), twiceSent, len(a.orders), states)
	again := 0
	for _, got := range a.books.of {
		again += len(got) - 1
	}
	a.t.Logf("%d commands were received, %d of them again", a.books.n-again, again)
	for _, s := range []model.CommandState{model.CommandSuccessful, model.CommandFailed, model.CommandTimedOut} {
		if states[s] == 0 {
			a.t.Errorf("no command became %s: the test shows less than it should", s)
		}
	}
}

// checkEdges counts the actions by what the readings that are there must have ordered.
func (a *acting) checkEdges(messages map[*source]int, p places) {
	a.t.Helper()
	want := 0
	for _, s := range a.sources {
		rules := 7
		if strings.HasPrefix(s.device, string(mute)) {
			rules = 1
		}
		want += rules * messages[s] * s.per / 2
	}
	arrived, _ := a.targets.keys()
	for _, key := range arrived {
		if _, gaveUp := p.givenUp[key]; gaveUp {
			a.t.Errorf("the delivery %s has arrived and was given up", key)
		}
	}
	if got := len(p.performed) - len(a.orders) + len(p.givenUp) + len(arrived); got != want-a.stale() {
		a.t.Errorf("%d actions have ended, the readings have ordered %d, of which %d were too old at once", got, want, a.stale())
	}
}

// stale is how many actions were left out since their edges were older than their maxAge when they came.
func (a *acting) stale() (n int) {
	a.t.Helper()
	for _, row := range (&rest{a.t, a.twin.db, ""}).rows(`SELECT coalesce(sum(stale), 0) FROM rule_fires`) {
		if _, err := fmt.Sscan(row, &n); err != nil {
			a.t.Fatal(err)
		}
	}
	return n
}

// checkOrder looks whether commands came to their devices for the first time in the order in which they were made. What two sessions of
// one device receive is read by two goroutines: they are left out.
func (a *acting) checkOrder(p places) {
	a.t.Helper()
	first := map[string][]*receipt{}
	for _, got := range a.books.of {
		if h := got[0].on.habit; h != paired && h != taken {
			first[got[0].device] = append(first[got[0].device], got[0])
		}
	}
	for device, got := range first {
		slices.SortFunc(got, func(x, y *receipt) int { return x.number - y.number })
		for i := 1; i < len(got); i++ {
			if x, y := p.performed[got[i-1].command], p.performed[got[i].command]; x.ID > y.ID {
				a.t.Errorf("%s received %s, made as number %d, before %s, number %d", device, x.Token, x.ID, y.Token, y.ID)
			}
		}
	}
}

// checkCommand holds a command against what its device has received, and what its operator was answered.
func (a *acting) checkCommand(c *model.Command) {
	a.t.Helper()
	got, o := a.books.of[c.Token], a.orders[c.Token]
	bad := func(format string, args ...any) {
		a.t.Helper()
		a.t.Errorf("%s, which is %s: %s", c.Token, c.State, fmt.Sprintf(format, args...))
	}
	for _, r := range got {
		if r.name != c.Name || r.payload != deref(c.Payload) {
			bad("%s received %s %s", r.device, r.name, r.payload)
		}
		if (c.State == model.CommandCancelled || c.State == model.CommandExpired) && r.nonce != c.Nonce && !slices.Contains(c.Earlier, r.nonce) {
			bad("%s received a dispatch that was not made before it: %s", r.device, r.nonce)
		}
		if c.State == model.CommandExpired && model.MicrosOf(r.at) > c.Expires {
			bad("%s received it %v after its end", r.device, r.at.Sub(c.Expires.Time()))
		}
	}
	if o != nil && o.cancelled && c.State != model.CommandCancelled {
		bad("its cancel was answered")
	}
	switch c.State {
	case model.CommandSuccessful, model.CommandFailed:
		if len(got) == 0 || c.Responded == nil || success(c.Token) != (c.State == model.CommandSuccessful) || (c.Error != nil) != (c.State == model.CommandFailed) {
			bad("received %d times, answered %v, error %q", len(got), c.Responded, deref(c.Error))
		}
	case model.CommandCancelled:
		if o == nil || !o.cancelAsked {
			bad("nobody has cancelled it")
		}
		if c.Delivered != nil || c.Responded != nil { // then it was SENT, or had ended
			bad("it was with its device: acknowledged %v, answered %v", c.Delivered, c.Responded)
		}
	case model.CommandTimedOut, model.CommandExpired:
		if c.Expires > model.MicrosOf(time.Now()) || c.State == model.CommandTimedOut && (c.Error == nil || c.Sent == nil) {
			bad("it lives until %s; sent %v, error %q", c.Expires, c.Sent, deref(c.Error))
		}
	default:
		bad("it has no end")
	}
}

// total says what there was.
func (a *acting) total() string {
	a.books.mu.Lock()
	defer a.books.mu.Unlock()
	return fmt.Sprintf("%d orders, %d commands of operators, %d packets", a.twin.orders, len(a.orders), a.books.n)
}
