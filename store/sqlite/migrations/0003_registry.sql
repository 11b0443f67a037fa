-- The registry: device types, device profiles with their versions, metric definitions, detection rules, devices and their
-- credentials. Row ids are never used twice (AUTOINCREMENT): history and view rows belong to them after a delete.
-- Times are microseconds since the epoch, booleans 0 and 1.

CREATE TABLE device_profiles (
    id                         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id                  INTEGER NOT NULL,
    created_at                 INTEGER NOT NULL,
    updated_at                 INTEGER NOT NULL,
    token                      TEXT    NOT NULL,
    name                       TEXT,
    description                TEXT,
    category                   TEXT,
    metadata                   TEXT,
    location                   TEXT,    -- declaration as JSON; '{}' = declared without expectations
    inactivity_timeout_seconds INTEGER,
    active_version             INTEGER, -- of device_profile_versions; NULL = never published
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX device_profiles_listed ON device_profiles (tenant_id, created_at DESC, token);

-- What a publish froze. Rows are never changed; they go with their profile.
CREATE TABLE device_profile_versions (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    INTEGER NOT NULL,
    profile_id   INTEGER NOT NULL REFERENCES device_profiles (id),
    version      INTEGER NOT NULL,
    label        TEXT,
    description  TEXT,
    published_at INTEGER NOT NULL,
    published_by TEXT,
    snapshot     TEXT    NOT NULL, -- registry.Snapshot as JSON, its format version first
    UNIQUE (profile_id, version)
) STRICT;

CREATE TABLE metric_definitions (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL,
    profile_id  INTEGER NOT NULL REFERENCES device_profiles (id),
    metric_key  TEXT    NOT NULL,
    name        TEXT,
    description TEXT,
    data_type   TEXT    NOT NULL,
    unit        TEXT,
    min_value   REAL,
    max_value   REAL,
    enum        TEXT, -- JSON array of strings
    descriptor  TEXT,
    metadata    TEXT,
    UNIQUE (tenant_id, token),
    UNIQUE (profile_id, metric_key)
) STRICT;
CREATE INDEX metric_definitions_listed ON metric_definitions (tenant_id, created_at DESC, token);

CREATE TABLE detection_rules (
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id            INTEGER NOT NULL,
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    token                TEXT    NOT NULL,
    profile_id           INTEGER NOT NULL REFERENCES device_profiles (id),
    name                 TEXT,
    description          TEXT,
    definition           TEXT    NOT NULL,
    authoring_graph      TEXT,
    enabled              INTEGER NOT NULL,
    metadata             TEXT,
    entity_group_token   TEXT,
    entity_group_version INTEGER,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX detection_rules_listed ON detection_rules (tenant_id, created_at DESC, token);
CREATE INDEX detection_rules_of_profile ON detection_rules (profile_id);

CREATE TABLE device_types (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id        INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    token            TEXT    NOT NULL,
    name             TEXT,
    description      TEXT,
    image_url        TEXT,
    icon             TEXT,
    background_color TEXT,
    foreground_color TEXT,
    border_color     TEXT,
    profile_id       INTEGER REFERENCES device_profiles (id),
    manufacturer     TEXT,
    model            TEXT,
    metadata         TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX device_types_listed ON device_types (tenant_id, created_at DESC, token);
CREATE INDEX device_types_of_profile ON device_types (profile_id);

CREATE TABLE devices (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL,
    external_id TEXT,
    name        TEXT,
    description TEXT,
    type_id     INTEGER NOT NULL REFERENCES device_types (id),
    metadata    TEXT,
    UNIQUE (tenant_id, token),
    UNIQUE (tenant_id, external_id)
) STRICT;
CREATE INDEX devices_listed ON devices (tenant_id, created_at DESC, token);
CREATE INDEX devices_of_type ON devices (type_id, created_at DESC, token);

-- How many devices a tenant has, so that the ceiling costs no count over all of them.
CREATE TABLE device_counts (
    tenant_id INTEGER PRIMARY KEY,
    devices   INTEGER NOT NULL
) STRICT;

CREATE TABLE device_credentials (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id       INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    token           TEXT    NOT NULL,
    device_id       INTEGER NOT NULL REFERENCES devices (id),
    credential_type TEXT    NOT NULL,
    id_hash         TEXT    NOT NULL, -- SHA-256 of the credential id in hex: what look-ups use
    id_sealed       TEXT    NOT NULL, -- the credential id, sealed with the root key, in base64
    value_hash      TEXT,             -- password as argon2id, PHC string
    enabled         INTEGER NOT NULL,
    expires_at      INTEGER,          -- NULL = never
    metadata        TEXT,
    UNIQUE (tenant_id, token),
    UNIQUE (tenant_id, credential_type, id_hash)
) STRICT;
CREATE INDEX device_credentials_of_device ON device_credentials (device_id);
CREATE INDEX device_credentials_listed ON device_credentials (tenant_id, coalesce(expires_at, 9223372036854775807) DESC, token);
