-- Checkpoints whose rule state is kept beside the current one, for previews: the last before each midnight (UTC). Rows of rule_pages that belong to
-- one of them stay.
CREATE TABLE rule_snapshots (
    gen        INTEGER PRIMARY KEY, -- generation of the checkpoint
    log_offset INTEGER NOT NULL,    -- up to which it holds every result
    received   INTEGER NOT NULL,    -- newest receive stamp there, microseconds
    listening  INTEGER NOT NULL     -- newest listening time there, nanoseconds
) STRICT;

-- What a kept snapshot has of each profile, so that it is noticed when a page is missing.
CREATE TABLE rule_snapshot_parts (
    gen       INTEGER NOT NULL REFERENCES rule_snapshots (gen) ON DELETE CASCADE,
    tenant_id INTEGER NOT NULL, -- 0: pages of all profiles
    profile   INTEGER NOT NULL, -- row id, 0: pages of all profiles
    pages     INTEGER NOT NULL, -- how many
    gens      INTEGER NOT NULL, -- sum of their generations
    PRIMARY KEY (gen, tenant_id, profile)
) STRICT, WITHOUT ROWID;
