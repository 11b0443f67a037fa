package store

import (
	"errors"

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

// RulePageOf is the condition of the rows of rule_pages AS p that are the pages as of a generation, its one parameter.
const RulePageOf = `p.body IS NOT NULL AND p.gen = (SELECT MAX(q.gen) FROM rule_pages AS q WHERE q.page = p.page AND q.gen <= ?)`

// RulePageKept is the condition of the rows of rule_pages AS p that a kept snapshot (rule_snapshots) has: those of profiles, and how the time of
// tenants goes. The ceilings of detections and what is owed beyond them are left out: previews have no ceiling.
const RulePageKept = `(p.tenant_id > 0 OR p.page = 'clocks')`

// ruleSnapshot is the newest kept snapshot that has a row of rule_pages AS p which a newer one replaces, up to a generation, its one
// parameter; null for none.
const ruleSnapshot = `(SELECT MAX(k.gen) FROM rule_snapshots AS k WHERE ` + RulePageKept + ` AND k.gen >= p.gen AND k.gen <
	(SELECT MIN(n.gen) FROM rule_pages AS n WHERE n.page = p.page AND n.gen > p.gen AND n.gen <= ?))`

// RulePages calls f for each page as of a generation.
func RulePages(tx Tx, gen uint64, f func(RulePage) error) error {
	rows, err := tx.Query(`SELECT page, tenant_id, body FROM rule_pages AS p WHERE `+RulePageOf+` ORDER BY page`, int64(gen))
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

// sweptPages is how many pages of rule state one call of a sweep looks at: few enough that the writer is soon free again.
const sweptPages = 32

// sweepPages removes rows of the pages that come next after a page ("": the first), where a condition holds, and returns the last of
// these pages, "" when there are no more.
func sweepPages(tx Tx, after, condition string, args ...any) (last string, err error) {
	rows, err := tx.Query(`SELECT DISTINCT page FROM rule_pages WHERE page > ? ORDER BY page LIMIT ?`, after, sweptPages)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&last); err != nil {
			return "", err
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || last == "" {
		return "", err
	}
	_, err = tx.Exec(`DELETE FROM rule_pages AS p WHERE page > ? AND page <= ? AND (`+condition+`)`, append([]any{after, last}, args...)...)
	return last, err
}

// SweepUnpublishedRulePages removes pages of rule state that an unfinished checkpoint left: those of generations above gen. It looks at
// some pages after one ("": at the first) and returns the last of them, "" when it is through.
func SweepUnpublishedRulePages(tx Tx, gen uint64, after string) (last string, err error) {
	return sweepPages(tx, after, `gen > ?`, int64(gen))
}

// replaced is the condition of the rows of rule_pages AS p that newer ones replace, up to a generation (three times its parameter), and that no
// kept snapshot has; gone that of rows which say that a page is gone where no older row is left for which they say it (one parameter).
const (
	replaced = `gen < ? AND EXISTS (SELECT 1 FROM rule_pages AS q WHERE q.page = p.page AND q.gen > p.gen AND q.gen <= ?) AND ` + ruleSnapshot + ` IS NULL`
	gone     = `gen <= ? AND body IS NULL AND NOT EXISTS (SELECT 1 FROM rule_pages AS q WHERE q.page = p.page AND q.gen < p.gen)`
)

// DropRulePages removes the versions of a page that the one of a generation replaces, but those of kept snapshots, and that one where it says that
// the page is gone and no other is left.
func DropRulePages(tx Tx, gen uint64, page string) error {
	g := int64(gen)
	if _, err := tx.Exec(`DELETE FROM rule_pages AS p WHERE page = ? AND `+replaced, page, g, g, g); err != nil {
		return err
	}
	_, err := tx.Exec(`DELETE FROM rule_pages AS p WHERE page = ? AND `+gone, page, g)
	return err
}

// SweepRulePages removes pages that newer ones replace, some at a time as SweepUnpublishedRulePages does, but those of kept snapshots.
func SweepRulePages(tx Tx, gen uint64, after string) (last string, err error) {
	g := int64(gen)
	if last, err = sweepPages(tx, after, replaced, g, g, g); err != nil || last == "" {
		return last, err
	}
	_, err = tx.Exec(`DELETE FROM rule_pages AS p WHERE page > ? AND page <= ? AND `+gone, after, last, g)
	return last, err
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

// SetSeenPage replaces the body of a page, if it is still there.
func SetSeenPage(tx Tx, p SeenPage) error {
	_, err := tx.Exec(`UPDATE seen_pages SET body = ? WHERE id = ?`, p.Body, p.ID)
	return err
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
