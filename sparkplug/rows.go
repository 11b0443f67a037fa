package sparkplug

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"weir/internal/wire"
)

// Row is what is stored of a node, so that it goes on after a restart without being asked for its births.
type Row struct {
	Node     string
	Online   bool
	Synced   bool // its births describe what comes
	BdSeq    uint64
	HasBdSeq bool
	Born     uint64 // timestamp of the birth, milliseconds
	Next     uint8  // the sequence number that is expected
	Seen     time.Time
	Births   []byte // of the node and its devices, see appendBirths; nil: as they are stored
}

// TakeRows returns the rows that have changed since the last call, and the nodes whose rows are to be removed.
func (m *Machine) TakeRows() (changed []Row, gone []string) {
	for _, id := range sortedKeys(m.dirty) {
		n := m.dirty[id]
		if n.root == nil {
			continue
		}
		r := Row{Node: id, Online: n.root.online, Synced: n.synced, BdSeq: n.bdSeq, HasBdSeq: n.hasBdSeq, Born: n.born, Next: n.next, Seen: n.seen}
		if n.birthsChanged {
			r.Births = n.appendBirths(nil)
			n.birthsChanged = false
		}
		changed = append(changed, r)
	}
	clear(m.dirty)
	gone, m.gone = m.gone, nil
	return changed, gone
}

// Unwritten takes rows back that could not be written.
func (m *Machine) Unwritten(changed []Row, gone []string) {
	for i := range changed {
		if n := m.nodes[changed[i].Node]; n != nil {
			m.dirty[n.id] = n
			n.birthsChanged = n.birthsChanged || changed[i].Births != nil
		}
	}
	for _, id := range gone {
		if m.nodes[id] == nil {
			m.gone = append(m.gone, id)
		}
	}
}

// Restore takes in the stored row of a node. The machine must not know the node yet.
func (m *Machine) Restore(r *Row) error {
	n := &node{id: r.Node, devices: map[string]*birth{}, aliases: map[uint64]*birth{}, bdSeq: r.BdSeq, hasBdSeq: r.HasBdSeq, born: r.Born, next: r.Next,
		seen: r.Seen, synced: r.Synced && r.Online}
	if err := n.readBirths(r.Births); err != nil {
		return err
	}
	if len(m.nodes) >= MaxNodes {
		return errRow
	}
	m.nodes[n.id] = n
	return nil
}

// Present calls f with the nodes and devices that are online.
func (m *Machine) Present(f func(node, device string)) {
	for _, id := range sortedKeys(m.nodes) {
		n := m.nodes[id]
		if !n.online() {
			continue
		}
		f(id, "")
		for _, name := range sortedKeys(n.devices) {
			if n.devices[name].online {
				f(id, name)
			}
		}
	}
}

// rowVersion is the first byte of stored births.
const rowVersion = 1

const (
	flagOnline = 1 << iota
	flagFresh
)

var errRow = errors.New("sparkplug: a stored row of a node cannot be read")

// appendBirths appends the births of a node and its devices: the version, and for each birth its length and then its device, its flags and
// its definitions. A definition is the number of bytes that its name shares with the name before it, the rest of the name, the type, and
// the alias plus one, 0 for none.
func (n *node) appendBirths(b []byte) []byte {
	b = append(b, rowVersion)
	b = wire.AppendBytes(b, n.root.append(nil))
	for _, name := range sortedKeys(n.devices) {
		b = wire.AppendBytes(b, n.devices[name].append(nil))
	}
	return b
}

func (b *birth) append(out []byte) []byte {
	out = wire.AppendString(out, b.device)
	flags := byte(0)
	if b.online {
		flags |= flagOnline
	}
	if b.fresh {
		flags |= flagFresh
	}
	out = append(out, flags)
	before := ""
	for i := range b.defs {
		d := &b.defs[i]
		shared := 0
		for shared < min(len(before), len(d.name)) && before[shared] == d.name[shared] {
			shared++
		}
		out = binary.AppendUvarint(out, uint64(shared))
		out = wire.AppendString(out, d.name[shared:])
		out = append(out, byte(d.kind))
		alias := []byte{0}
		if d.hasAlias {
			alias = append(alias[:0], 1)
			alias = binary.AppendUvarint(alias, d.alias)
		}
		out = append(out, alias...)
		before = d.name
	}
	return out
}

// readBirths reads what appendBirths has written.
func (n *node) readBirths(b []byte) error {
	r := wire.NewReader(b)
	if r.Byte() != rowVersion {
		return errRow
	}
	for r.Err() == nil && r.Len() > 0 {
		one, err := readBirth(wire.NewReader(r.Bytes()))
		switch {
		case err != nil:
			return err
		case n.root == nil && one.device == "":
			n.root = one
		case n.root == nil || one.device == "" || n.devices[one.device] != nil || len(n.devices) >= MaxDevices:
			return errRow
		default:
			n.devices[one.device] = one
		}
		if one.fresh {
			for _, i := range one.byAlias {
				n.aliases[one.defs[i].alias] = one
			}
		}
	}
	if r.Err() != nil || n.root == nil {
		return errRow
	}
	return nil
}

func readBirth(r *wire.Reader) (*birth, error) {
	out := &birth{device: r.String(), texts: &texts{}}
	flags := r.Byte()
	out.online, out.fresh = flags&flagOnline != 0, flags&flagFresh != 0
	if out.device != "" && checkPart(out.device) != "" {
		return nil, errRow
	}
	before := ""
	for r.Err() == nil && r.Len() > 0 {
		d := readDefinition(r, before)
		if r.Err() != nil || d.name <= before || len(out.defs) == maxMetrics {
			return nil, errRow
		}
		out.defs = append(out.defs, d)
		before = d.name
	}
	out.defs = slices.Clip(out.defs)
	if r.Err() != nil || out.index() != nil {
		return nil, errRow
	}
	return out, nil
}

func readDefinition(r *wire.Reader, before string) (d definition) {
	shared := r.Uvarint()
	if shared > uint64(len(before)) {
		r.Fail(errRow)
		return d
	}
	d.name = before[:shared] + r.String()
	d.kind = DataType(r.Byte())
	d.hasAlias = r.Byte() == 1
	if len(d.name) > 4*maxName {
		r.Fail(errRow)
	}
	if d.hasAlias {
		d.alias = r.Uvarint()
	}
	return d
}
