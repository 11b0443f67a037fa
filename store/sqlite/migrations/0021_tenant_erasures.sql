-- Deleted tenants: how far the erase of what they had has come, and until when their tokens are reserved.

-- When the deletion of the tenant began; 0: it is not deleted.
ALTER TABLE tenants ADD COLUMN purge_epoch INTEGER NOT NULL DEFAULT 0;

CREATE TABLE tenant_erasures (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    removed_id   INTEGER NOT NULL UNIQUE, -- row id of the tenant
    token        TEXT    NOT NULL,
    epoch        INTEGER NOT NULL, -- when the deletion began
    actor        TEXT    NOT NULL, -- who deleted it
    erased_at    INTEGER,          -- since when nothing of it is left, its own row included
    completed_at INTEGER           -- since when its token is free again
) STRICT;
CREATE INDEX tenant_erasures_of_token ON tenant_erasures (token, epoch);

CREATE TABLE tenant_erasure_stores (
    erasure_id   INTEGER NOT NULL REFERENCES tenant_erasures (id),
    store        TEXT    NOT NULL,
    rows_erased  INTEGER NOT NULL,
    complete     INTEGER NOT NULL, -- the newest pass left nothing in it
    retaining    TEXT,             -- what keeps the rest
    last_error   TEXT,
    attempted_at INTEGER,          -- newest pass
    clean_since  INTEGER,          -- pass since which nothing was found in it
    PRIMARY KEY (erasure_id, store)
) STRICT, WITHOUT ROWID;
