// Package births is the SQL of what is known of the edge nodes of Sparkplug sources. Package sparkplug has the rules.
package births

import (
	"database/sql"

	"weir/model"
	"weir/store"
)

// Node is the row of an edge node.
type Node struct {
	Node     string
	Online   bool
	Synced   bool
	BdSeq    uint64
	HasBdSeq bool
	Born     uint64 // milliseconds
	Next     uint8
	Seen     model.Micros
	Births   []byte // nil, when it is written: as they are stored
}

// List returns the rows of a source after a node, in the order of the nodes, at most limit.
func List(tx store.Tx, tenant, source, after string, limit int) (found []Node, err error) {
	rows, err := tx.Query(`SELECT node, online, synced, bd_seq, born, next_seq, seen, births FROM sparkplug_nodes
		WHERE tenant = ? AND source = ? AND node > ? ORDER BY node LIMIT ?`, tenant, source, after, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n Node
		var bdSeq sql.NullInt64
		var born int64
		if err := rows.Scan(&n.Node, &n.Online, &n.Synced, &bdSeq, &born, &n.Next, &n.Seen, &n.Births); err != nil {
			return nil, err
		}
		n.BdSeq, n.HasBdSeq, n.Born = uint64(bdSeq.Int64), bdSeq.Valid, uint64(born)
		found = append(found, n)
	}
	return found, rows.Err()
}

// Put writes a row. One without births keeps those that are stored, and is not written where there is no row.
func Put(tx store.Tx, tenant, source string, n *Node) error {
	bdSeq := sql.NullInt64{Int64: int64(n.BdSeq), Valid: n.HasBdSeq}
	if n.Births == nil {
		_, err := tx.Exec(`UPDATE sparkplug_nodes SET online = ?, synced = ?, bd_seq = ?, born = ?, next_seq = ?, seen = ? WHERE tenant = ? AND source = ? AND node = ?`,
			n.Online, n.Synced, bdSeq, int64(n.Born), n.Next, int64(n.Seen), tenant, source, n.Node)
		return err
	}
	_, err := tx.Exec(`INSERT INTO sparkplug_nodes (tenant, source, node, online, synced, bd_seq, born, next_seq, seen, births) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, source, node) DO UPDATE SET online = excluded.online, synced = excluded.synced, bd_seq = excluded.bd_seq, born = excluded.born,
		next_seq = excluded.next_seq, seen = excluded.seen, births = excluded.births`,
		tenant, source, n.Node, n.Online, n.Synced, bdSeq, int64(n.Born), n.Next, int64(n.Seen), n.Births)
	return err
}

// Remove removes the row of a node.
func Remove(tx store.Tx, tenant, source, node string) error {
	_, err := tx.Exec(`DELETE FROM sparkplug_nodes WHERE tenant = ? AND source = ? AND node = ?`, tenant, source, node)
	return err
}
