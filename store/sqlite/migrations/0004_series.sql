-- Readings packed per series, events that are rows, and what was last known of each device.

-- The place in the log up to which readings are in chunks and blocks, and the generation of rows that readers may see.
CREATE TABLE series_head (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    head_offset INTEGER NOT NULL,
    generation  INTEGER NOT NULL
);

-- A series is a metric of a device. Ids come in groups of 512 that belong to one tenant, so that blocks of a tenant cover
-- narrow ranges of them.
CREATE TABLE series (
    id           INTEGER PRIMARY KEY,
    gen          INTEGER NOT NULL,
    tenant_id    INTEGER NOT NULL,
    device_id    INTEGER NOT NULL,
    device_token TEXT    NOT NULL,
    metric       TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,          -- receive time of the first reading, microseconds
    gone         INTEGER NOT NULL DEFAULT 0 -- generation since which the device is deleted; 0: it is not
);
CREATE UNIQUE INDEX series_device ON series (device_id, metric);
CREATE INDEX series_metric ON series (tenant_id, metric);
CREATE INDEX series_gen ON series (gen);
CREATE INDEX series_gone ON series (gone) WHERE gone <> 0;

-- Some hundreds of readings of one series in one UTC day. The columns before data are their summary.
CREATE TABLE series_chunks (
    id           INTEGER PRIMARY KEY,
    gen          INTEGER NOT NULL,
    tenant_id    INTEGER NOT NULL,
    series       INTEGER NOT NULL,
    anchors      INTEGER NOT NULL,
    profile      INTEGER NOT NULL,
    first_at     INTEGER NOT NULL, -- event time, microseconds
    last_at      INTEGER NOT NULL,
    n            INTEGER NOT NULL,
    total        REAL    NOT NULL,
    low          REAL    NOT NULL,
    high         REAL    NOT NULL,
    first_offset INTEGER NOT NULL,
    last_offset  INTEGER NOT NULL,
    source       TEXT    NOT NULL,
    unit         TEXT    NOT NULL,
    data_type    TEXT    NOT NULL,
    data         BLOB    NOT NULL
);
-- A row's times lie in one day, so that its last time bounds its first. Both indexes answer counts by themselves.
CREATE INDEX series_chunks_series ON series_chunks (series, last_at, id, first_at, n, gen, anchors);
CREATE INDEX series_chunks_tenant ON series_chunks (tenant_id, last_at, id, first_at, n, gen, anchors);
CREATE INDEX series_chunks_anchors ON series_chunks (anchors, last_at) WHERE anchors <> 0;
CREATE INDEX series_chunks_gen ON series_chunks (gen);

-- Short runs of many series of one tenant in one UTC day. grp is series / 512: a look-up is one narrow range.
CREATE TABLE series_blocks (
    id           INTEGER PRIMARY KEY,
    gen          INTEGER NOT NULL,
    tenant_id    INTEGER NOT NULL,
    grp          INTEGER NOT NULL,
    min_series   INTEGER NOT NULL,
    max_series   INTEGER NOT NULL,
    first_at     INTEGER NOT NULL,
    last_at      INTEGER NOT NULL,
    n            INTEGER NOT NULL, -- readings
    runs         INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    last_offset  INTEGER NOT NULL,
    anchored     INTEGER NOT NULL, -- 1 when a run has an anchor set
    data         BLOB    NOT NULL
);
CREATE INDEX series_blocks_grp ON series_blocks (grp, last_at, id, first_at, n, gen);
CREATE INDEX series_blocks_tenant ON series_blocks (tenant_id, last_at, id, first_at, n, gen);
CREATE INDEX series_blocks_gen ON series_blocks (gen);

-- The newest measurement of each series by event time.
CREATE TABLE latest_measurements (
    series      INTEGER PRIMARY KEY,
    value       REAL    NOT NULL,
    classifier  INTEGER,
    unit        TEXT    NOT NULL,
    data_type   TEXT    NOT NULL,
    occurred_at INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
);

-- The newest position of each device by event time. A null coordinate was not reported.
CREATE TABLE latest_locations (
    device_id    INTEGER PRIMARY KEY,
    tenant_id    INTEGER NOT NULL,
    device_token TEXT    NOT NULL,
    latitude     REAL,
    longitude    REAL,
    elevation    REAL,
    accuracy     REAL,
    speed        REAL,
    heading      REAL,
    occurred_at  INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
);

-- Events that are a row each: locations, alerts, state changes, relationships. type has the numbers of the API.
CREATE TABLE row_events (
    id           INTEGER PRIMARY KEY,
    tenant_id    INTEGER NOT NULL,
    device_id    INTEGER NOT NULL,
    device_token TEXT    NOT NULL,
    type         INTEGER NOT NULL,
    log_offset   INTEGER NOT NULL,
    idx          INTEGER NOT NULL, -- in the record
    source       TEXT    NOT NULL,
    alt_id       TEXT    NOT NULL,
    anchors      INTEGER NOT NULL,
    occurred_at  INTEGER NOT NULL,
    received_at  INTEGER NOT NULL,
    latitude     REAL,
    longitude    REAL,
    elevation    REAL,
    accuracy     REAL,
    speed        REAL,
    heading      REAL,
    kind         TEXT,    -- of an alert
    level        INTEGER,
    message      TEXT,
    origin       TEXT,    -- an alert's source
    state        INTEGER, -- of a state change
    reason       TEXT,
    session      TEXT     -- unsigned 64 bits
);
CREATE UNIQUE INDEX row_events_place ON row_events (log_offset, idx);
CREATE INDEX row_events_tenant ON row_events (tenant_id, type, occurred_at, log_offset, idx);
CREATE INDEX row_events_device ON row_events (device_id, type, occurred_at, log_offset, idx);
