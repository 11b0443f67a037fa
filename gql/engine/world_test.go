package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/hub"
	"weir/internal/test/fixture"
	"weir/model"
)

const testSDL = `
"Anything with a token."
interface Entity { id: ID!, token: String! }
type Device implements Entity {
  id: ID!
  token: String!
  name: String
  createdAt: String
  deletedAt: String
  state: State!
  tags: [String!]!
  score: Float
  count: Int!
  kind: Kind!
  parent: Device
  note(prefix: String! = "n:", upper: Boolean): String
  broken: String
  old: String @deprecated(reason: "use name")
}
type Kind implements Entity { id: ID!, token: String!, devices(pageSize: Int): [Device!]! }
union Anything = Device | Kind
enum State { ACTIVE RETIRED }
type Page { results: [Device!]!, total: Int! }
input Where { lat: Float!, lon: Float, label: String }
input Criteria { pageNumber: Int!, pageSize: Int!, state: State, states: [State!] }
input DeviceUpdateRequest {
  name: String
  metadata: String
  state: State
  where: Where
  points: [Where!]
  enabled: Boolean
  limit: Int
  ratio: Float
  kindId: ID
}
input WithDefaults { size: Int! = 7, unit: String = "mm", state: State = ACTIVE }
input Credential { name: String, secret: String }
type Query {
  ping: String!
  device(token: String!): Device
  devices(criteria: Criteria!): Page!
  devicesByToken(tokens: [String!]!): [Device!]!
  all: [Device!]!
  entities: [Entity!]!
  anything: [Anything]!
  echo(int: Int, float: Float, string: String, bool: Boolean, id: ID, state: State, list: [Int!], lists: [[Int]], where: Where, d: WithDefaults, c: Credential): String!
  check(password: String!): Boolean!
  fails(how: String!): String
  mustFail: String!
  slow: String
  large(n: Int!): String!
  bulk(tokens: [String!]!): Int!
  free: String
}
type Mutation {
  updateDevice(token: String!, request: DeviceUpdateRequest!): String!
  touch(token: String!): Device!
  fail: Device
  mustFail: Device!
  login(email: String!, password: String!): String!
}
type Subscription {
  devices(state: State): Device!
  counts: Int!
  refused: Int
}
`

type testCommon struct {
	ID        int64        `gql:"id"`
	Token     string       `gql:"token"`
	CreatedAt model.Micros `gql:"createdAt"`
}

type testState string

type testDevice struct {
	testCommon
	Name      *string      `gql:"name"`
	DeletedAt model.Micros `gql:"deletedAt,omitzero"`
	State     testState    `gql:"state"`
	Tags      []string     `gql:"tags"`
	Score     float64      `gql:"score"`
	Count     uint64       `gql:"count"`
	Old       *string      `gql:"old"`
	kind      int64
	parent    string
}

type testKind struct {
	ID    string `gql:"id"`
	Token string `gql:"token"`
}

type testPage struct {
	Results []testDevice `gql:"results"`
	Total   int          `gql:"total"`
}

// world is a small instance with everything that a test looks at.
type world struct {
	t       testing.TB
	runtime *Runtime
	engine  *Engine
	log     fixture.Buffer
	devices *hub.Hub[testDevice]
	counts  *hub.Hub[int]
	loads   [][]int64
	touched []string
	calls   int // of resolvers
	mu      sync.Mutex
}

func makeDevice(n int) testDevice {
	name := fmt.Sprintf("name-%d", n)
	return testDevice{testCommon: testCommon{int64(n), fmt.Sprintf("d%d", n), 1_700_000_000_000_001}, Name: &name, State: "ACTIVE",
		Tags: []string{"a", "b"}, Score: 1.5, Count: uint64(n), kind: int64(n % 3), parent: fmt.Sprintf("d%d", n+1)}
}

func newWorld(t testing.TB, cfg Config) *world {
	w := &world{t: t, devices: hub.New[testDevice]("devices", nil), counts: hub.New[int]("counts", nil)}
	cfg.Log = slog.New(slog.NewTextHandler(&w.log, nil))
	cfg.RequestID = func(context.Context) string { return "req-1" }
	w.runtime = New(cfg)
	s := w.runtime.Schema("test", testSDL)
	w.register(s)
	var err error
	if w.engine, err = s.Build(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) called() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
}

func (w *world) register(a *Schema) {
	kinds := NewLoader(func(_ context.Context, ids []int64) (map[int64]testKind, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.loads = append(w.loads, slices.Sorted(slices.Values(ids)))
		out := map[int64]testKind{}
		for _, id := range ids {
			out[id] = testKind{fmt.Sprint(id), fmt.Sprintf("k%d", id)}
		}
		return out, nil
	})
	a.Type("Device", testDevice{})
	a.Type("Kind", testKind{})
	a.Type("Page", testPage{})
	a.Field("Device", "kind", On(func(ctx context.Context, d testDevice, _ Args) (any, error) { return kinds.Load(ctx, d.kind), nil }))
	a.Field("Device", "parent", On(func(_ context.Context, d testDevice, _ Args) (any, error) {
		n := 0
		_, err := fmt.Sscanf(d.parent, "d%d", &n)
		return makeDevice(n), err
	}))
	a.Field("Device", "note", On(func(_ context.Context, d testDevice, args Args) (any, error) {
		note := args.String("prefix") + d.Token
		if args.Bool("upper") {
			note = strings.ToUpper(note)
		}
		return note, nil
	}))
	a.Field("Device", "broken", func(context.Context, any, Args) (any, error) { panic("dsn=postgres://secret") })
	a.Field("Kind", "devices", func(context.Context, any, Args) (any, error) { return []*testDevice{new(makeDevice(1))}, nil })
	w.queries(a)
	w.mutations(a)
	w.subscriptions(a)
}

func (w *world) queries(a *Schema) {
	a.Query("ping", nil, func(context.Context, any, Args) (any, error) { w.called(); return "pong", nil })
	a.Query("free", nil, func(ctx context.Context, _ any, _ Args) (any, error) {
		return "ada", nil
	})
	a.Query("device", nil, Do(func(_ context.Context, in struct {
		Token string `gql:"token"`
	}) (any, error) {
		w.called()
		n := 0
		if _, err := fmt.Sscanf(in.Token, "d%d", &n); err != nil {
			return nil, nil
		}
		return new(makeDevice(n)), nil
	}))
	a.Query("devices", nil, Do(func(_ context.Context, in struct {
		Criteria struct {
			PageSize int `gql:"pageSize"`
		} `gql:"criteria"`
	}) (any, error) {
		w.called()
		p := testPage{Total: 1000}
		for n := range in.Criteria.PageSize {
			p.Results = append(p.Results, makeDevice(n))
		}
		return p, nil
	}))
	a.Query("devicesByToken", nil, func(_ context.Context, _ any, args Args) (any, error) {
		out := []testDevice{}
		for i := range args.Strings("tokens") {
			out = append(out, makeDevice(i))
		}
		return out, nil
	})
	a.Query("all", nil, func(context.Context, any, Args) (any, error) {
		return []testDevice{makeDevice(1), makeDevice(2), makeDevice(4)}, nil
	})
	a.Query("entities", nil, func(context.Context, any, Args) (any, error) {
		return []any{makeDevice(1), &testKind{"9", "k9"}}, nil
	})
	a.Query("anything", nil, func(context.Context, any, Args) (any, error) {
		return []any{new(makeDevice(1)), testKind{"9", "k9"}, nil}, nil
	})
	a.Query("echo", nil, func(_ context.Context, _ any, args Args) (any, error) {
		w.called()
		b, err := json.Marshal(args.m)
		return string(b), err
	})
	a.Query("check", nil, func(context.Context, any, Args) (any, error) { return true, nil }, CredentialCheck())
	a.Query("mustFail", nil, func(context.Context, any, Args) (any, error) { return nil, nil })
	a.Query("slow", nil, func(ctx context.Context, _ any, _ Args) (any, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("reading: %w", ctx.Err())
	})
	a.Query("large", nil, func(_ context.Context, _ any, args Args) (any, error) {
		return strings.Repeat("x", args.Int("n")), nil
	})
	a.Query("bulk", nil, func(_ context.Context, _ any, args Args) (any, error) {
		return len(args.Strings("tokens")), nil
	}, ListLimit("tokens", 1500))
	a.Query("fails", nil, func(_ context.Context, _ any, args Args) (any, error) {
		switch args.String("how") {
		case "panic":
			panic(errors.New("dsn=postgres://secret"))
		case "plain":
			return nil, errors.New("disk /dev/secret is full")
		case "wrapped":
			return nil, fmt.Errorf("outer secret: %w", model.NotUnique("device", "token", "d1"))
		case "thunk":
			return Thunk(func() (any, error) { return nil, errors.New("late secret") }), nil
		case "twice":
			return Thunk(func() (any, error) { return Thunk(func() (any, error) { return "at last", nil }), nil }), nil
		case "latepanic":
			return Thunk(func() (any, error) { panic("late secret") }), nil
		case "type":
			return struct{ Secret string }{"secret"}, nil
		}
		return nil, &model.Error{Code: model.CodeThrottled, Message: "wait", Ext: map[string]any{"retryAfterSeconds": 4},
			Err: errors.New("secret")}
	})
}

func (w *world) mutations(a *Schema) {
	a.Mutation("updateDevice", nil, func(_ context.Context, _ any, args Args) (any, error) {
		w.called()
		b, err := json.Marshal(args.Patch("request"))
		return string(b), err
	})
	a.Mutation("touch", nil, func(_ context.Context, _ any, args Args) (any, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.touched = append(w.touched, args.String("token"))
		return makeDevice(len(w.touched)), nil
	})
	a.Mutation("fail", nil, func(context.Context, any, Args) (any, error) { return nil, model.NotFound("device", "x") })
	a.Mutation("mustFail", nil, func(context.Context, any, Args) (any, error) { return nil, model.NotFound("device", "x") })
	a.Mutation("login", nil, func(context.Context, any, Args) (any, error) { w.called(); return "token", nil }, CredentialCheck())
}

func (w *world) subscriptions(a *Schema) {
	a.Subscription("devices", nil, Listen(func(_ context.Context, in struct {
		State Opt[testState] `gql:"state"`
	}) (Stream, error) {
		want, some := in.State.Get()
		sub := w.devices.Subscribe(func(d testDevice) bool { return !some || d.State == want }, SubscriptionBuffer)
		return StreamOf(sub, func(d testDevice) any { return d }), nil
	}))
	a.Subscription("counts", nil, func(context.Context, Args) (Stream, error) {
		return StreamOf(w.counts.Subscribe(nil, SubscriptionBuffer), func(n int) any { return n }), nil
	})
	a.Subscription("refused", nil, func(context.Context, Args) (Stream, error) {
		return nil, model.Invalid("profileToken", "must not be empty")
	})
}

func testVars(t testing.TB, s string) map[string]any {
	t.Helper()
	if s == "" {
		return nil
	}
	var m map[string]any
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

func (w *world) do(query, variables string) string {
	w.t.Helper()
	return w.json(w.engine.Execute(context.Background(), Request{Query: query, Variables: testVars(w.t, variables)}))
}

func (w *world) json(r *Response) string {
	w.t.Helper()
	b, err := r.MarshalJSON()
	if err != nil {
		w.t.Fatal(err)
	}
	if !json.Valid(b) {
		w.t.Fatalf("no JSON: %s", b)
	}
	return string(b)
}

func TestAQueryAnswersInTheOrderOfItsDocument(t *testing.T) {
	w := newWorld(t, Config{})
	got := w.do(`
		query($n: String!, $more: Boolean!) {
			zeta: ping
			device(token: $n) { ...Base name @include(if: $more) count deletedAt score tags __typename state note(upper: true) kind { token } ... on Device { createdAt } }
			alpha: ping
		}
		fragment Base on Device { token id }`, `{"n":"d5","more":true}`)
	want := `{"data":{"zeta":"pong","device":{"token":"d5","id":"5","name":"name-5","count":5,"deletedAt":null,"score":1.5,` +
		`"tags":["a","b"],"__typename":"Device","state":"ACTIVE","note":"N:D5","kind":{"token":"k2"},` +
		`"createdAt":"2023-11-14T22:13:20.000001Z"},"alpha":"pong"}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := w.do(`query($more: Boolean = false) { device(token: "d1") { token name @include(if: $more) } }`, ``); got !=
		`{"data":{"device":{"token":"d1"}}}` {
		t.Error(got)
	}
}

func TestInterfacesAndUnionsShowTheirTypes(t *testing.T) {
	w := newWorld(t, Config{})
	got := w.do(`{ entities { __typename token ... on Device { count } } anything { ... on Kind { k: token } ... on Entity { id } } }`, ``)
	want := `{"data":{"entities":[{"__typename":"Device","token":"d1","count":1},{"__typename":"Kind","token":"k9"}],` +
		`"anything":[{"id":"1"},{"k":"k9","id":"9"},null]}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLoadersBatchAcrossAListAndAcrossRootFields(t *testing.T) {
	w := newWorld(t, Config{})
	w.do(`{ a: all { kind { token } parent { kind { token } } } b: devices(criteria: {pageNumber: 1, pageSize: 3}) { results { kind { id } } } }`, ``)
	if len(w.loads) != 1 || !slices.Equal(w.loads[0], []int64{0, 1, 2}) {
		t.Errorf("loads %v, want one of [0 1 2]", w.loads)
	}
}

func TestMutationsRunOneAfterTheOtherAndTheirSelectionsBatch(t *testing.T) {
	w := newWorld(t, Config{Limits: Limits{}})
	got := w.do(`mutation($no: Boolean!) {
		z: touch(token: "first") { ...K }
		... @skip(if: $no) { no: touch(token: "never") { token } }
		...More
		y: touch(token: "third") { token }
	}
	fragment K on Device { token kind { token devices(pageSize: 5) { kind { token } } } }
	fragment More on Mutation { a: touch(token: "second") { token } a: touch(token: "second") { count } }`, `{"no":true}`)
	want := `{"data":{"z":{"token":"d1","kind":{"token":"k1","devices":[{"kind":{"token":"k1"}}]}},` +
		`"a":{"token":"d2","count":2},"y":{"token":"d3"}}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !slices.Equal(w.touched, []string{"first", "second", "third"}) {
		t.Errorf("touched %v", w.touched)
	}
	// Two places asked for the same kind: one load.
	if len(w.loads) != 1 {
		t.Errorf("loads %v", w.loads)
	}
}

func TestAMutationReadsAnewWhatTheOneBeforeMayHaveChanged(t *testing.T) {
	w := newWorld(t, Config{})
	w.do(`mutation { a: touch(token: "x") { parent { kind { token } } } b: touch(token: "y") { kind { token } } }`, ``)
	if got := fmt.Sprint(w.loads); got != "[[2] [2]]" { // the parent of the first is like the second
		t.Errorf("loads %s", got)
	}
}

func TestAMutationAfterAFailedOneStillRunsUnlessNullReachedTheRoot(t *testing.T) {
	w := newWorld(t, Config{})
	got := w.do(`mutation { fail { token } touch(token: "a") { token } }`, ``)
	want := `{"data":{"fail":null,"touch":{"token":"d1"}},"errors":[{"message":"device \"x\" does not exist",` +
		`"locations":[{"line":1,"column":12}],"path":["fail"],"extensions":{"code":"NOT_FOUND"}}]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got = w.do(`mutation { mustFail { token } touch(token: "b") { token } }`, ``)
	if !strings.HasPrefix(got, `{"data":null,"errors":[{"message":"device \"x\" does not exist"`) || len(w.touched) != 1 {
		t.Errorf("got %s, touched %v", got, w.touched)
	}
}

func TestTimeIsBounded(t *testing.T) {
	w := newWorld(t, Config{Limits: Limits{Time: time.Millisecond}})
	got := w.do(`{ ping slow again: slow }`, ``)
	if want := `{"data":null,"errors":[{"message":"the request took longer than the time limit of 1ms","extensions":{"code":"LIMIT_EXCEEDED","limit":"time"}}]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestACallerWhoHasLeftIsNoInternalError(t *testing.T) {
	w := newWorld(t, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got := w.json(w.engine.Execute(ctx, Request{Query: `{ slow }`})); !strings.Contains(got, "internal error") {
		t.Error(got)
	}
	if w.log.String() != "" {
		t.Errorf("logged: %s", w.log.String())
	}
}
