package store

import (
	"database/sql"
	"fmt"

	"weir/model"
)

// maxBlockEdges is the maximum of edges in a block, so that a page of detections never reads much more than it shows.
const maxBlockEdges = 4096

// AddEdges stores the detections of records of the log, in its order, and counts the fires. It returns those that are new: all
// edges of a record are committed together, so that a replay, which adds the edges of known records again, changes nothing.
func AddEdges(tx Tx, edges []model.Edge) (fresh []model.Edge, err error) {
	var known, last int64
	if err := tx.QueryRow(`SELECT log_offset, last_edge FROM edge_progress WHERE id = 1`).Scan(&known, &last); err != nil {
		return nil, err
	}
	for fresh = edges; len(fresh) > 0 && fresh[0].ID.Offset <= model.Offset(known); {
		fresh = fresh[1:]
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	w := edgeWriter{tx: tx, last: last, blocks: map[blockKey]*model.EdgePacker{}, fires: map[ruleKey]*RuleFires{}}
	for i := range fresh {
		if err := w.add(&fresh[i]); err != nil {
			return nil, err
		}
	}
	if err := w.finish(fresh[len(fresh)-1].ID.Offset); err != nil {
		return nil, err
	}
	return fresh, nil
}

// blockKey is what the edges of a block have in common. With the hour a block that a page of detections must read lies near
// the page in time, however late single edges come.
type blockKey struct {
	tenant, hour int64
	epoch        uint32
}

type ruleKey struct {
	tenant int64
	rule   string // stable id
}

// edgeWriter gathers the edges of a transaction.
type edgeWriter struct {
	tx     Tx
	last   int64 // newest id of an edge
	blocks map[blockKey]*model.EdgePacker
	keys   []blockKey // of blocks, in the order of their first edges
	fires  map[ruleKey]*RuleFires

	key   blockKey // of the newest edge
	block *model.EdgePacker
	data  []byte
}

const hourMicros = 3_600_000_000

// hourOf returns the UTC hour of an event time, as a number.
func hourOf(t model.Micros) int64 {
	h := int64(t) / hourMicros
	if int64(t)%hourMicros < 0 {
		h--
	}
	return h
}

func (w *edgeWriter) add(e *model.Edge) error {
	if key := (blockKey{e.TenantID, hourOf(e.Occurred), e.ID.Epoch}); w.block == nil || key != w.key {
		w.key, w.block = key, w.blocks[key]
		if w.block == nil {
			w.block = &model.EdgePacker{}
			w.blocks[key] = w.block
			w.keys = append(w.keys, key)
		}
	}
	w.block.Add(e)
	w.count(e)
	if w.block.Len() < maxBlockEdges {
		return nil
	}
	err := w.write(w.key.tenant, w.block)
	w.block.Reset()
	return err
}

func (w *edgeWriter) count(e *model.Edge) {
	key := ruleKey{e.TenantID, e.ID.Rule}
	f := w.fires[key]
	if f == nil {
		f = &RuleFires{LastFired: e.Occurred}
		w.fires[key] = f
	}
	if f.Fires++; e.Occurred >= f.LastFired {
		f.LastFired, f.LastSignal = e.Occurred, e.Signal
	}
}

// write stores a block.
func (w *edgeWriter) write(tenant int64, b *model.EdgePacker) error {
	w.data = b.Append(w.data[:0])
	_, err := w.tx.Exec(`INSERT INTO edge_blocks (id, n, tenant_id, log_offset, first_at, last_at, received, rules, sources, data)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, w.last+1, b.Len(), tenant, int64(b.Offset), int64(b.First), int64(b.Last), int64(b.Received),
		int64(b.RuleBits), int64(b.SourceBits), w.data)
	w.last += int64(b.Len())
	return err
}

// finish stores what is left, the fires, and the offset up to which the edges are known.
func (w *edgeWriter) finish(offset model.Offset) error {
	for _, key := range w.keys {
		if b := w.blocks[key]; b.Len() > 0 {
			if err := w.write(key.tenant, b); err != nil {
				return err
			}
		}
	}
	for key, f := range w.fires {
		if _, err := w.tx.Exec(`INSERT INTO rule_fires (tenant_id, rule, fires, last_fired, last_signal) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (tenant_id, rule) DO UPDATE SET fires = rule_fires.fires + excluded.fires,
			last_signal = CASE WHEN excluded.last_fired >= rule_fires.last_fired THEN excluded.last_signal ELSE rule_fires.last_signal END,
			last_fired = CASE WHEN excluded.last_fired >= rule_fires.last_fired THEN excluded.last_fired ELSE rule_fires.last_fired END`,
			key.tenant, key.rule, f.Fires, int64(f.LastFired), int64(f.LastSignal)); err != nil {
			return err
		}
	}
	_, err := w.tx.Exec(`UPDATE edge_progress SET log_offset = ?, last_edge = ? WHERE id = 1`, int64(offset), w.last)
	return err
}

// RuleFires is the number of times that a rule fired.
type RuleFires struct {
	Rule       string // stable id
	Fires      int64
	LastFired  model.Micros
	LastSignal model.EdgeSignal
	Stale      int64 // actions left out because their edges were too old
}

// Fires returns the fire counts of a tenant's rules with a stable id that begins with prefix.
func Fires(tx Tx, tenantID int64, prefix string) (map[string]RuleFires, error) {
	rows, err := tx.Query(`SELECT rule, fires, last_fired, last_signal, stale FROM rule_fires WHERE tenant_id = ? AND rule >= ? AND rule < ?`,
		tenantID, prefix, prefix+"\U0010FFFF")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]RuleFires{}
	for rows.Next() {
		var r RuleFires
		var signal int64
		if err := rows.Scan(&r.Rule, &r.Fires, (*int64)(&r.LastFired), &signal, &r.Stale); err != nil {
			return nil, err
		}
		r.LastSignal = model.EdgeSignal(signal)
		out[r.Rule] = r
	}
	return out, rows.Err()
}

// Edges calls f for each detection of a tenant, in the order in which they were stored. f must not use the transaction.
func Edges(tx Tx, tenantID int64, f func(*model.Edge) error) error {
	if err := edgeRows(tx, " WHERE tenant_id = ? ORDER BY id", []any{tenantID}, func(d *Detection) error { return f(&d.Edge) }); err != nil {
		return err
	}
	rows, err := tx.Query(`SELECT id, data FROM edge_blocks WHERE tenant_id = ? ORDER BY id`, tenantID)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var data sql.RawBytes
		if err := rows.Scan(&id, &data); err != nil {
			return err
		}
		b, err := readEdgeBlock(id, tenantID, data)
		if err != nil {
			return err
		}
		var failed error
		if err := b.each(func(e *model.PackedEdge) bool {
			d := b.detection(e)
			failed = f(&d.Edge)
			return failed == nil
		}); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	return rows.Err()
}

// edgeBlock is a block of detections and its row.
type edgeBlock struct {
	id, tenant int64
	*model.EdgeBlock
}

// readEdgeBlock reads a block of the table; data must stay as it is while its edges are read.
func readEdgeBlock(id, tenant int64, data []byte) (*edgeBlock, error) {
	b, err := model.ReadEdgeBlock(data)
	if err != nil {
		return nil, damagedBlock(id, err)
	}
	return &edgeBlock{id, tenant, b}, nil
}

func damagedBlock(id int64, err error) error {
	return fmt.Errorf("%w: edge_blocks %d: %w", ErrDamaged, id, err)
}

func (b *edgeBlock) each(f func(*model.PackedEdge) bool) error {
	if err := b.Each(f); err != nil {
		return damagedBlock(b.id, err)
	}
	return nil
}

func (b *edgeBlock) detection(e *model.PackedEdge) Detection {
	d := Detection{Row: b.id + int64(e.At), Edge: b.Edge(e)}
	d.TenantID = b.tenant
	return d
}

// edgeRows calls f for detections that an earlier Weir stored as a row each.
func edgeRows(tx Tx, clauses string, args []any, f func(*Detection) error) error {
	rows, err := tx.Query(`SELECT id, epoch, log_offset, idx, rule, key, n, tenant_id, tenant, profile, version, rule_token, kind, signal, series,
		device_id, occurred, received, severity, value FROM edges`+clauses, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var d Detection
		var epoch, offset, idx, n, signal, received int64
		var value sql.NullFloat64
		if err := rows.Scan(&d.Row, &epoch, &offset, &idx, &d.ID.Rule, &d.ID.Key, &n, &d.TenantID, &d.Tenant, &d.Profile, &d.Version, &d.Rule,
			&d.Kind, &signal, &d.Series, &d.Device, (*int64)(&d.Occurred), &received, &d.Severity, &value); err != nil {
			return err
		}
		d.ID.Epoch, d.ID.Offset, d.ID.Index, d.ID.N = uint32(epoch), model.Offset(offset), uint32(idx), uint16(n)
		d.Signal, d.Received = model.EdgeSignal(signal), model.Micros(received).Nanos()
		d.Value, d.HasValue = value.Float64, value.Valid
		if err := f(&d); err != nil {
			return err
		}
	}
	return rows.Err()
}
