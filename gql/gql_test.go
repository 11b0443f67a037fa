package gql

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"weir/gql/engine"
	"weir/internal/hub"
	"weir/internal/test/fixture"
	"weir/model"
)

const testSDL = `
type Device { id: ID!, token: String!, state: State!, kind: Kind! }
type Kind { token: String! }
enum State { ACTIVE RETIRED }
type Query {
  ping: String!
  free: String
  device(token: String!): Device
  all: [Device!]!
  echo(int: Int): String!
  slow: String
}
type Mutation { touch(token: String!): Device!, fail: Device }
type Subscription { devices(state: State): Device!, counts: Int!, refused: Int }
`

type testDevice struct {
	ID    int64    `gql:"id"`
	Token string   `gql:"token"`
	State string   `gql:"state"`
	Kind  testKind `gql:"kind"`
}

type testKind struct {
	Token string `gql:"token"`
}

func makeDevice(n int) testDevice {
	return testDevice{int64(n), fmt.Sprintf("d%d", n), "ACTIVE", testKind{fmt.Sprintf("k%d", n%3)}}
}

// world is a small instance with everything that a test looks at.
type world struct {
	t       testing.TB
	server  *Server
	log     fixture.Buffer
	devices *hub.Hub[testDevice]
	counts  *hub.Hub[int]
	touched []string
	calls   int // of resolvers
	mu      sync.Mutex
}

func newWorld(t testing.TB, cfg Config) *world {
	w := &world{t: t, devices: hub.New[testDevice]("devices", nil), counts: hub.New[int]("counts", nil)}
	cfg.Log = slog.New(slog.NewTextHandler(&w.log, nil))
	w.server = New(cfg)
	w.register(w.server.AreaOf("test", TenantPlane, testSDL))
	if err := w.server.Build(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) register(a *Area) {
	a.Type("Device", testDevice{})
	a.Type("Kind", testKind{})
	read, write := Requires(model.DeviceRead), Requires(model.DeviceWrite)
	a.Query("ping", Anonymous(), w.called("pong"))
	a.Query("free", AnyCaller().WithoutTenant(), func(ctx context.Context, _ any, _ engine.Args) (any, error) {
		return PrincipalFrom(ctx).Subject, nil
	})
	a.Query("device", read, func(_ context.Context, _ any, args engine.Args) (any, error) {
		if args.String("token") == "x" {
			return nil, nil
		}
		return w.called(makeDevice(1))(nil, nil, args)
	})
	a.Query("all", read, w.called([]testDevice{makeDevice(1)}))
	a.Query("echo", Anonymous(), w.called("echo"))
	a.Query("slow", Anonymous(), func(ctx context.Context, _ any, _ engine.Args) (any, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("reading: %w", ctx.Err())
	})
	a.Mutation("touch", write, func(_ context.Context, _ any, args engine.Args) (any, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.touched = append(w.touched, args.String("token"))
		return makeDevice(len(w.touched)), nil
	})
	a.Mutation("fail", write, func(context.Context, any, engine.Args) (any, error) { return nil, model.NotFound("device", "x") })
	a.Subscription("devices", read, engine.Listen(func(_ context.Context, in struct {
		State engine.Opt[string] `gql:"state"`
	}) (engine.Stream, error) {
		want, some := in.State.Get()
		sub := w.devices.Subscribe(func(d testDevice) bool { return !some || d.State == want }, engine.SubscriptionBuffer)
		return engine.StreamOf(sub, func(d testDevice) any { return d }), nil
	}))
	a.Subscription("counts", read, func(context.Context, engine.Args) (engine.Stream, error) {
		return engine.StreamOf(w.counts.Subscribe(nil, engine.SubscriptionBuffer), func(n int) any { return n }), nil
	})
	a.Subscription("refused", Anonymous(), func(context.Context, engine.Args) (engine.Stream, error) {
		return nil, model.Invalid("profileToken", "must not be empty")
	})
}

// called returns a resolver of a value that counts its calls.
func (w *world) called(v any) engine.Resolver {
	return func(context.Context, any, engine.Args) (any, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls++
		return v, nil
	}
}

func testReader(as ...model.Authority) *model.Principal {
	p := &model.Principal{Kind: model.AccessCaller, Subject: "ada", Identity: 7, Tenant: "t1", TenantID: 1,
		Tenants: map[model.Authority]bool{}}
	for _, a := range as {
		p.Tenants[a] = true
	}
	return p
}

func (w *world) do(p *model.Principal, query, variables string) string {
	w.t.Helper()
	ctx := WithCall(context.Background(), Call{Principal: p, RequestID: "req-1", Transport: HTTP})
	req, err := engine.ParseRequest(fmt.Appendf(nil, `{"query":%q,"variables":%s}`, query, cmp.Or(variables, "null")))
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := w.server.Engine("test").Execute(ctx, req).MarshalJSON()
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

func testAliases(n int, field string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d: %s ", i, field)
	}
	return b.String()
}

func TestBuildNamesUnknownAreasAndAuthorities(t *testing.T) {
	s := New(Config{})
	s.Area("no-such-area", TenantPlane)
	s.AreaOf("x", TenantPlane, `type Query { b: String }`).Query("b", Requires("device:fly"), always("b"))
	err := s.Build()
	for _, want := range []string{"no schema file", `unknown authority "device:fly"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}
