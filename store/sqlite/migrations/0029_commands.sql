-- Commands for devices, batches of them, and how many there are.

CREATE TABLE commands (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    token        TEXT    NOT NULL,
    device_id    INTEGER NOT NULL,
    device       TEXT    NOT NULL, -- token
    name         TEXT    NOT NULL,
    payload      TEXT,
    metadata     TEXT,
    state        TEXT    NOT NULL,
    queued_at    INTEGER NOT NULL,
    sent_at      INTEGER,
    delivered_at INTEGER,
    responded_at INTEGER,
    expires_at   INTEGER NOT NULL,
    response     TEXT,
    error        TEXT,
    batch_id     INTEGER NOT NULL, -- 0 for none
    batch        TEXT    NOT NULL, -- token, '' for none
    nonce        TEXT    NOT NULL, -- of the newest dispatch, '' before the first
    earlier      TEXT    NOT NULL, -- nonces before it that may still be answered, with spaces between
    awaits       TEXT    NOT NULL, -- carrier that owes the end of the newest dispatch, '' for none
    attempts     INTEGER NOT NULL,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX commands_listed ON commands (tenant_id, created_at DESC, token);
CREATE INDEX commands_of_device ON commands (device_id, created_at DESC, token);
CREATE INDEX commands_of_batch ON commands (batch_id, id) WHERE batch_id > 0;
CREATE INDEX commands_waiting ON commands (device_id, id) WHERE state IN ('QUEUED', 'HELD', 'PARKED');
CREATE INDEX commands_by_state ON commands (state, id) WHERE state IN ('QUEUED', 'HELD', 'PARKED');
CREATE INDEX commands_due ON commands (expires_at) WHERE state IN ('QUEUED', 'HELD', 'PARKED', 'SENT');
CREATE INDEX commands_awaiting ON commands (awaits, sent_at) WHERE state = 'SENT' AND awaits <> '';
CREATE INDEX commands_awaited_of ON commands (device_id) WHERE state = 'SENT' AND awaits <> '';
CREATE INDEX commands_ended ON commands (updated_at) WHERE state NOT IN ('QUEUED', 'HELD', 'PARKED', 'SENT');

-- How many commands of a tenant are in a state that is not final.
CREATE TABLE command_counts (
    tenant_id INTEGER NOT NULL,
    state     TEXT    NOT NULL,
    n         INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE command_batches (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id        INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    token            TEXT    NOT NULL,
    metadata         TEXT,
    name             TEXT    NOT NULL,
    payload          TEXT,
    target_kind      TEXT    NOT NULL,
    group_token      TEXT,
    group_version    INTEGER,
    allow_partial    INTEGER NOT NULL,
    resolved         INTEGER NOT NULL,
    accepted         INTEGER NOT NULL,
    refusals         TEXT    NOT NULL, -- JSON
    refusal_counts   TEXT    NOT NULL, -- JSON
    cancelled_at     INTEGER,
    cancelled        INTEGER NOT NULL,
    expires_at       INTEGER NOT NULL,
    max_per_minute   INTEGER NOT NULL, -- 0: no pace
    stop_percent     REAL    NOT NULL, -- 0: never
    state            TEXT    NOT NULL,
    stopped_at       INTEGER,
    stop_reason      TEXT    NOT NULL,
    succeeded        INTEGER NOT NULL,
    failed           INTEGER NOT NULL,
    succeeded_before INTEGER NOT NULL, -- when it was resumed
    failed_before    INTEGER NOT NULL,
    released_to      INTEGER NOT NULL, -- row id of the newest command whose turn has come
    next_at          INTEGER NOT NULL,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX command_batches_listed ON command_batches (tenant_id, created_at DESC, token);
CREATE INDEX command_batches_paced ON command_batches (id) WHERE state = 'RUNNING' AND max_per_minute > 0 AND released_to < 9223372036854775807;
CREATE INDEX command_batches_unmade ON command_batches (id) WHERE state = 'MAKING';
CREATE INDEX command_batches_cancelling ON command_batches (id) WHERE state = 'CANCELLING';
