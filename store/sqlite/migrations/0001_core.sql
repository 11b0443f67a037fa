-- Core of the store: figures of the instance, changes that wait for their place in the log, secrets, the audit journal.
-- Times are microseconds since 1970 in UTC.

CREATE TABLE meta (
    key    TEXT PRIMARY KEY,
    value  BLOB,
    number INTEGER
) WITHOUT ROWID;

-- Changes of meaning on their way into the log. A sequence is never used again: the last one is kept in meta.
CREATE TABLE control (
    sequence INTEGER NOT NULL,
    part     INTEGER NOT NULL,
    parts    INTEGER NOT NULL,
    body     BLOB NOT NULL,
    PRIMARY KEY (sequence, part)
);

-- tenant_id is 0 in the scope of the instance.
CREATE TABLE secrets (
    id          INTEGER PRIMARY KEY,
    tenant_id   INTEGER NOT NULL,
    scope       TEXT NOT NULL,
    name        TEXT NOT NULL,
    ciphertext  BLOB NOT NULL,
    nonce       BLOB NOT NULL,
    wrapped_key BLOB NOT NULL,
    kek_version INTEGER NOT NULL,
    alg         TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
);
CREATE UNIQUE INDEX secrets_name ON secrets (tenant_id, scope, name);

-- Append-only. tenant_id is 0 for what concerns the instance. AUTOINCREMENT: retention must not free an id.
CREATE TABLE audit_events (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id     INTEGER NOT NULL,
    occurred_at   INTEGER NOT NULL,
    category      TEXT NOT NULL,
    operation     TEXT NOT NULL,
    actor         TEXT NOT NULL,
    table_name    TEXT,
    entity_pk     TEXT,
    entity_label  TEXT,
    rows_affected INTEGER NOT NULL
);
CREATE INDEX audit_events_tenant ON audit_events (tenant_id, occurred_at, id);
CREATE INDEX audit_events_time ON audit_events (occurred_at, id);
