-- The sets of entities that devices belonged to, numbered in the order in which events bore them first. Chunks, blocks and
-- events refer to the number. members is JSON of the anchors in their one order.
CREATE TABLE anchor_sets (
    id        INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    members   TEXT NOT NULL,
    UNIQUE (tenant_id, members)
);

CREATE TABLE anchor_set_members (
    tenant_id INTEGER NOT NULL,
    type      TEXT NOT NULL,
    token     TEXT NOT NULL,
    set_id    INTEGER NOT NULL REFERENCES anchor_sets (id) ON DELETE CASCADE,
    PRIMARY KEY (tenant_id, type, token, set_id)
) WITHOUT ROWID;

CREATE INDEX anchor_set_members_set ON anchor_set_members (set_id);

-- When the record that ended the row was received; null while it is effective, and in rows that an earlier version has ended.
ALTER TABLE view_rows ADD COLUMN ended_at INTEGER;
