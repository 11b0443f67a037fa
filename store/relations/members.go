package relations

import (
	"slices"
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

// How the members of a dynamic group are found. Where many entities are members, the first of them are soon found by looking
// at the entities in their order: so many for each member that is asked for, and at most so many. Where few are, the index of
// attributes leads to those that the most selective comparison holds for; comparisons are counted as far as the last bound.
const (
	scanPerMember = 20
	maxScan       = 20_000
	maxCounted    = 10_000
)

// Page returns at most limit members in the order of their row ids, without those up to after and then without the first offset.
func (m *Members) Page(tx store.Tx, after, offset, limit int64) ([]Member, error) {
	switch {
	case m.Table == "", limit < 1, m.Condition != nil && m.Condition.Op == model.Never:
		return nil, nil
	case m.Condition == nil:
		return m.related(tx, after, offset, limit)
	}
	if scan := scanPerMember * (offset + limit); scan <= maxScan && !wide(*m.Condition) {
		members, err := m.scan(tx, after, offset, limit, scan)
		if err != nil || int64(len(members)) == limit {
			return members, err
		}
	}
	condition, err := m.narrowed(tx, "e.id")
	if err != nil {
		return nil, err
	}
	q := clause{text: `SELECT e.id, e.token FROM ` + m.Table + ` e WHERE e.tenant_id = ? AND e.id > ? AND `, args: []any{m.Tenant, after}}
	q.join(condition)
	q.add(` ORDER BY e.id LIMIT ? OFFSET ?`, limit, offset)
	return q.members(tx)
}

// Count returns how many members there are.
func (m *Members) Count(tx store.Tx) (n int64, err error) {
	if m.Table == "" || m.Condition != nil && m.Condition.Op == model.Never {
		return 0, nil
	}
	if m.Condition == nil {
		q := m.targets()
		err = tx.QueryRow(`SELECT count(DISTINCT r.target_id) FROM `+q.text, q.args...).Scan(&n)
		return n, err
	}
	condition, err := m.narrowed(tx, "e.id")
	if err != nil {
		return 0, err
	}
	q := clause{text: `SELECT count(*) FROM ` + m.Table + ` e WHERE e.tenant_id = ? AND `, args: []any{m.Tenant}}
	q.join(condition)
	err = tx.QueryRow(q.text, q.args...).Scan(&n)
	return n, err
}

// Filter lets the members through in a list of the entities of their type.
func (m *Members) Filter(tx store.Tx) (store.Filter, error) {
	if m.Condition == nil {
		q := m.targets()
		return store.Where("id", `%.id IN (SELECT r.target_id FROM `+q.text+`)`, q.args...), nil
	}
	condition, err := m.narrowed(tx, "%.id")
	return store.Where("id", condition.text, condition.args...), err
}

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
	q.join(m.holds(*m.Condition, "e.id"))
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

// holds is the condition for the entity whose row id an expression gives: a look-up for each comparison.
func (m *Members) holds(c model.Condition, id string) clause {
	switch c.Op {
	case model.Always:
		return clause{text: `1 = 1`}
	case model.AllOf:
		return m.all(` AND `, c.Parts, id)
	case model.AnyOf:
		return m.all(` OR `, c.Parts, id)
	case model.Not:
		q := clause{text: `NOT `}
		q.join(m.holds(c.Parts[0], id))
		return q
	case model.HasKey, model.Compare:
		q := clause{text: `EXISTS (SELECT 1 FROM attributes a WHERE a.entity_id = ` + id + ` AND `}
		q.join(m.leaf(c))
		q.add(`)`)
		return q
	}
	return clause{text: `1 = 0`}
}

func (m *Members) all(operator string, parts []model.Condition, id string) clause {
	q := clause{text: `(`}
	for i, part := range parts {
		if i > 0 {
			q.add(operator)
		}
		q.join(m.holds(part, id))
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

// driver is a set of row ids that the index of attributes gives and that holds all members.
type driver struct {
	set   clause
	count int64             // how many there are, counted up to maxCounted in each leaf
	rest  []model.Condition // that the members fulfil besides
}

// narrowed is the condition for the entity whose row id an expression gives, led by the index where that narrows it.
func (m *Members) narrowed(tx store.Tx, id string) (clause, error) {
	d, err := m.driver(tx, *m.Condition)
	if err != nil || d == nil {
		return m.holds(*m.Condition, id), err
	}
	q := clause{text: id + ` IN (`}
	q.join(d.set)
	q.add(`)`)
	for _, c := range d.rest {
		q.add(` AND `)
		q.join(m.holds(c, id))
	}
	return q, nil
}

// wide reports whether no index narrows a condition.
func wide(c model.Condition) bool {
	switch c.Op {
	case model.HasKey, model.Compare:
		return false
	case model.AllOf:
		return !slices.ContainsFunc(c.Parts, func(part model.Condition) bool { return !wide(part) })
	case model.AnyOf:
		return slices.ContainsFunc(c.Parts, wide)
	}
	return true
}

// driver finds the set for a condition, nil where no index narrows it.
func (m *Members) driver(tx store.Tx, c model.Condition) (*driver, error) {
	if wide(c) {
		return nil, nil
	}
	switch c.Op {
	case model.AllOf:
		return m.smallest(tx, c.Parts)
	case model.AnyOf:
		return m.union(tx, c)
	}
	d := &driver{set: clause{text: `SELECT a.entity_id FROM attributes a WHERE `}}
	d.set.join(m.leaf(c))
	q := clause{text: `SELECT count(*) FROM (`}
	q.join(d.set)
	q.add(` LIMIT ?) AS counted`, maxCounted)
	return d, tx.QueryRow(q.text, q.args...).Scan(&d.count)
}

// smallest is the driver of the part that the fewest entities fulfil; the members fulfil the other parts, too.
func (m *Members) smallest(tx store.Tx, parts []model.Condition) (*driver, error) {
	drivers := make([]*driver, len(parts))
	best := -1
	for i, part := range parts {
		var err error
		if drivers[i], err = m.driver(tx, part); err != nil {
			return nil, err
		}
		if drivers[i] != nil && (best < 0 || drivers[i].count < drivers[best].count) {
			best = i
		}
	}
	d := drivers[best]
	d.rest = append(d.rest, parts[:best]...)
	d.rest = append(d.rest, parts[best+1:]...)
	return d, nil
}

// union is the set of what any part drives. Where a part's set has more than its members, all of it is looked at again.
func (m *Members) union(tx store.Tx, c model.Condition) (*driver, error) {
	all := &driver{}
	sets := make([]string, len(c.Parts))
	for i, part := range c.Parts {
		d, err := m.driver(tx, part)
		if err != nil {
			return nil, err
		}
		sets[i] = d.set.text
		all.set.args = append(all.set.args, d.set.args...)
		all.count += d.count
		if len(d.rest) > 0 {
			all.rest = []model.Condition{c}
		}
	}
	all.set.text = strings.Join(sets, ` UNION ALL `)
	return all, nil
}
