-- Alarms, what contributes to them, and their history; and what rules order to be done outside.

CREATE TABLE alarms (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id       INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    token           TEXT    NOT NULL,
    device_id       INTEGER NOT NULL,
    device          TEXT    NOT NULL, -- token
    alarm_key       TEXT    NOT NULL,
    metric_key      TEXT    NOT NULL, -- '' for none
    state           TEXT    NOT NULL,
    severity        TEXT    NOT NULL,
    raised_at       INTEGER NOT NULL,
    cleared_at      INTEGER,
    acknowledged_at INTEGER,
    acknowledged_by TEXT    NOT NULL, -- '' for nobody
    last_value      REAL,
    moves           INTEGER NOT NULL, -- events so far
    log_offset      INTEGER NOT NULL, -- of the newest move that came from the log
    UNIQUE (tenant_id, token),
    UNIQUE (device_id, alarm_key)
) STRICT;
CREATE INDEX alarms_listed ON alarms (tenant_id, created_at DESC, token);
CREATE INDEX alarms_cleared ON alarms (tenant_id, state, log_offset, id);

-- What contributes to an alarm now: rules that are raised. An alarm with none is cleared.
CREATE TABLE alarm_contributors (
    alarm_id   INTEGER NOT NULL REFERENCES alarms (id),
    rule       TEXT    NOT NULL, -- stable id
    tenant_id  INTEGER NOT NULL,
    severity   TEXT    NOT NULL,
    epoch      INTEGER NOT NULL, -- of the edge
    log_offset INTEGER NOT NULL,
    idx        INTEGER NOT NULL,
    PRIMARY KEY (alarm_id, rule)
) STRICT, WITHOUT ROWID;
CREATE INDEX alarm_contributors_of_tenant ON alarm_contributors (tenant_id);

-- Each move of an alarm, with what the alarm was after it: it is read when the alarm is gone with its device.
CREATE TABLE alarm_events (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id       INTEGER NOT NULL,
    token           TEXT    NOT NULL, -- of the alarm
    number          INTEGER NOT NULL, -- of the alarm's events, from 1
    at              INTEGER NOT NULL, -- receive time of the record, or when the operator acted
    occurred        INTEGER NOT NULL, -- stamp of the edge, or when the operator acted
    move            TEXT    NOT NULL,
    severity        TEXT    NOT NULL,
    severity_before TEXT    NOT NULL, -- '' but for the moves of severity
    state           TEXT    NOT NULL,
    acknowledged    INTEGER NOT NULL,
    acknowledged_by TEXT    NOT NULL,
    last_value      REAL,
    raised_at       INTEGER NOT NULL,
    device_id       INTEGER NOT NULL,
    device          TEXT    NOT NULL,
    alarm_key       TEXT    NOT NULL,
    metric_key      TEXT    NOT NULL,
    UNIQUE (tenant_id, token, number)
) STRICT;
CREATE INDEX alarm_events_by_time ON alarm_events (at);

-- What rules order: written with the edge, removed once it is done.
CREATE TABLE outbox (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id  INTEGER NOT NULL,
    idem_key   TEXT    NOT NULL UNIQUE,
    kind       TEXT    NOT NULL,
    device_id  INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    occurred   INTEGER NOT NULL, -- stamp of the edge
    received   INTEGER NOT NULL, -- receive time of its record, microseconds
    expires_at INTEGER,
    body       TEXT    NOT NULL  -- JSON
) STRICT;
CREATE INDEX outbox_of_tenant ON outbox (tenant_id, id);

-- The offset up to which contributions are folded and orders written: a replay adds only what follows.
ALTER TABLE edge_progress ADD COLUMN acted_offset INTEGER NOT NULL DEFAULT 0;
UPDATE edge_progress SET acted_offset = log_offset;

-- Actions that were left out because their edges were too old.
ALTER TABLE rule_fires ADD COLUMN stale INTEGER NOT NULL DEFAULT 0;
