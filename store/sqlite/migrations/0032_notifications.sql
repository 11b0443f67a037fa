-- Notifications: channels to people, who is notified what, and what was notified of each alarm.

CREATE TABLE notification_channels (
    id           INTEGER PRIMARY KEY AUTOINCREMENT, -- the name of its secret holds it
    tenant_id    INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    token        TEXT    NOT NULL,
    name         TEXT,
    description  TEXT,
    channel_type TEXT    NOT NULL,
    config       TEXT,
    has_secret   INTEGER NOT NULL,
    enabled      INTEGER NOT NULL,
    metadata     TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX notification_channels_listed ON notification_channels (tenant_id, created_at DESC, token);

CREATE TABLE notification_policies (
    id                     INTEGER PRIMARY KEY AUTOINCREMENT, -- the ids of its rules hold it
    tenant_id              INTEGER NOT NULL,
    created_at             INTEGER NOT NULL,
    updated_at             INTEGER NOT NULL,
    token                  TEXT    NOT NULL,
    name                   TEXT,
    description            TEXT,
    device_type            TEXT, -- always NULL: policies are for the whole tenant
    throttle_seconds       INTEGER,
    escalate_after_seconds INTEGER,
    max_escalations        INTEGER,
    enabled                INTEGER NOT NULL,
    metadata               TEXT,
    rules                  TEXT    NOT NULL, -- JSON, as requests give them
    bound                  TEXT    NOT NULL, -- JSON: the same with their ids and the ids of their channels
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX notification_policies_listed ON notification_policies (tenant_id, created_at DESC, token);

CREATE TABLE notification_mutes (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id  INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    token      TEXT    NOT NULL,
    alarm_key  TEXT,
    device     TEXT,
    group_name TEXT,
    severity   TEXT,
    until      INTEGER NOT NULL,
    reason     TEXT,
    created_by TEXT    NOT NULL,
    held_back  INTEGER NOT NULL,
    ended_at   INTEGER,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX notification_mutes_listed ON notification_mutes (tenant_id, created_at DESC, token);

-- What was notified of an alarm. Rows end some days after their alarm was cleared.
CREATE TABLE notification_states (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id         INTEGER NOT NULL,
    alarm_token       TEXT    NOT NULL,
    alarm_key         TEXT    NOT NULL,
    device_id         INTEGER NOT NULL,
    severity          TEXT    NOT NULL,
    first_notified_at INTEGER,
    last_notified_at  INTEGER,
    notified          INTEGER,          -- last_notified_at in the time that a step of the clock does not change, microseconds
    notify_count      INTEGER NOT NULL,
    acknowledged_at   INTEGER,
    cleared_at        INTEGER,
    level             INTEGER NOT NULL, -- of escalation
    last_escalated_at INTEGER,
    alarm             TEXT    NOT NULL, -- JSON: as its newest move left it
    held_by           INTEGER,          -- row id of the mute that holds back what is to be notified
    UNIQUE (tenant_id, alarm_token)
) STRICT;
CREATE INDEX notification_states_open ON notification_states (tenant_id, notified) WHERE cleared_at IS NULL AND acknowledged_at IS NULL AND notified IS NOT NULL;
CREATE INDEX notification_states_cleared ON notification_states (cleared_at) WHERE cleared_at IS NOT NULL;
CREATE INDEX notification_states_held ON notification_states (held_by) WHERE held_by IS NOT NULL;
