package gql_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/gql"
	"weir/gql/engine"
	"weir/model"
	"weir/registry"
	"weir/store"
	"weir/store/sqlite"
	"weir/store/storetest"
)

// maxStatements is how many SQL statements a page needs at most, however many rows it has.
const maxStatements = 12

// fleet is a tenant of a thousand devices with types, profiles, credentials, relationships, groups, attributes and states.
type fleet struct {
	*registryWorld
	states     *engine.Engine
	statements atomic.Int64
	last       sync.Map // the last list of each table, by the table's name
	db         *sqlite.DB
}

const fleetSize = 1000

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{Trace: func(query string) {
		switch {
		case query == "BEGIN", query == "COMMIT", query == "ROLLBACK", strings.HasPrefix(query, "SELECT 1 FROM sqlite_schema"): // what begins and ends a snapshot
		default:
			f.statements.Add(1)
			if _, rest, ok := strings.Cut(query, " FROM "); ok && strings.HasSuffix(query, " LIMIT ? OFFSET ?") {
				table, _, _ := strings.Cut(rest, " ")
				f.last.Store(table, query)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	f.db, f.registryWorld = db, openRegistryWorld(t, db)
	server := gql.New(gql.Config{})
	gql.RegisterState(server.Area("device-state", gql.TenantPlane), gql.StateDeps{States: tableStates{db}, Latest: tableStates{db}, Devices: f.r.Devices.Rows, Tokens: f.r.Devices.Tokens, External: f.r.Devices,
		Listening: func() int64 { return int64(time.Hour) }, Silence: func() time.Duration { return time.Minute }})
	if err := server.Build(); err != nil {
		t.Fatal(err)
	}
	f.states = server.Engine("device-state")
	if err := (store.Direct{Store: db}).Mutate(t.Context(), writer, f.fill); err != nil {
		t.Fatal(err)
	}
	return f
}

// fill makes the rows in one transaction: every third device has a type and a profile of its own.
func (f *fleet) fill(c *store.Change) error {
	ctx, r := c.Context(), f.r
	steps := []func(token string, i int) error{
		func(token string, i int) error {
			if i%3 != 0 {
				return nil
			}
			if _, err := r.Profiles.Create(ctx, writer, store.Patch{"token": "p" + token}); err != nil {
				return err
			}
			_, err := r.Types.Create(ctx, writer, store.Patch{"token": "t" + token, "profileToken": "p" + token})
			return err
		},
		func(token string, i int) error {
			_, err := r.Devices.Create(ctx, writer, store.Patch{"token": token, "deviceTypeToken": fmt.Sprint("td", i-i%3)})
			return err
		},
		func(token string, _ int) error {
			_, err := r.Credentials.Create(ctx, writer, store.Patch{"token": "c" + token, "deviceToken": token, "credentialType": registry.AccessToken, "credentialId": "secret of " + token, "enabled": true})
			return err
		},
		func(token string, i int) error {
			if i%10 != 0 {
				return nil
			}
			_, err := r.Groups.Create(ctx, writer, store.Patch{"token": "g" + token, "memberType": "device"})
			return err
		},
		func(token string, i int) error {
			_, err := r.Relationships.Create(ctx, writer, store.Patch{"token": "r" + token, "sourceType": "group", "source": fmt.Sprint("gd", i-i%10), "targetType": "device", "target": token, "relationshipType": "member"})
			return err
		},
		func(token string, _ int) error {
			_, err := r.Attributes.Set(ctx, writer, registry.AttributeSet{AttributeRef: registry.AttributeRef{EntityType: "device", Entity: token, Scope: registry.ScopeServer, Key: "zone"}, Type: registry.ValueString, Value: new("hot")})
			return err
		},
	}
	for _, step := range steps {
		for i := range fleetSize {
			if err := step(fmt.Sprint("d", i), i); err != nil {
				return err
			}
		}
	}
	_, err := c.Exec(`INSERT INTO device_states (tenant_id, device_id, created_at, updated_at, source, activity_source, last_activity, activity_listen, presence_source, presence_state, session)
		SELECT tenant_id, id, 1, 1, '', 'mqtt', 1, 3600000000000, 'INFERRED', 0, '0' FROM devices`)
	return err
}

// tableStates are the states that the tables hold.
type tableStates struct{ db store.Store }

func (s tableStates) DeviceStates(ctx context.Context, tenant int64) (out []*store.DeviceState, err error) {
	return out, s.db.Read(ctx, func(tx store.Tx) (err error) { out, err = store.DeviceStates(tx, tenant); return err })
}

func (s tableStates) DeviceStatesOf(ctx context.Context, _ int64, ids []int64) (out map[int64]*store.DeviceState, err error) {
	err = s.db.Read(ctx, func(tx store.Tx) (err error) { out, err = store.DeviceStatesOf(tx, ids); return err })
	return out, err
}

func (s tableStates) LatestMeasurementsOf(ctx context.Context, ids []int64) (out map[int64][]store.LatestMeasurement, err error) {
	err = s.db.Read(ctx, func(tx store.Tx) (err error) { out, err = store.LatestMeasurements(tx, ids...); return err })
	return out, err
}

func (s tableStates) LatestLocations(ctx context.Context, ids []int64) (out []store.LatestLocation, err error) {
	err = s.db.Read(ctx, func(tx store.Tx) (err error) { out, err = store.LatestLocations(tx, ids); return err })
	return out, err
}

func (tableStates) Silence(_, _ string, standard time.Duration) time.Duration { return standard }

// A page of 100 and of 1,000 rows, and ten fields of one operation, need a small number of statements: nothing asks once for each row.
func TestNoPageAsksOnceForEachRow(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	all := member("acme", 1, model.DeviceRead, model.DeviceWrite, model.StateRead, model.LocationRead)
	const device = `{ token externalId name metadata deviceType { token profile { token activeVersion deviceTypeCount metricDefinitions { token } detectionRules { token } } } }`
	list := func(name, fields, criteria string, size int) string {
		return fmt.Sprintf(`%s(criteria: {pageNumber: 1, pageSize: %d%s}) { results { %s } pagination { totalRecords } }`, name, size, criteria, fields)
	}
	tokens := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"d%d" `, i)
		}
		return "[" + b.String() + "]"
	}
	aliases := func(field func(i int) string) string {
		var b strings.Builder
		for i := range 10 {
			fmt.Fprintf(&b, " a%d: %s", i, field(i))
		}
		return b.String()
	}
	for _, size := range []int{100, 1000} {
		for name, c := range map[string]struct {
			engine *engine.Engine
			query  string
		}{
			"devices":          {f.engine, list("devices", strings.Trim(device, "{}"), "", size)},
			"devices by token": {f.engine, `devicesByToken(tokens: ` + tokens(size) + `) ` + device},
			"credentials":      {f.engine, list("deviceCredentials", "token enabled device "+device, "", size)},
			"relationships":    {f.engine, list("entityRelationships", "token relationshipType { token } source { token } target { token ... on Device "+device+" }", "", size)},
			"attributes":       {f.engine, list("entityAttributes", "attrKey value entity { token ... on Device "+device+" }", "", size)},
			"groups":           {f.engine, list("entityGroups", "token versions { version selector }", "", size)},
			"states":           {f.states, list("deviceStates", "deviceToken active presenceSource", "", size)},
			"active states":    {f.states, list("deviceStates", "deviceToken active", ", active: true", size)},
			"states by token":  {f.states, `deviceStatesByDeviceToken(deviceTokens: ` + tokens(size) + `) { deviceToken active }`},
			"positions":        {f.states, `latestLocations(deviceTokens: ` + tokens(size) + `) { deviceToken latitude }`},
		} {
			f.counts(t, fmt.Sprint(name, ", ", size), c.engine, all, "{ "+c.query+" }")
		}
	}
	one := func(i int) string { return fmt.Sprintf(`["d%d"]`, 3*i) }
	for name, c := range map[string]struct {
		engine *engine.Engine
		query  string
	}{
		"devices":    {f.engine, aliases(func(i int) string { return `devicesByToken(tokens: ` + one(i) + `) ` + device })},
		"one device": {f.engine, aliases(func(int) string { return `devicesByToken(tokens: ["d7"]) ` + device })},
		"plain": {f.engine, aliases(func(i int) string {
			return `devicesByToken(tokens: ` + one(i) + `) { token name deviceType { token } }`
		})},
		"credentials": {f.engine, aliases(func(i int) string {
			return fmt.Sprintf(`deviceCredentialsByToken(tokens: ["cd%d"]) { token device %s }`, 3*i, device)
		})},
		"groups": {f.engine, aliases(func(i int) string {
			return fmt.Sprintf(`entityGroupsByToken(tokens: ["gd%d"]) { token versions { version } }`, 10*i)
		})},
		"states": {f.states, aliases(func(i int) string {
			return `deviceStatesByDeviceToken(deviceTokens: ` + one(i) + `) { deviceToken active }`
		})},
		"measurements": {f.states, aliases(func(i int) string { return fmt.Sprintf(`latestMeasurements(deviceToken: "d%d") { name value }`, i) })},
		"position":     {f.states, aliases(func(i int) string { return fmt.Sprintf(`latestLocation(deviceToken: "d%d") { latitude }`, i) })},
	} {
		f.counts(t, "ten aliases of "+name, c.engine, all, "{ "+c.query+" }")
	}
}

func (f *fleet) counts(t *testing.T, what string, e *engine.Engine, by *model.Principal, query string) {
	t.Helper()
	before := f.statements.Load()
	resp := e.Execute(gql.WithCall(t.Context(), gql.Call{Principal: by, Transport: gql.HTTP}), engine.Request{Query: query})
	n := f.statements.Load() - before
	if len(resp.Errors) > 0 {
		t.Errorf("%s: %v", what, resp.Errors)
		return
	}
	t.Log(what, n)
	if n > maxStatements {
		t.Errorf("%s: %d statements, at most %d are allowed", what, n, maxStatements)
	}
	if n == 0 {
		t.Errorf("%s: no statement is counted", what)
	}
}

// What belongs to one entity is found by it: in the order of the list, all rows of the tenant would be walked.
func TestAListOfOneOwnerIsFoundByIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	all := member("acme", 1, model.DeviceRead, model.DeviceWrite)
	const page = "pageNumber: 1, pageSize: 100"
	for table, query := range map[string]string{
		"attributes":           `entityAttributes(criteria: {` + page + `, entityType: "device", entity: "d7"}) { results { attrKey } }`,
		"device_credentials":   `deviceCredentials(criteria: {` + page + `, device: "d7"}) { results { token } }`,
		"metric_definitions":   `metricDefinitions(criteria: {` + page + `, deviceProfile: "pd3"}) { results { token } }`,
		"detection_rules":      `detectionRules(criteria: {` + page + `, deviceProfile: "pd3"}) { results { token } }`,
		"command_definitions":  `commandDefinitions(criteria: {` + page + `, deviceProfile: "pd3"}) { results { token } }`,
		"entity_relationships": `entityRelationships(criteria: {` + page + `, source: "gd10"}) { results { token } }`,
	} {
		f.last.Clear()
		f.counts(t, table, f.engine, all, "{ "+query+" }")
		list, _ := f.last.Load(table)
		if list == nil {
			t.Errorf("%s: no list was read", table)
			continue
		}
		plan := storetest.QueryPlan(t, f.db, list.(string), make([]any, strings.Count(list.(string), "?"))...)
		if text := strings.Join(plan, "; "); strings.Contains(text, "_listed") || !strings.Contains(text, "SEARCH "+table) {
			t.Errorf("%s is read by %s", list, text)
		}
	}
}
