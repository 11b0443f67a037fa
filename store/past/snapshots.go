package past

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"weir/model"
	"weir/store"
)

// Snapshot is the state of the rules as of a checkpoint that is kept beside the current one.
type Snapshot struct {
	Generation uint64 // of the checkpoint
	Offset     model.Offset
	Received   model.Micros // newest receive stamp
	Listening  int64        // newest listening time of the transports, nanoseconds
	Current    bool         // it is that of the current checkpoint: what it has is not written down
}

// ErrDamaged is returned where a kept snapshot lacks a page.
var ErrDamaged = errors.New("past: damaged snapshot of rule state")

// Day names a snapshot: the UTC day at whose end it was the newest.
func (s *Snapshot) Day() string { return s.Received.Time().UTC().Format(time.DateOnly) }

// partOf is the profile that a page of rule state belongs to, 0 for one of all profiles: its id is tenant/profile/page.
const partOf = `CASE tenant_id WHEN 0 THEN 0 ELSE CAST(substr(page, instr(page, '/') + 1) AS INTEGER) END`

// Keep keeps the rule state of the checkpoint that is current, in the transaction that moves the checkpoint on. Nothing is copied: its pages
// stay when newer ones replace them. Keeping it again changes nothing.
func Keep(tx store.Tx, s Snapshot) error {
	if _, err := tx.Exec(`INSERT INTO rule_snapshots (gen, log_offset, received, listening) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		int64(s.Generation), int64(s.Offset), int64(s.Received), s.Listening); err != nil {
		return err
	}
	_, err := tx.Exec(`INSERT INTO rule_snapshot_parts (gen, tenant_id, profile, pages, gens)
		SELECT ?, tenant_id, `+partOf+` AS profile, count(*), sum(gen) FROM rule_pages AS p WHERE `+store.RulePageOf+` AND `+store.RulePageKept+`
		GROUP BY tenant_id, profile ON CONFLICT DO NOTHING`, int64(s.Generation), int64(s.Generation))
	return err
}

// SnapshotBefore returns the newest kept snapshot that lies before a receive time and whose place is between two offsets, both inclusive; nil
// when there is none.
func SnapshotBefore(tx store.Tx, received model.Micros, from, upto model.Offset) (*Snapshot, error) {
	s := &Snapshot{}
	var gen, offset, at int64
	err := tx.QueryRow(`SELECT gen, log_offset, received, listening FROM rule_snapshots WHERE received <= ? AND log_offset >= ? AND log_offset <= ? ORDER BY gen DESC LIMIT 1`,
		int64(received), int64(from), int64(upto)).Scan(&gen, &offset, &at, &s.Listening)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	s.Generation, s.Offset, s.Received = uint64(gen), model.Offset(offset), model.Micros(at)
	return s, err
}

// Pages are those of a profile and of all profiles that a kept snapshot has.
type Pages struct {
	tx   store.Tx
	gens map[string]int64
	IDs  []string
}

// Pages finds the pages of a profile in a kept snapshot, without reading them. It returns ErrDamaged where one is missing.
func (s *Snapshot) Pages(tx store.Tx, tenantID, profile int64) (*Pages, error) {
	p := &Pages{tx: tx, gens: map[string]int64{}}
	for _, of := range [...]struct {
		tenant, profile int64
		from, to        string
	}{{0, 0, "", "\U0010FFFF"}, {tenantID, profile, fmt.Sprintf("%d/%d/", tenantID, profile), fmt.Sprintf("%d/%d0", tenantID, profile)}} { // 0 comes after /
		pages, gens, err := p.find(s, of.tenant, of.from, of.to)
		if err != nil {
			return nil, err
		}
		var wantPages, wantGens int64
		err = tx.QueryRow(`SELECT pages, gens FROM rule_snapshot_parts WHERE gen = ? AND tenant_id = ? AND profile = ?`, int64(s.Generation), of.tenant, of.profile).Scan(&wantPages, &wantGens)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		if !s.Current && (pages != wantPages || gens != wantGens) {
			return nil, fmt.Errorf("%w: %d pages of profile %d/%d are there, %d were kept", ErrDamaged, pages, of.tenant, of.profile, wantPages)
		}
	}
	return p, nil
}

func (p *Pages) find(s *Snapshot, tenantID int64, from, to string) (pages, gens int64, err error) {
	rows, err := p.tx.Query(`SELECT page, gen FROM rule_pages AS p WHERE tenant_id = ? AND page >= ? AND page < ? AND `+store.RulePageOf+` AND `+store.RulePageKept+` ORDER BY page`,
		tenantID, from, to, int64(s.Generation))
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var page string
		var gen int64
		if err := rows.Scan(&page, &gen); err != nil {
			return 0, 0, err
		}
		p.IDs, p.gens[page] = append(p.IDs, page), gen
		pages, gens = pages+1, gens+gen
	}
	return pages, gens, rows.Err()
}

// Read returns what one of the pages holds.
func (p *Pages) Read(id string) (body []byte, err error) {
	err = p.tx.QueryRow(`SELECT body FROM rule_pages WHERE page = ? AND gen = ?`, id, p.gens[id]).Scan(&body)
	return body, err
}
