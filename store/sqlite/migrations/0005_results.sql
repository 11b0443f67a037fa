-- What the log led to, besides the readings: the registry as of each offset, fates, dead letters, detections, presence.

-- What resolution reads. A row holds from from_offset on, up to but not including to_offset; null = in force.
CREATE TABLE view_rows (
    kind        TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    from_offset INTEGER NOT NULL,
    to_offset   INTEGER,
    body        BLOB    NOT NULL,
    PRIMARY KEY (kind, key, from_offset)
) WITHOUT ROWID;
CREATE INDEX view_rows_ended ON view_rows (to_offset) WHERE to_offset IS NOT NULL;

-- Messages and readings per tenant, door and UTC hour of receipt, under one heading each; received is a heading of its own.
CREATE TABLE ledger (
    tenant   TEXT    NOT NULL,
    door     TEXT    NOT NULL,
    hour     INTEGER NOT NULL, -- hours since the epoch
    heading  TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    messages INTEGER NOT NULL,
    readings INTEGER NOT NULL,
    PRIMARY KEY (tenant, hour, door, heading, reason)
) WITHOUT ROWID;

-- Spans for which door counts may be lost: from the last batch before an unclean end to the next start.
CREATE TABLE ledger_gaps (
    id        INTEGER PRIMARY KEY,
    from_time INTEGER NOT NULL, -- microseconds
    to_time   INTEGER NOT NULL
);

CREATE TABLE dead_letters (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant     TEXT    NOT NULL,
    occurred   INTEGER NOT NULL, -- receive time, microseconds
    kind       TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    summary    TEXT    NOT NULL,
    detail     TEXT,
    attempts   INTEGER NOT NULL,
    subject    TEXT,             -- device as named
    epoch      INTEGER NOT NULL,
    log_offset INTEGER NOT NULL, -- 0: it never entered the log
    stranger   INTEGER NOT NULL, -- belongs to the ring of those who verify as nobody
    bytes      INTEGER NOT NULL,
    record     BLOB              -- the whole record, or the sealed body of one that did not decode
);
CREATE UNIQUE INDEX dead_letters_place ON dead_letters (kind, epoch, log_offset) WHERE log_offset > 0;
CREATE INDEX dead_letters_tenant ON dead_letters (tenant, id);
CREATE INDEX dead_letters_ring ON dead_letters (stranger, id);
CREATE INDEX dead_letters_age ON dead_letters (occurred);

-- Detections, unique by edge id: a replayed edge finds itself here and does nothing.
CREATE TABLE edges (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    epoch      INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    idx        INTEGER NOT NULL,
    rule       TEXT    NOT NULL, -- stable id
    key        TEXT    NOT NULL,
    n          INTEGER NOT NULL,
    tenant_id  INTEGER NOT NULL,
    tenant     TEXT    NOT NULL,
    profile    TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    rule_token TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    signal     INTEGER NOT NULL,
    series     TEXT    NOT NULL,
    device_id  INTEGER NOT NULL,
    occurred   INTEGER NOT NULL,
    received   INTEGER NOT NULL,
    severity   TEXT    NOT NULL,
    value      REAL
);
CREATE UNIQUE INDEX edges_identity ON edges (log_offset, idx, rule, key, n, epoch);

-- Fires of a rule over its life, counted in the transaction of the edge.
CREATE TABLE rule_fires (
    tenant_id   INTEGER NOT NULL,
    rule        TEXT    NOT NULL, -- stable id
    fires       INTEGER NOT NULL,
    last_fired  INTEGER NOT NULL, -- event time, only ever forward
    last_signal INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, rule)
) WITHOUT ROWID;

-- Rule state in pages. A page with a generation above the current one is a head write that did not finish.
CREATE TABLE rule_pages (
    page      TEXT    NOT NULL,
    gen       INTEGER NOT NULL,
    tenant_id INTEGER NOT NULL,
    body      BLOB, -- null: the page is gone
    PRIMARY KEY (page, gen)
) WITHOUT ROWID;

-- What has been seen: packed hashes of altIds, and the last repeats of each client.
CREATE TABLE seen_pages (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    gen       INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    last_time INTEGER NOT NULL, -- newest receive time on the page, microseconds
    body      BLOB    NOT NULL
);
CREATE INDEX seen_pages_age ON seen_pages (kind, last_time);

-- One row per device. The columns of presence move at once, those of activity with the head; neither looks at the
-- other's, so that it does not matter which comes first.
CREATE TABLE device_states (
    device_id        INTEGER PRIMARY KEY,
    tenant_id        INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    last_activity    INTEGER, -- microseconds
    activity_source  TEXT    NOT NULL DEFAULT '',
    activity_listen  INTEGER NOT NULL DEFAULT 0, -- listening time at the last activity, nanoseconds
    presence_source  TEXT    NOT NULL DEFAULT 'INFERRED',
    source           TEXT    NOT NULL DEFAULT '', -- that last moved the presence
    presence_state   INTEGER NOT NULL DEFAULT 0,
    session          TEXT    NOT NULL DEFAULT '0', -- unsigned 64-bit
    presence_time    INTEGER,
    last_connect     INTEGER,
    last_disconnect  INTEGER
);
CREATE INDEX device_states_tenant ON device_states (tenant_id, device_id);
CREATE INDEX device_states_source ON device_states (source, device_id);
