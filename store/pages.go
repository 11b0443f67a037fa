package store

import (
	"weir/model"
)

// RulePage is one page of rule state; a nil Body removes the page.
type RulePage struct {
	Page     string
	TenantID int64
	Body     []byte
}

// PutRulePage writes a page under a generation that readers do not see yet.
func PutRulePage(tx Tx, gen uint64, p RulePage) error {
	_, err := tx.Exec(`INSERT INTO rule_pages (page, gen, tenant_id, body) VALUES (?, ?, ?, ?)
		ON CONFLICT (page, gen) DO UPDATE SET body = excluded.body`, p.Page, int64(gen), p.TenantID, p.Body)
	return err
}

// RulePages calls f for each page as of a generation.
func RulePages(tx Tx, gen uint64, f func(RulePage) error) error {
	rows, err := tx.Query(`SELECT page, tenant_id, body FROM rule_pages AS p WHERE body IS NOT NULL AND gen =
		(SELECT MAX(gen) FROM rule_pages AS q WHERE q.page = p.page AND q.gen <= ?) ORDER BY page`, int64(gen))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p RulePage
		if err := rows.Scan(&p.Page, &p.TenantID, &p.Body); err != nil {
			return err
		}
		if err := f(p); err != nil {
			return err
		}
	}
	return rows.Err()
}

// SweepUnpublishedRulePages removes the pages of rule state that an unfinished checkpoint left: those of generations
// above gen.
func SweepUnpublishedRulePages(tx Tx, gen uint64) error {
	_, err := tx.Exec(`DELETE FROM rule_pages WHERE gen > ?`, int64(gen))
	return err
}

// SweepRulePages removes pages that newer ones replace.
func SweepRulePages(tx Tx, gen uint64) error {
	_, err := tx.Exec(`DELETE FROM rule_pages WHERE gen <= ? AND (body IS NULL OR EXISTS (SELECT 1 FROM rule_pages AS q
		WHERE q.page = rule_pages.page AND q.gen > rule_pages.gen AND q.gen <= ?))`, int64(gen), int64(gen))
	return err
}

// SeenPage is a page of the deduplication state: hashes of altIds, or the last repeats of one client.
type SeenPage struct {
	ID       int64
	Kind     string
	LastTime model.Micros // newest receive time on the page
	Body     []byte
}

// AddSeenPage appends a page under a generation.
func AddSeenPage(tx Tx, gen uint64, p SeenPage) error {
	_, err := tx.Exec(`INSERT INTO seen_pages (gen, kind, last_time, body) VALUES (?, ?, ?, ?)`,
		int64(gen), p.Kind, int64(p.LastTime), p.Body)
	return err
}

// SeenPages calls f for each page as of a generation, oldest first.
func SeenPages(tx Tx, gen uint64, f func(SeenPage) error) error {
	rows, err := tx.Query(`SELECT id, kind, last_time, body FROM seen_pages WHERE gen <= ? ORDER BY id`, int64(gen))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p SeenPage
		if err := rows.Scan(&p.ID, &p.Kind, (*int64)(&p.LastTime), &p.Body); err != nil {
			return err
		}
		if err := f(p); err != nil {
			return err
		}
	}
	return rows.Err()
}

// SweepUnpublishedSeenPages removes the pages of what has been seen that an unfinished checkpoint left: those of
// generations above gen.
func SweepUnpublishedSeenPages(tx Tx, gen uint64) error {
	_, err := tx.Exec(`DELETE FROM seen_pages WHERE gen > ?`, int64(gen))
	return err
}

// DropSeenPages removes the pages of a kind with a newest entry older than before.
func DropSeenPages(tx Tx, kind string, before model.Micros) error {
	_, err := tx.Exec(`DELETE FROM seen_pages WHERE kind = ? AND last_time < ?`, kind, int64(before))
	return err
}

// ReplaceSeenPages removes the pages of a kind that are older than a generation, which replaces them.
func ReplaceSeenPages(tx Tx, gen uint64, kind string) error {
	_, err := tx.Exec(`DELETE FROM seen_pages WHERE kind = ? AND gen < ?`, kind, int64(gen))
	return err
}
