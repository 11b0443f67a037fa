package relations

import (
	"slices"
	"sort"
	"strings"

	"weir/model"
	"weir/store"
)

// Member is an entity that belongs to a group.
type Member struct {
	ID    int64  `gql:"id"`
	Token string `gql:"token"`
}

// Members says which entities of a tenant belong to a group, and reads them.
type Members struct {
	Tenant int64
	Type   string // of the members
	Table  string // that holds them; "": no entity is of the type
	// Condition is that of a dynamic group over the SHARED attributes; nil: the members are the targets of relationships of the
	// type MemberRelation from Group.
	Condition *model.Condition
	Group     int64 // row id
}

// The members of a dynamic group are found in one of two ways. Where many entities are members, a page of them is soon found
// by looking at the entities in their order: so many for each member of the page, and at most so many. Else the index of
// attributes gives the entities that each comparison holds for, and these sets are joined.
const (
	scanPerMember = 10
	maxScan       = 10_000
)

// Page returns at most limit members in the order of their row ids, without those up to after and then without the first offset.
func (m *Members) Page(tx store.Tx, after, offset, limit int64) ([]Member, error) {
	switch {
	case m.Table == "" || limit < 1:
		return nil, nil
	case m.Condition == nil:
		return m.related(tx, after, offset, limit)
	}
	if scan := scanPerMember * (offset + limit); scan <= maxScan {
		members, err := m.scan(tx, after, offset, limit, scan)
		if err != nil || int64(len(members)) == limit {
			return members, err
		}
	}
	all, err := m.all(tx)
	if err != nil {
		return nil, err
	}
	from := int64(sort.Search(len(all), func(i int) bool { return all[i] > after })) + offset
	if from >= int64(len(all)) {
		return nil, nil
	}
	return m.named(tx, all[from:min(from+limit, int64(len(all)))])
}

// Count returns how many members there are.
func (m *Members) Count(tx store.Tx) (n int64, err error) {
	switch {
	case m.Table == "":
		return 0, nil
	case m.Condition == nil:
		q := m.targets()
		err = tx.QueryRow(`SELECT count(DISTINCT r.target_id) FROM `+q.text, q.args...).Scan(&n)
		return n, err
	}
	all, err := m.all(tx)
	return int64(len(all)), err
}

// Filter lets the members through in a list of the entities of their type.
func (m *Members) Filter(tx store.Tx) (store.Filter, error) {
	if m.Condition == nil {
		q := m.targets()
		return store.Where("id", `%.id IN (SELECT r.target_id FROM `+q.text+`)`, q.args...), nil
	}
	all, err := m.all(tx)
	return store.Among(all, true), err
}

// clause is a part of a statement with its arguments.
type clause struct {
	text string
	args []any
}

func (c *clause) add(text string, args ...any) {
	c.text += text
	c.args = append(c.args, args...)
}

func (c *clause) join(o clause) { c.add(o.text, o.args...) }

// related reads the members of a static group.
func (m *Members) related(tx store.Tx, after, offset, limit int64) ([]Member, error) {
	q := clause{text: `SELECT e.id, e.token FROM (SELECT DISTINCT r.target_id FROM `}
	q.join(m.targets())
	q.add(` AND r.target_id > ? ORDER BY r.target_id LIMIT ? OFFSET ?) m JOIN `+m.Table+` e ON e.id = m.target_id ORDER BY e.id`, after, limit, offset)
	return q.members(tx)
}

// targets are the relationships that make the members of a static group.
func (m *Members) targets() clause {
	return clause{table + ` r WHERE r.tenant_id = ? AND r.source_type = ? AND r.source_id = ? AND r.target_type = ?
		AND r.type_id = (SELECT t.id FROM entity_relationship_types t WHERE t.tenant_id = ? AND t.token = ?)`,
		[]any{m.Tenant, GroupType, m.Group, m.Type, m.Tenant, MemberRelation}}
}

// scan looks for members among so many entities.
func (m *Members) scan(tx store.Tx, after, offset, limit, entities int64) ([]Member, error) {
	q := clause{`SELECT e.id, e.token FROM (SELECT d.id, d.token FROM ` + m.Table + ` d WHERE d.tenant_id = ? AND d.id > ? ORDER BY d.id LIMIT ?) e WHERE `,
		[]any{m.Tenant, after, entities}}
	q.join(m.holds(*m.Condition))
	q.add(` ORDER BY e.id LIMIT ? OFFSET ?`, limit, offset)
	return q.members(tx)
}

// members reads a statement that gives row ids and tokens.
func (c *clause) members(tx store.Tx) ([]Member, error) {
	rows, err := tx.Query(c.text, c.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var members []Member
	for rows.Next() {
		var one Member
		if err := rows.Scan(&one.ID, &one.Token); err != nil {
			return nil, err
		}
		members = append(members, one)
	}
	return members, rows.Err()
}

// named are the members with these row ids.
func (m *Members) named(tx store.Tx, ids []int64) ([]Member, error) {
	tokens, err := store.Tokens(tx, m.Table, ids)
	if err != nil {
		return nil, err
	}
	members := make([]Member, 0, len(ids))
	for _, id := range ids {
		if token, ok := tokens[id]; ok {
			members = append(members, Member{id, token})
		}
	}
	return members, nil
}

// holds is the condition for the entity e: a look-up for each comparison.
func (m *Members) holds(c model.Condition) clause {
	switch c.Op {
	case model.Always:
		return clause{text: `1 = 1`}
	case model.AllOf:
		return m.joined(` AND `, c.Parts)
	case model.AnyOf:
		return m.joined(` OR `, c.Parts)
	case model.Not:
		q := clause{text: `NOT `}
		q.join(m.holds(c.Parts[0]))
		return q
	case model.HasKey, model.Compare:
		q := clause{text: `EXISTS (SELECT 1 FROM attributes a WHERE a.entity_id = e.id AND `}
		q.join(m.leaf(c))
		q.add(`)`)
		return q
	}
	return clause{text: `1 = 0`}
}

func (m *Members) joined(operator string, parts []model.Condition) clause {
	q := clause{text: `(`}
	for i, part := range parts {
		if i > 0 {
			q.add(operator)
		}
		q.join(m.holds(part))
	}
	q.add(`)`)
	return q
}

// leaf is the condition for a row a of attributes.
func (m *Members) leaf(c model.Condition) clause {
	q := clause{`a.tenant_id = ? AND a.entity_type = ? AND a.scope = 'SHARED' AND a.key = ?`, []any{m.Tenant, m.Type, c.Key}}
	if c.Op == model.HasKey {
		return q
	}
	column, types, value := "a.number_value", `('LONG', 'DOUBLE')`, c.Value
	switch v := c.Value.(type) {
	case string:
		column, types = "a.text_value", `('STRING')`
	case bool:
		types, value = `('BOOLEAN')`, float64(0)
		if v {
			value = float64(1)
		}
	}
	if c.Cmp == model.NotEqual { // whatever is of another type, or null, is unequal
		q.add(` AND (a.value_type NOT IN `+types+` OR `+column+` IS NULL OR `+column+` <> ?)`, value)
		return q
	}
	q.add(` AND a.value_type IN `+types+` AND `+column+` `+string(c.Cmp)+` ?`, value)
	return q
}

// all returns the row ids of the members of a dynamic group, sorted.
func (m *Members) all(tx store.Tx) ([]int64, error) {
	s := sets{Members: m, tx: tx, candidates: maxCandidates}
	return s.of(*m.Condition, nil)
}

// sets finds the sets of row ids, sorted, that conditions hold for.
type sets struct {
	*Members
	tx         store.Tx
	candidates int     // see maxCandidates
	entities   []int64 // all entities of the type, nil until they are needed
}

// of returns the entities among some, nil for all, that a condition holds for.
func (s *sets) of(c model.Condition, among []int64) ([]int64, error) {
	switch c.Op {
	case model.Always:
		return s.base(among)
	case model.AllOf:
		return s.ofAll(c.Parts, among)
	case model.AnyOf:
		return s.ofAny(c.Parts, among)
	case model.Not:
		base, err := s.base(among)
		if err != nil {
			return nil, err
		}
		without, err := s.of(c.Parts[0], base)
		return subtract(base, without), err
	case model.HasKey, model.Compare:
		return s.ofLeaf(c, among)
	}
	return nil, nil
}

// base is among, or all entities of the type.
func (s *sets) base(among []int64) ([]int64, error) {
	if among != nil {
		return among, nil
	}
	if s.entities == nil {
		q := clause{`SELECT d.id FROM ` + s.Table + ` d WHERE d.tenant_id = ? ORDER BY d.id`, []any{s.Tenant}}
		ids, err := q.ids(s.tx, []int64{})
		if err != nil {
			return nil, err
		}
		s.entities = ids
	}
	return s.entities, nil
}

// ofAll begins with the part that seems to hold for the fewest.
func (s *sets) ofAll(parts []model.Condition, among []int64) ([]int64, error) {
	counts := make([]int64, len(parts))
	order := make([]int, len(parts))
	for i, part := range parts {
		var err error
		if counts[i], err = s.count(part); err != nil {
			return nil, err
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(counts[a] - counts[b]) })
	for _, i := range order {
		var err error
		if among, err = s.of(parts[i], among); err != nil || len(among) == 0 {
			return nil, err
		}
	}
	return among, nil
}

func (s *sets) ofAny(parts []model.Condition, among []int64) (union []int64, err error) {
	for _, part := range parts {
		some, err := s.of(part, among)
		if err != nil {
			return nil, err
		}
		union = append(union, some...)
	}
	slices.Sort(union)
	return slices.Compact(union), nil
}

// maxCounted bounds what is counted to find the order of parts.
const maxCounted = 10_000

// count is about how many entities a condition holds for, counted up to maxCounted in each comparison.
func (s *sets) count(c model.Condition) (n int64, err error) {
	switch c.Op {
	case model.HasKey, model.Compare:
		q := clause{text: `SELECT count(*) FROM (SELECT 1 FROM attributes a WHERE `}
		q.join(s.leaf(c))
		q.add(` LIMIT ?) AS counted`, maxCounted)
		err = s.tx.QueryRow(q.text, q.args...).Scan(&n)
		return n, err
	case model.AnyOf:
		for _, part := range c.Parts {
			some, err := s.count(part)
			if err != nil {
				return 0, err
			}
			n += some
		}
		return n, nil
	}
	return 2 * maxCounted, nil // not known: last
}

// Candidates are looked up one by one as long as there are at most so many; more are found faster by the index.
const (
	maxCandidates = 2_000
	perStatement  = 256
)

func (s *sets) ofLeaf(c model.Condition, among []int64) (ids []int64, err error) {
	if among != nil && len(among) <= s.candidates {
		for some := range slices.Chunk(among, perStatement) {
			q := s.selected(c)
			q.text += ` AND a.entity_id IN (?` + strings.Repeat(", ?", len(some)-1) + `)`
			for _, id := range some {
				q.args = append(q.args, id)
			}
			if ids, err = q.ids(s.tx, ids); err != nil {
				return nil, err
			}
		}
		slices.Sort(ids)
		return ids, nil
	}
	q := s.selected(c)
	if ids, err = q.ids(s.tx, nil); err != nil {
		return nil, err
	}
	slices.Sort(ids)
	if among != nil {
		ids = intersect(ids, among)
	}
	return ids, nil
}

func (s *sets) selected(c model.Condition) clause {
	q := clause{text: `SELECT a.entity_id FROM attributes a WHERE `}
	q.join(s.leaf(c))
	return q
}

// ids appends the row ids that a statement gives.
func (c *clause) ids(tx store.Tx, to []int64) ([]int64, error) {
	rows, err := tx.Query(c.text, c.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var id int64
	for rows.Next() {
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		to = append(to, id)
	}
	return to, rows.Err()
}

// intersect returns what is in both sorted sets, in the memory of the first.
func intersect(a, b []int64) []int64 {
	return slices.DeleteFunc(a, lacking(b))
}

// subtract returns what is in the first sorted set alone.
func subtract(a, b []int64) []int64 {
	missing := lacking(b)
	var left []int64
	for _, id := range a {
		if missing(id) {
			left = append(left, id)
		}
	}
	return left
}

// lacking reports of rising ids whether a sorted set lacks them.
func lacking(set []int64) func(id int64) bool {
	next := 0
	return func(id int64) bool {
		for next < len(set) && set[next] < id {
			next++
		}
		return next == len(set) || set[next] != id
	}
}
