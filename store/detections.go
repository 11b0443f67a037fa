package store

import (
	"cmp"
	"database/sql"
	"errors"
	"math"
	"slices"
	"strconv"

	"weir/model"
)

// Detection is a stored edge with its id, which a replay does not change.
type Detection struct {
	Row int64
	model.Edge
}

func (d *Detection) position() DetectionPosition { return DetectionPosition{d.Occurred, d.Row} }

// DetectionFilter selects detections; a zero field restricts nothing.
type DetectionFilter struct {
	TenantID int64
	Device   int64  // row id
	Series   string // token of the device or anchor
	Profile  string // token
	Rule     string // token
	Severity string
	Signal   model.EdgeSignal
	From, To model.Micros // event time, inclusive; To 0: no bound
	// Before is a position in the list: only what comes after it, which is strictly older.
	Before *DetectionPosition
}

// DetectionPosition is a position in the list of detections: newest event time first, then newest id.
type DetectionPosition struct {
	Occurred model.Micros
	Row      int64
}

// compare is negative when p comes before q in the list.
func (p DetectionPosition) compare(q DetectionPosition) int {
	return cmp.Or(cmp.Compare(q.Occurred, p.Occurred), cmp.Compare(q.Row, p.Row))
}

// times returns the first and the last event time that the filter lets through.
func (f *DetectionFilter) times() (from, to model.Micros) {
	from, to = MinMicros, MaxMicros
	if f.From != 0 {
		from = f.From
	}
	if f.To != 0 {
		to = f.To
	}
	if f.Before != nil {
		to = min(to, f.Before.Occurred)
	}
	return from, to
}

// rows is the condition for detections that have a row each.
func (f *DetectionFilter) rows() (w where) {
	equal := func(column string, v any, given bool) {
		if given {
			w.add(column+" = ?", v)
		}
	}
	equal("tenant_id", f.TenantID, f.TenantID != 0)
	equal("device_id", f.Device, f.Device != 0)
	equal("series", f.Series, f.Series != "")
	equal("profile", f.Profile, f.Profile != "")
	equal("rule_token", f.Rule, f.Rule != "")
	equal("severity", f.Severity, f.Severity != "")
	equal("signal", int64(f.Signal), f.Signal != 0)
	from, to := f.times()
	w.add("occurred >= ? AND occurred <= ?", int64(from), int64(to))
	if b := f.Before; b != nil {
		w.add("(occurred < ? OR id < ?)", int64(b.Occurred), b.Row)
	}
	return w
}

// blocks is the condition for blocks of a tenant that may hold such detections and come after a position. A block lies within
// an hour, so that its last time has an upper bound, which the index needs: one, or each part of a walk would begin at the top.
func (f *DetectionFilter) blocks(tenant int64, after *After) (w where) {
	from, to := f.times()
	upper := MaxMicros
	if h := hourOf(to); h < hourOf(MaxMicros) {
		upper = model.Micros((h+1)*hourMicros - 1)
	}
	if after != nil {
		upper = min(upper, after.Last)
		w.add("(last_at < ? OR id < ?)", int64(after.Last), after.ID)
	}
	w.add("tenant_id = ? AND last_at >= ? AND last_at <= ? AND first_at <= ?", tenant, int64(from), int64(upper), int64(to))
	bits := func(column string, of uint64) {
		if of != 0 {
			w.add(column+" & ? = ?", int64(of), int64(of))
		}
	}
	bits("rules", f.ruleBits())
	bits("sources", f.sourceBits())
	return w
}

func (f *DetectionFilter) ruleBits() (bits uint64) {
	for field, text := range map[model.EdgeField]string{model.EdgesByProfile: f.Profile, model.EdgesByRule: f.Rule, model.EdgesBySeverity: f.Severity} {
		if text != "" {
			bits |= model.EdgeBit(field, text)
		}
	}
	if f.Signal != 0 {
		bits |= model.EdgeBit(model.EdgesBySignal, f.Signal.String())
	}
	return bits
}

func (f *DetectionFilter) sourceBits() (bits uint64) {
	if f.Device != 0 {
		bits |= model.EdgeBit(model.EdgesByDevice, strconv.FormatInt(f.Device, 10))
	}
	if f.Series != "" {
		bits |= model.EdgeBit(model.EdgesBySeries, f.Series)
	}
	return bits
}

// each calls found with each detection of a block that the filter lets through. It reads the edges only when one of the
// block's rules and one of its sources are among those asked for.
func (f *DetectionFilter) each(b *edgeBlock, found func(*model.PackedEdge)) error {
	rules, someRule := selected(b.Rules, func(r *model.EdgeRule) bool {
		return (f.Profile == "" || r.Profile == f.Profile) && (f.Rule == "" || r.Rule == f.Rule) && (f.Severity == "" || r.Severity == f.Severity)
	})
	sources, someSource := selected(b.Sources, func(s *model.EdgeSource) bool {
		return (f.Device == 0 || s.Device == f.Device) && (f.Series == "" || s.Series == f.Series)
	})
	if !someRule || !someSource {
		return nil
	}
	from, to := f.times()
	return b.each(func(e *model.PackedEdge) bool {
		if rules[e.Rule] && sources[e.Source] && (f.Signal == 0 || e.Signal == f.Signal) && e.Occurred >= from && e.Occurred <= to &&
			(f.Before == nil || f.Before.compare(DetectionPosition{e.Occurred, b.id + int64(e.At)}) < 0) {
			found(e)
		}
		return true
	})
}

func selected[T any](all []T, is func(*T) bool) (which []bool, some bool) {
	which = make([]bool, len(all))
	for i := range all {
		which[i] = is(&all[i])
		some = some || which[i]
	}
	return which, some
}

// Detections returns a page of detections, newest first.
func Detections(tx Tx, f DetectionFilter, page Page) (out []Detection, err error) {
	limit, skip := page.bounds()
	tenants, err := f.tenants(tx)
	if err != nil {
		return nil, err
	}
	lists := []*detectionList{{fetch: rowFetch(f)}}
	for _, t := range tenants {
		lists = append(lists, &detectionList{fetch: (&blockWalk{filter: f, tenant: t, want: skip + limit}).fetch})
	}
	for int64(len(out)) < limit {
		var newest *detectionList
		for _, l := range lists {
			if err := l.fill(tx); err != nil {
				return nil, err
			}
			if len(l.ready) > 0 && (newest == nil || l.ready[0].at.compare(newest.ready[0].at) < 0) {
				newest = l
			}
		}
		if newest == nil {
			break
		}
		d := newest.ready[0]
		if newest.ready = newest.ready[1:]; skip > 0 {
			skip--
			continue
		}
		out = append(out, d.detection())
	}
	return out, nil
}

// tenants returns the tenants whose blocks are searched.
func (f *DetectionFilter) tenants(tx Tx) (ts []int64, err error) {
	if f.TenantID != 0 {
		return []int64{f.TenantID}, nil
	}
	for after := int64(math.MinInt64); ; {
		var next *int64
		if err := tx.QueryRow(`SELECT MIN(tenant_id) FROM edge_blocks WHERE tenant_id > ?`, after).Scan(&next); err != nil || next == nil {
			return ts, err
		}
		after = *next
		ts = append(ts, after)
	}
}

// listed is a detection of a list. Those of a block are not made before they are shown.
type listed struct {
	at     DetectionPosition
	row    *Detection // one that has a row
	block  *edgeBlock
	packed model.PackedEdge
}

func (l *listed) detection() Detection {
	if l.row != nil {
		return *l.row
	}
	return l.block.detection(&l.packed)
}

// detectionList reads detections in the order of the list, some at a time.
type detectionList struct {
	ready []listed
	fetch func(Tx) (some []listed, more bool, err error)
}

// fill reads the next ones when none is ready.
func (l *detectionList) fill(tx Tx) (err error) {
	for more := true; more && len(l.ready) == 0 && l.fetch != nil; {
		if l.ready, more, err = l.fetch(tx); err != nil {
			return err
		}
		if !more {
			l.fetch = nil
		}
	}
	return nil
}

// rowsAtOnce is how many detections with a row are read at a time, and minBlocks and maxBlocks how many blocks.
const (
	rowsAtOnce = 256
	minBlocks  = 8
	maxBlocks  = 64
)

// rowFetch reads the detections that have a row.
func rowFetch(f DetectionFilter) func(Tx) ([]listed, bool, error) {
	return func(tx Tx) (some []listed, more bool, err error) {
		w := f.rows()
		err = edgeRows(tx, w.text()+" ORDER BY occurred DESC, id DESC LIMIT ?", append(w.args, rowsAtOnce), func(d *Detection) error {
			some = append(some, listed{at: d.position(), row: new(*d)})
			return nil
		})
		if len(some) > 0 {
			f.Before = &some[len(some)-1].at
		}
		return some, len(some) == rowsAtOnce, err
	}
}

// blockWalk reads the blocks of a tenant from the newest last time on. What it has read of blocks that reach behind the next
// one waits.
type blockWalk struct {
	filter  DetectionFilter
	tenant  int64
	want    int64 // no more than so many are asked for
	after   *After
	blocks  int // of the fetch before
	waiting []listed
}

func (w *blockWalk) fetch(tx Tx) (ready []listed, more bool, err error) {
	w.blocks = min(max(2*w.blocks, minBlocks), maxBlocks)
	n, err := w.read(tx)
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(w.waiting, func(a, b listed) int { return a.at.compare(b.at) })
	if int64(len(w.waiting)) > w.want {
		clear(w.waiting[w.want:])
		w.waiting = w.waiting[:w.want]
	}
	if n < w.blocks {
		return w.waiting, false, nil
	}
	// The next blocks may hold what happened at the last time of the last one, and nothing later.
	split, _ := slices.BinarySearchFunc(w.waiting, w.after.Last, func(l listed, last model.Micros) int {
		if l.at.Occurred > last {
			return -1
		}
		return 1
	})
	ready, w.waiting = w.waiting[:split:split], slices.Clone(w.waiting[split:])
	w.want -= int64(split)
	return ready, w.want > 0, nil
}

// read reads the next blocks and returns their number.
func (w *blockWalk) read(tx Tx) (n int, err error) {
	q := w.filter.blocks(w.tenant, w.after)
	rows, err := tx.Query(`SELECT id, last_at, data FROM edge_blocks`+q.text()+` ORDER BY last_at DESC, id DESC LIMIT ?`, append(q.args, w.blocks)...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		var at After
		var data []byte
		if err := rows.Scan(&at.ID, (*int64)(&at.Last), &data); err != nil {
			return 0, err
		}
		b, err := readEdgeBlock(at.ID, w.tenant, data)
		if err != nil {
			return 0, err
		}
		if err := w.filter.each(b, func(e *model.PackedEdge) {
			w.waiting = append(w.waiting, listed{at: DetectionPosition{e.Occurred, b.id + int64(e.At)}, block: b, packed: *e})
		}); err != nil {
			return 0, err
		}
		w.after = &at
	}
	return n, rows.Err()
}

// CountDetections returns how many detections there are.
func CountDetections(tx Tx, f DetectionFilter) (n int64, err error) {
	w := f.rows()
	if err := tx.QueryRow(`SELECT COUNT(*) FROM edges`+w.text(), w.args...).Scan(&n); err != nil {
		return 0, err
	}
	tenants, err := f.tenants(tx)
	for _, t := range tenants {
		if err == nil {
			err = f.countBlocks(tx, t, &n)
		}
	}
	return n, err
}

// countBlocks adds the detections in the blocks of a tenant. Blocks of which all are counted are not read.
func (f *DetectionFilter) countBlocks(tx Tx, tenant int64, n *int64) error {
	const whole = "first_at >= ? AND last_at <= ?"
	w, read := f.blocks(tenant, nil), f.blocks(tenant, nil)
	if f.ruleBits()|f.sourceBits() == 0 {
		from, to := f.times()
		if f.Before != nil && to == f.Before.Occurred {
			to--
		}
		w.add(whole, int64(from), int64(to))
		read.add("NOT ("+whole+")", int64(from), int64(to))
		var sum sql.NullInt64
		if err := tx.QueryRow(`SELECT SUM(n) FROM edge_blocks`+w.text(), w.args...).Scan(&sum); err != nil {
			return err
		}
		*n += sum.Int64
		if from == MinMicros && to == MaxMicros {
			return nil
		}
	}
	rows, err := tx.Query(`SELECT id, data FROM edge_blocks`+read.text(), read.args...)
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
		b, err := readEdgeBlock(id, tenant, data)
		if err != nil {
			return err
		}
		if err := f.each(b, func(*model.PackedEdge) { *n++ }); err != nil {
			return err
		}
	}
	return rows.Err()
}

// DetectionAt returns the position in the list of a tenant's detection, nil when it has none with this id.
func DetectionAt(tx Tx, tenantID, row int64) (*DetectionPosition, error) {
	at := &DetectionPosition{Row: row}
	err := tx.QueryRow(`SELECT occurred FROM edges WHERE id = ? AND tenant_id = ?`, row, tenantID).Scan((*int64)(&at.Occurred))
	if !errors.Is(err, sql.ErrNoRows) {
		return at, err
	}
	var id, n, tenant int64
	var data []byte
	err = tx.QueryRow(`SELECT id, n, tenant_id, data FROM edge_blocks WHERE id <= ? ORDER BY id DESC LIMIT 1`, row).Scan(&id, &n, &tenant, &data)
	if errors.Is(err, sql.ErrNoRows) || err == nil && (tenant != tenantID || row >= id+n) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := readEdgeBlock(id, tenant, data)
	if err != nil {
		return nil, err
	}
	err = b.each(func(e *model.PackedEdge) bool {
		at.Occurred = e.Occurred
		return int64(e.At) < row-id
	})
	return at, err
}
