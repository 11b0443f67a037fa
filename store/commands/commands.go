// Package commands is the SQL of commands and batches of them. Package command has the rules.
package commands

import (
	"database/sql"
	"math"
	"strings"

	"weir/model"
	"weir/store"
)

const columns = `id, tenant_id, created_at, updated_at, token, device_id, device, name, payload, metadata, state, queued_at, sent_at, delivered_at,
	responded_at, expires_at, response, error, batch_id, batch, nonce, earlier, awaits, attempts, progress`

func read(tx store.Tx, clauses string, args ...any) (found []*model.Command, err error) {
	rows, err := tx.Query(`SELECT `+columns+` FROM commands`+clauses, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		c, err := scan(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, rows.Err()
}

func scan(rows *sql.Rows) (*model.Command, error) {
	var c model.Command
	var earlier string
	err := rows.Scan(&c.ID, &c.TenantID, (*int64)(&c.CreatedAt), (*int64)(&c.UpdatedAt), &c.Token, &c.DeviceID, &c.Device, &c.Name, &c.Payload, &c.Metadata,
		(*string)(&c.State), (*int64)(&c.Queued), &c.Sent, &c.Delivered, &c.Responded, (*int64)(&c.Expires), &c.Response, &c.Error, &c.BatchID, &c.Batch,
		&c.Nonce, &earlier, &c.Awaits, &c.Attempts, &c.Progress)
	c.Earlier = strings.Fields(earlier)
	return &c, err
}

func first[T any](found []*T, err error) (*T, error) {
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// Get returns the command of a tenant with a token, nil when there is none.
func Get(tx store.Tx, tenant int64, token string) (*model.Command, error) {
	return first(read(tx, ` WHERE tenant_id = ? AND token = ?`, tenant, token))
}

// Insert stores a new command, sets its row id and, unless it is counted already, counts it.
func Insert(tx store.Tx, c *model.Command, counted bool) (err error) {
	c.ID, err = tx.Insert(`INSERT INTO commands (tenant_id, created_at, updated_at, token, device_id, device, name, payload, metadata, state, queued_at, sent_at,
		delivered_at, responded_at, expires_at, response, error, batch_id, batch, nonce, earlier, awaits, attempts)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		c.TenantID, int64(c.CreatedAt), int64(c.UpdatedAt), c.Token, c.DeviceID, c.Device, c.Name, c.Payload, c.Metadata, string(c.State), int64(c.Queued), c.Sent,
		c.Delivered, c.Responded, int64(c.Expires), c.Response, c.Error, c.BatchID, c.Batch, c.Nonce, strings.Join(c.Earlier, " "), c.Awaits, c.Attempts)
	if err != nil || counted {
		return err
	}
	return Count(tx, c.TenantID, c.State, 1)
}

// Save stores what a command has become since it was in a state. The caller counts it.
func Save(tx store.Tx, c *model.Command, before model.CommandState) (err error) {
	if c.State == before { // no index of states is written
		_, err = tx.Exec(`UPDATE commands SET updated_at = ?, delivered_at = ?, earlier = ?, awaits = ?, attempts = ?, progress = ? WHERE id = ?`, int64(c.UpdatedAt), c.Delivered,
			strings.Join(c.Earlier, " "), c.Awaits, c.Attempts, c.Progress, c.ID)
		return err
	}
	_, err = tx.Exec(`UPDATE commands SET updated_at = ?, state = ?, sent_at = ?, delivered_at = ?, responded_at = ?, response = ?, error = ?,
		nonce = ?, earlier = ?, awaits = ?, attempts = ?, progress = ? WHERE id = ?`, int64(c.UpdatedAt), string(c.State), c.Sent, c.Delivered, c.Responded, c.Response, c.Error,
		c.Nonce, strings.Join(c.Earlier, " "), c.Awaits, c.Attempts, c.Progress, c.ID)
	return err
}

// Acknowledge stores that a device has acknowledged a dispatch that a carrier owes the end of, without reading the command, and reports whether there
// is such a one.
func Acknowledge(tx store.Tx, device int64, carrier, token, nonce string, at model.Micros) (bool, error) {
	n, err := tx.Exec(`UPDATE commands SET updated_at = ?, delivered_at = ?, earlier = '', awaits = '', attempts = 0
		WHERE device_id = ? AND state = 'SENT' AND awaits <> '' AND awaits = ? AND token = ? AND nonce = ?`, int64(at), int64(at), device, carrier, token, nonce)
	return n > 0, err
}

// Tally gathers what a transaction counts, so that each count is written once.
type Tally map[tallied]int64

type tallied struct {
	tenant int64
	state  model.CommandState
}

// Add adds n to the commands of a tenant in a state; final ones are not counted.
func (t Tally) Add(tenant int64, s model.CommandState, n int64) {
	if !s.Final() {
		t[tallied{tenant, s}] += n
	}
}

// Write writes what was gathered, and begins again.
func (t Tally) Write(tx store.Tx) error {
	for of, n := range t {
		if err := Count(tx, of.tenant, of.state, n); err != nil {
			return err
		}
	}
	clear(t)
	return nil
}

// Count adds n to the commands of a tenant in a state; final ones are not counted.
func Count(tx store.Tx, tenant int64, s model.CommandState, n int64) error {
	if s.Final() || n == 0 {
		return nil
	}
	_, err := tx.Exec(`INSERT INTO command_counts (tenant_id, state, n) VALUES (?, ?, ?) ON CONFLICT (tenant_id, state) DO UPDATE SET n = n + excluded.n`,
		tenant, string(s), n)
	return err
}

// Undelivered returns how many commands of a tenant count against its ceiling.
func Undelivered(tx store.Tx, tenant int64) (n int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(SUM(n), 0) FROM command_counts WHERE tenant_id = ? AND state <> ?`, tenant, string(model.CommandSent)).Scan(&n)
	return n, err
}

// Open returns how many commands are in each state that is not final.
func Open(tx store.Tx) (map[model.CommandState]int64, error) {
	rows, err := tx.Query(`SELECT state, SUM(n) FROM command_counts GROUP BY state`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[model.CommandState]int64{}
	for rows.Next() {
		var s string
		var n int64
		if err := rows.Scan(&s, &n); err != nil {
			return nil, err
		}
		found[model.CommandState(s)] = n
	}
	return found, rows.Err()
}

const (
	open    = ` state IN ('QUEUED', 'HELD', 'PARKED', 'SENT')` // these two are the conditions of indexes
	waiting = ` state IN ('QUEUED', 'HELD', 'PARKED')`
	// mayGo holds for commands whose turn has come: those of a batch that has neither stopped nor not yet come to them.
	mayGo = ` (batch_id = 0 OR EXISTS (SELECT 1 FROM command_batches AS b WHERE b.id = commands.batch_id AND b.state = 'RUNNING' AND commands.id <= b.released_to))`
)

// Next returns the command of a device that leaves next, nil for none, and whether there is another one behind it: undelivered ones whose turn has
// come and that end after a time, in the order of their row ids. Of a device that is asleep those that are PARKED are left out: they have been tried.
func Next(tx store.Tx, device int64, after model.Micros, asleep bool) (c *model.Command, more bool, err error) {
	tried := ""
	if asleep {
		tried = ` AND state <> '` + string(model.CommandParked) + `'`
	}
	rows, err := tx.Query(`SELECT `+columns+` FROM commands WHERE device_id = ? AND`+waiting+tried+` AND expires_at > ? AND`+mayGo+` ORDER BY id LIMIT 2`, device, int64(after))
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	if rows.Next() {
		if c, err = scan(rows); err != nil {
			return nil, false, err
		}
		more = rows.Next()
	}
	return c, more, rows.Err()
}

// OfDevice returns the commands of a device that are in an undelivered state, oldest first, at most limit; mayLeave leaves out those whose turn has not come.
func OfDevice(tx store.Tx, device int64, s model.CommandState, mayLeave bool, limit int) ([]*model.Command, error) {
	clause := ` WHERE device_id = ? AND` + waiting + ` AND state = ?`
	if mayLeave {
		clause += ` AND` + mayGo
	}
	return read(tx, clause+` ORDER BY id LIMIT ?`, device, string(s), limit)
}

// OpenOf returns the commands of a device that are not final, at most limit.
func OpenOf(tx store.Tx, device int64, limit int) ([]*model.Command, error) {
	return read(tx, ` WHERE device_id = ? AND`+open+` ORDER BY id LIMIT ?`, device, limit)
}

// Awaited returns the commands of a device that were sent and whose end a carrier owes.
func Awaited(tx store.Tx, device int64, carrier string) ([]*model.Command, error) {
	return read(tx, ` WHERE device_id = ? AND state = 'SENT' AND awaits <> '' AND awaits = ? ORDER BY id`, device, carrier)
}

// Unacknowledged returns commands that a carrier has sent before a time and owes the end of, the oldest first.
func Unacknowledged(tx store.Tx, carrier string, before model.Micros, limit int) ([]*model.Command, error) {
	return read(tx, ` WHERE state = 'SENT' AND awaits <> '' AND awaits = ? AND sent_at < ? ORDER BY sent_at LIMIT ?`, carrier, int64(before), limit)
}

// Stranded returns commands that a carrier has sent before a time, owes the end of and has reported no progress of, the oldest first.
func Stranded(tx store.Tx, carrier string, before model.Micros, limit int) ([]*model.Command, error) {
	return read(tx, ` WHERE state = 'SENT' AND awaits <> '' AND awaits = ? AND sent_at < ? AND progress = '' ORDER BY sent_at LIMIT ?`, carrier, int64(before), limit)
}

// Due returns open commands whose life ended by a time.
func Due(tx store.Tx, by model.Micros, limit int) ([]*model.Command, error) {
	return read(tx, ` WHERE`+open+` AND expires_at <= ? ORDER BY expires_at LIMIT ?`, int64(by), limit)
}

// NextDue returns when the next open command ends by its life, the largest time for none.
func NextDue(tx store.Tx) (model.Micros, error) {
	var at *int64
	if err := tx.QueryRow(`SELECT MIN(expires_at) FROM commands WHERE` + open).Scan(&at); err != nil || at == nil {
		return math.MaxInt64, err
	}
	return model.Micros(*at), nil
}

// OfState is a device with a command in a state.
type OfState struct{ Command, Device, Tenant int64 } // row ids

// ByState returns commands in an undelivered state with row ids above after, in that order; mayLeave leaves out those whose turn has
// not come.
func ByState(tx store.Tx, s model.CommandState, after int64, mayLeave bool, limit int) (found []OfState, err error) {
	clause := ` WHERE` + waiting + ` AND state = ? AND id > ?`
	if mayLeave {
		clause += ` AND` + mayGo
	}
	rows, err := tx.Query(`SELECT id, device_id, tenant_id FROM commands`+clause+` ORDER BY id LIMIT ?`, string(s), after, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var f OfState
		if err := rows.Scan(&f.Command, &f.Device, &f.Tenant); err != nil {
			return nil, err
		}
		found = append(found, f)
	}
	return found, rows.Err()
}

// Waiting returns the tenants, by device, of those of some devices that have an undelivered command.
func Waiting(tx store.Tx, devices []int64) (map[int64]int64, error) {
	return tenantsOf(tx, devices, waiting)
}

// Owed returns the tenants, by device, of those of some devices that were sent a command whose end a carrier owes.
func Owed(tx store.Tx, devices []int64) (map[int64]int64, error) {
	return tenantsOf(tx, devices, ` state = 'SENT' AND awaits <> ''`)
}

// Busy reports whether a device has a command that is undelivered, or that was sent and whose end a carrier owes.
func Busy(tx store.Tx, device int64) (busy bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM commands WHERE device_id = ? AND`+waiting+`)
		OR EXISTS (SELECT 1 FROM commands WHERE device_id = ? AND state = 'SENT' AND awaits <> '')`, device, device).Scan(&busy)
	return busy, err
}

// tenantsOf returns the tenants, by device, of those of some devices that have a command for which a condition of an index holds.
func tenantsOf(tx store.Tx, devices []int64, condition string) (found map[int64]int64, err error) {
	found = map[int64]int64{}
	if len(devices) == 0 {
		return found, nil
	}
	args := store.Padded(len(devices), func(i int) any { return devices[i] })
	rows, err := tx.Query(`SELECT d.column1, (SELECT tenant_id FROM commands WHERE device_id = d.column1 AND`+condition+` LIMIT 1)
		FROM (VALUES (?)`+strings.Repeat(", (?)", len(args)-1)+`) AS d`, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var device int64
		var tenant *int64
		if err := rows.Scan(&device, &tenant); err != nil {
			return nil, err
		}
		if tenant != nil {
			found[device] = *tenant
		}
	}
	return found, rows.Err()
}

// Filter selects commands of a tenant; a zero field restricts nothing.
type Filter struct {
	IDs    []int64
	Tokens []string
	Device string // token
	Batch  string // token
	// States holds the states of which one must hold; more than one list: all must hold.
	States [][]string
}

func (f *Filter) where(tenant int64) (text string, args []any) {
	conditions := []string{"tenant_id = ?"}
	if f.Device != "" || f.Batch != "" || f.IDs != nil {
		conditions[0] = "+tenant_id = ?" // found by what is fewer
	}
	args = []any{tenant}
	in := func(column string, vs []any) {
		conditions, args = append(conditions, column+" IN (''"+strings.Repeat(", ?", len(vs))+")"), append(args, vs...)
	}
	if f.IDs != nil {
		in("id", anys(f.IDs))
	}
	if f.Tokens != nil {
		in("token", anys(f.Tokens))
	}
	if f.Device != "" {
		conditions, args = append(conditions, "device_id IN (SELECT id FROM devices WHERE tenant_id = ? AND token = ?)"), append(args, tenant, f.Device)
	}
	if f.Batch != "" {
		conditions = append(conditions, "batch_id > 0 AND batch_id = (SELECT id FROM command_batches WHERE tenant_id = ? AND token = ?)")
		args = append(args, tenant, f.Batch)
	}
	for _, states := range f.States {
		in("+state", anys(states))
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

func anys[T any](vs []T) []any {
	out := make([]any, len(vs))
	for i, v := range vs {
		out[i] = v
	}
	return out
}

// Find returns the commands of a tenant that a filter selects, in the order of the list.
func Find(tx store.Tx, tenant int64, f *Filter) ([]*model.Command, error) {
	where, args := f.where(tenant)
	return read(tx, where+` ORDER BY created_at DESC, token`, args...)
}

// List returns a page of the commands of a tenant, newest first, then by token, and the number of all that the filter selects.
func List(tx store.Tx, tenant int64, f *Filter, page store.Page) (found []*model.Command, total int64, err error) {
	page = page.Norm()
	where, args := f.where(tenant)
	if err := tx.QueryRow(`SELECT COUNT(*) FROM commands`+where, args...).Scan(&total); err != nil {
		return nil, 0, err
	}
	found, err = read(tx, where+` ORDER BY created_at DESC, token LIMIT ? OFFSET ?`, append(args, page.Size, page.Offset())...)
	return found, total, err
}

// Drainable returns the HELD and PARKED commands of a device of a tenant whose turn has come and that end after a time, oldest first.
func Drainable(tx store.Tx, tenant int64, device string, after model.Micros, limit int) ([]*model.Command, error) {
	return read(tx, ` WHERE device_id = (SELECT id FROM devices WHERE tenant_id = ? AND token = ?) AND`+waiting+` AND state <> 'QUEUED' AND expires_at > ? AND`+mayGo+
		` ORDER BY id LIMIT ?`, tenant, device, int64(after), limit)
}

// Longest is the command that waits longest in a state that is not final, and how many there are.
type Longest struct {
	State  model.CommandState
	N      int64
	Oldest model.Micros // when it was queued
	Tenant int64
	Device string
}

// Oldest returns, for QUEUED, HELD, PARKED and SENT, how many commands there are and which waits longest of those whose turn has come; states
// without such a one are left out.
func Oldest(tx store.Tx) (all []Longest, err error) {
	n, err := Open(tx)
	if err != nil {
		return nil, err
	}
	for _, s := range model.CommandStates() {
		if n[s] == 0 {
			continue
		}
		c, err := first(read(tx, ` WHERE`+open+` AND state = ? AND`+mayGo+` ORDER BY id LIMIT 1`, string(s)))
		if err != nil {
			return nil, err
		}
		if c != nil {
			all = append(all, Longest{State: s, N: n[s], Oldest: c.Queued, Tenant: c.TenantID, Device: c.Device})
		}
	}
	return all, nil
}
