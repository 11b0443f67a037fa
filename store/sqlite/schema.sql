-- What the migrations make of an empty database; sum 57b62161b23b3333acaadacf039baf345ac0a44a006ff2d2cab26c98b7956e0e
CREATE TABLE ai_function_models (
    tenant_id   INTEGER NOT NULL REFERENCES tenants (id),
    function    TEXT    NOT NULL,
    provider_id INTEGER NOT NULL REFERENCES ai_providers (id) ON DELETE CASCADE,
    PRIMARY KEY (tenant_id, function)
) STRICT, WITHOUT ROWID;
CREATE TABLE ai_providers (
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- the name of its secret holds it
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL UNIQUE,
    name        TEXT,
    description TEXT,
    kind        TEXT    NOT NULL,
    endpoint    TEXT,
    model       TEXT    NOT NULL,
    params      TEXT,
    enabled     INTEGER NOT NULL,
    has_secret  INTEGER NOT NULL
) STRICT;
CREATE TABLE ai_tenant_grants (
    tenant_id   INTEGER NOT NULL REFERENCES tenants (id),
    provider_id INTEGER NOT NULL REFERENCES ai_providers (id),
    PRIMARY KEY (tenant_id, provider_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE ai_tier_grants (
    tier_id     INTEGER NOT NULL REFERENCES tenant_tiers (id) ON DELETE CASCADE,
    provider_id INTEGER NOT NULL REFERENCES ai_providers (id),
    is_default  INTEGER NOT NULL, -- of at most one
    PRIMARY KEY (tier_id, provider_id)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE anchor_set_members (
    tenant_id INTEGER NOT NULL,
    type      TEXT NOT NULL,
    token     TEXT NOT NULL,
    set_id    INTEGER NOT NULL REFERENCES anchor_sets (id) ON DELETE CASCADE,
    PRIMARY KEY (tenant_id, type, token, set_id)
) WITHOUT ROWID;
CREATE TABLE anchor_sets (
    id        INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    members   TEXT NOT NULL,
    UNIQUE (tenant_id, members)
);
CREATE TABLE area_types (
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
    metadata         TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE areas (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL,
    name        TEXT,
    description TEXT,
    type_id     INTEGER NOT NULL REFERENCES area_types (id),
    metadata    TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE artifact_parts (
    body      INTEGER NOT NULL,
    n         INTEGER NOT NULL, -- from 0; each but the last has the same size
    tenant_id INTEGER NOT NULL,
    data      BLOB    NOT NULL,
    PRIMARY KEY (body, n)
) STRICT, WITHOUT ROWID;
CREATE TABLE artifacts (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id  INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    token      TEXT    NOT NULL,
    name       TEXT    NOT NULL, -- '' for none
    version    TEXT    NOT NULL, -- '' for none
    sha256     TEXT    NOT NULL, -- of the bytes, lower-case hexadecimal
    bytes      INTEGER NOT NULL,
    body       INTEGER NOT NULL, -- random
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE asset_types (
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
    metadata         TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE assets (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL,
    name        TEXT,
    description TEXT,
    type_id     INTEGER NOT NULL REFERENCES asset_types (id),
    metadata    TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE attribute_keys_in_use (
    tenant_id INTEGER NOT NULL,
    key       TEXT    NOT NULL, through INTEGER NOT NULL DEFAULT 9223372036854775807,
    PRIMARY KEY (tenant_id, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE attributes (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    entity_type  TEXT    NOT NULL,
    entity_id    INTEGER NOT NULL,
    scope        TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    value_type   TEXT    NOT NULL,
    text_value   TEXT,
    number_value REAL,
    literal      TEXT,
    UNIQUE (tenant_id, entity_type, entity_id, scope, key)
) STRICT;
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
CREATE TABLE caused_changes (
    log_offset INTEGER PRIMARY KEY,
    reason     TEXT NOT NULL, -- why it was refused; empty: it was not
    why        TEXT NOT NULL,
    views      BLOB           -- what it changed of the metadata view
) STRICT;
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
CREATE TABLE command_counts (
    tenant_id INTEGER NOT NULL,
    state     TEXT    NOT NULL,
    n         INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, state)
) STRICT, WITHOUT ROWID;
CREATE TABLE command_definitions (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id        INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    token            TEXT    NOT NULL,
    profile_id       INTEGER NOT NULL REFERENCES device_profiles (id),
    command_key      TEXT    NOT NULL,
    name             TEXT,
    description      TEXT,
    parameter_schema TEXT, -- JSON array, see registry/parameter; NULL = any payload
    metadata         TEXT,
    UNIQUE (tenant_id, token),
    UNIQUE (profile_id, command_key)
) STRICT;
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
    attempts     INTEGER NOT NULL, progress TEXT NOT NULL DEFAULT '',
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE connector_versions (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    INTEGER NOT NULL,
    connector_id INTEGER NOT NULL REFERENCES connectors (id),
    version      INTEGER NOT NULL,
    label        TEXT,
    description  TEXT,
    published_at INTEGER NOT NULL,
    published_by TEXT,
    snapshot     TEXT    NOT NULL,
    UNIQUE (connector_id, version)
) STRICT;
CREATE TABLE connectors (
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- the name of its secret holds it
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL,
    name        TEXT,
    description TEXT,
    type        TEXT    NOT NULL,
    config      TEXT    NOT NULL,
    has_secret  INTEGER NOT NULL,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE control (
    sequence INTEGER NOT NULL,
    part     INTEGER NOT NULL,
    parts    INTEGER NOT NULL,
    body     BLOB NOT NULL,
    PRIMARY KEY (sequence, part)
);
CREATE TABLE customer_types (
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
    metadata         TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE customers (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL,
    name        TEXT,
    description TEXT,
    type_id     INTEGER NOT NULL REFERENCES customer_types (id),
    metadata    TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE dashboard_versions (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    INTEGER NOT NULL,
    dashboard_id INTEGER NOT NULL REFERENCES dashboards (id),
    version      INTEGER NOT NULL,
    label        TEXT,
    description  TEXT,
    published_at INTEGER NOT NULL,
    published_by TEXT,
    snapshot     TEXT    NOT NULL,
    UNIQUE (dashboard_id, version)
) STRICT;
CREATE TABLE dashboards (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL,
    name        TEXT,
    description TEXT,
    definition  TEXT    NOT NULL,
    UNIQUE (tenant_id, token)
) STRICT;
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
, closed INTEGER NOT NULL DEFAULT 0, correlation TEXT, reference   TEXT);
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
    entity_group_version INTEGER, placement TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE device_claims (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id       INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    device_id       INTEGER NOT NULL UNIQUE REFERENCES devices (id),
    status          TEXT    NOT NULL,
    secret_hash     TEXT    NOT NULL, -- as argon2id, PHC string
    failures        INTEGER NOT NULL,
    expires_at      INTEGER,
    claimed_at      INTEGER,
    customer_id     INTEGER, -- who has claimed it; the customer may be gone
    relationship_id INTEGER  -- of the ownership; it may be gone
) STRICT;
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
    metadata        TEXT, unused INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant_id, token),
    UNIQUE (tenant_id, credential_type, id_hash)
) STRICT;
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
    active_version             INTEGER, lwm2m TEXT, managed_by TEXT, -- of device_profile_versions; NULL = never published
    UNIQUE (tenant_id, token)
) STRICT;
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
    metadata         TEXT, managed_by TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
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
    metadata    TEXT, managed_by TEXT,
    UNIQUE (tenant_id, token),
    UNIQUE (tenant_id, external_id)
) STRICT;
CREATE TABLE edge_blocks (
    id         INTEGER PRIMARY KEY,
    n          INTEGER NOT NULL,
    tenant_id  INTEGER NOT NULL,
    log_offset INTEGER NOT NULL, -- highest
    first_at   INTEGER NOT NULL, -- event times, microseconds
    last_at    INTEGER NOT NULL,
    received   INTEGER NOT NULL, -- newest receive time, microseconds
    rules      INTEGER NOT NULL, -- bits of profiles, rules, severities and signals
    sources    INTEGER NOT NULL, -- bits of devices and of the tokens of devices and anchors
    data       BLOB    NOT NULL
);
CREATE TABLE edge_installs (
    device_id   INTEGER NOT NULL, -- as which it signs in
    install     TEXT    NOT NULL, -- random id of the installation
    tenant_id   INTEGER NOT NULL,
    machine     TEXT    NOT NULL, -- hash of the machine on which it was heard first, '' for none
    hello       TEXT    NOT NULL, -- JSON: what it said last, see internal/edgewire
    gaps        TEXT    NOT NULL, -- JSON: ranges of numbers that are nowhere any more
    copied_at   INTEGER NOT NULL, -- when a copy of it was noticed; 0: never
    replaced_at INTEGER NOT NULL, -- when it came in the place of another installation; 0: it did not
    gap_at      INTEGER NOT NULL, -- when gaps were noticed last; 0: never
    first_at    INTEGER NOT NULL,
    heard_at    INTEGER NOT NULL, carried TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (device_id, install)
) STRICT, WITHOUT ROWID;
CREATE TABLE edge_progress (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    log_offset INTEGER NOT NULL,
    last_edge  INTEGER NOT NULL -- newest id of a detection
, acted_offset INTEGER NOT NULL DEFAULT 0);
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
CREATE TABLE edges_of_sites (
    id                    INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id             INTEGER NOT NULL,
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    token                 TEXT    NOT NULL,
    name                  TEXT,
    description           TEXT,
    device_id             INTEGER NOT NULL REFERENCES devices (id),
    group_id              INTEGER REFERENCES entity_groups (id),
    auto_register_type_id INTEGER REFERENCES device_types (id),
    enabled               INTEGER NOT NULL,
    metadata              TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE entity_group_versions (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    INTEGER NOT NULL,
    group_id     INTEGER NOT NULL REFERENCES entity_groups (id),
    version      INTEGER NOT NULL,
    label        TEXT,
    description  TEXT,
    published_at INTEGER NOT NULL,
    published_by TEXT,
    snapshot     TEXT    NOT NULL,
    UNIQUE (group_id, version)
) STRICT;
CREATE TABLE entity_groups (
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
    metadata         TEXT,
    member_type      TEXT    NOT NULL, -- device, asset, area, customer
    membership_mode  TEXT    NOT NULL, -- static, dynamic
    selector         TEXT,             -- of a dynamic group
    active_version   INTEGER,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE entity_relationship_types (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL,
    name        TEXT,
    description TEXT,
    metadata    TEXT,
    tracked     INTEGER NOT NULL, -- those of a device are anchors of its events
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE entity_relationships (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    token        TEXT    NOT NULL,
    source_type  TEXT    NOT NULL, -- device, asset, area, customer, group
    source_token TEXT    NOT NULL,
    source_id    INTEGER NOT NULL,
    target_type  TEXT    NOT NULL,
    target_token TEXT    NOT NULL,
    target_id    INTEGER NOT NULL,
    type_id      INTEGER NOT NULL REFERENCES entity_relationship_types (id),
    metadata     TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE facet_keys (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    member_type TEXT    NOT NULL, -- device, asset, area, customer
    key         TEXT    NOT NULL,
    value_type  TEXT    NOT NULL,
    source      TEXT    NOT NULL, -- attribute; system: reserved
    vocabulary  TEXT    NOT NULL, -- JSON array of strings
    label       TEXT,
    UNIQUE (tenant_id, member_type, key)
) STRICT;
CREATE TABLE geofence_sets (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    INTEGER NOT NULL,
    from_version INTEGER NOT NULL,
    to_version   INTEGER,
    token        TEXT    NOT NULL,
    positions    INTEGER NOT NULL,
    geometry     TEXT    NOT NULL,
    UNIQUE (tenant_id, from_version)
) STRICT;
CREATE TABLE geofences (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL,
    name        TEXT,
    description TEXT,
    metadata    TEXT,
    geometry    TEXT    NOT NULL, managed_by TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE http_secrets (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id  INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    token      TEXT    NOT NULL,
    hosts      TEXT    NOT NULL, -- JSON array of host:port
    use        TEXT    NOT NULL, -- BEARER, SIGNATURE
    has_secret INTEGER NOT NULL,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE identities (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    email         TEXT    NOT NULL UNIQUE, -- lower case
    password_hash TEXT    NOT NULL,        -- argon2id, PHC string
    first_name    TEXT,
    last_name     TEXT,
    enabled       INTEGER NOT NULL,
    not_before    INTEGER NOT NULL
) STRICT;
CREATE TABLE identity_roles (
    identity_id INTEGER NOT NULL REFERENCES identities (id),
    role_id     INTEGER NOT NULL REFERENCES roles (id),
    PRIMARY KEY (identity_id, role_id)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE latest_measurements (
    series      INTEGER PRIMARY KEY,
    value       REAL    NOT NULL,
    classifier  INTEGER,
    unit        TEXT    NOT NULL,
    data_type   TEXT    NOT NULL,
    occurred_at INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
, range_mark INTEGER NOT NULL DEFAULT 0);
CREATE TABLE "ledger" (
    tenant   TEXT    NOT NULL,
    hour     INTEGER NOT NULL, -- hours since the epoch
    source   TEXT    NOT NULL, -- event source
    door     TEXT    NOT NULL, -- transport of the source
    heading  TEXT    NOT NULL, -- outcome; received is one of its own
    reason   TEXT    NOT NULL,
    messages INTEGER NOT NULL,
    readings INTEGER NOT NULL,
    PRIMARY KEY (tenant, hour, source, door, heading, reason)
) WITHOUT ROWID;
CREATE TABLE ledger_gaps (
    id        INTEGER PRIMARY KEY,
    from_time INTEGER NOT NULL, -- microseconds
    to_time   INTEGER NOT NULL
);
CREATE TABLE listening_spans (
    id         INTEGER PRIMARY KEY,
    tenant_id  INTEGER NOT NULL, -- 0: the time of the transports together, from which that of a tenant follows
    link       TEXT    NOT NULL, -- through which a tenant's devices were heard; '' for the transports together
    log_offset INTEGER NOT NULL, -- of the record before which it is so
    received   INTEGER NOT NULL, -- receive stamp of that record, microseconds
    boot       INTEGER NOT NULL, -- start of the process that received it
    listening  INTEGER NOT NULL, -- of the transports together, nanoseconds
    slope      INTEGER NOT NULL, -- tenant 0: how much of it passes with the receive stamp (0, 1, 2); otherwise 1, 0 while it stands still
    lag        INTEGER NOT NULL, -- by how much that of the tenant is less there, nanoseconds
    UNIQUE (tenant_id, link, log_offset, listening, slope)
) STRICT;
CREATE TABLE lwm2m_firmware (
    device_id  INTEGER PRIMARY KEY,
    tenant_id  INTEGER NOT NULL,
    command    TEXT    NOT NULL, -- token
    nonce      TEXT    NOT NULL, -- of the dispatch
    expires_at INTEGER NOT NULL, -- of the command
    artifact   TEXT    NOT NULL, -- token
    body       INTEGER NOT NULL,
    phase      TEXT    NOT NULL,
    pull       INTEGER NOT NULL, -- the device fetches it
    secret     TEXT    NOT NULL, -- last part of the path at which it does
    before     TEXT    NOT NULL, -- firmware version of the device before the update
    began_at   INTEGER NOT NULL, -- the transfer; 0: it waits for its turn
    updated_at INTEGER NOT NULL  -- the device was ordered to apply it; 0: not yet
) STRICT;
CREATE TABLE lwm2m_minted (
    credential_id INTEGER PRIMARY KEY,
    tenant_id     INTEGER NOT NULL,
    device_id     INTEGER NOT NULL,
    made_at       INTEGER NOT NULL,
    used_at       INTEGER NOT NULL -- 0: no device has registered with it yet
) STRICT;
CREATE TABLE lwm2m_observations (
    device_id INTEGER NOT NULL,
    token     BLOB    NOT NULL,
    tenant_id INTEGER NOT NULL,
    paths     TEXT    NOT NULL, -- separated by spaces; several of a composite observation
    settings  TEXT    NOT NULL, -- JSON: how it was asked for
    session   TEXT    NOT NULL, -- name of the session in which the device agreed to it, '' before
    number    INTEGER NOT NULL, -- of the newest notification that was stored
    heard_at  INTEGER NOT NULL, -- of that notification; 0: none
    value_at  INTEGER NOT NULL, -- of the newest value; 0: none
    PRIMARY KEY (device_id, token)
) STRICT, WITHOUT ROWID;
CREATE TABLE lwm2m_registrations (
    device_id     INTEGER PRIMARY KEY,
    tenant_id     INTEGER NOT NULL,
    credential_id INTEGER NOT NULL,
    location      TEXT    NOT NULL, -- '' after the end of the registration
    endpoint      TEXT    NOT NULL,
    version       TEXT    NOT NULL,
    binding       TEXT    NOT NULL,
    queue         INTEGER NOT NULL,
    lifetime      INTEGER NOT NULL, -- seconds
    links         TEXT    NOT NULL, -- in link format
    session       INTEGER NOT NULL, -- of its presence
    registered_at INTEGER NOT NULL,
    heard_at      INTEGER NOT NULL,
    harvested_at  INTEGER NOT NULL -- 0: never
) STRICT;
CREATE TABLE lwm2m_sessions (
    device_id     INTEGER PRIMARY KEY,
    tenant_id     INTEGER NOT NULL,
    credential_id INTEGER NOT NULL,
    name          TEXT    NOT NULL, -- of the session among those of the device
    form          INTEGER NOT NULL, -- of state
    state         BLOB    NOT NULL, -- sealed with the root key, bound to the data directory
    bound         INTEGER NOT NULL, -- record number
    received      INTEGER NOT NULL, -- records of the device below this number are no longer taken
    address       TEXT    NOT NULL, -- newest of the device
    heard_at      INTEGER NOT NULL
) STRICT;
CREATE TABLE membership_roles (
    membership_id INTEGER NOT NULL REFERENCES memberships (id),
    role_id       INTEGER NOT NULL REFERENCES roles (id),
    PRIMARY KEY (membership_id, role_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE memberships (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    tenant_id   INTEGER NOT NULL REFERENCES tenants (id),
    identity_id INTEGER NOT NULL REFERENCES identities (id),
    enabled     INTEGER NOT NULL,
    not_before  INTEGER NOT NULL,
    UNIQUE (identity_id, tenant_id)
) STRICT;
CREATE TABLE meta (
    key    TEXT PRIMARY KEY,
    value  BLOB,
    number INTEGER
) WITHOUT ROWID;
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
    metadata    TEXT, out_of_range TEXT NOT NULL DEFAULT 'REFUSE', source_names TEXT NOT NULL DEFAULT '[]',
    UNIQUE (tenant_id, token),
    UNIQUE (profile_id, metric_key)
) STRICT;
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
CREATE TABLE oauth_clients (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    client_id     TEXT    NOT NULL UNIQUE,
    name          TEXT,
    description   TEXT,
    enabled       INTEGER NOT NULL,
    redirect_uris TEXT    NOT NULL, -- JSON array of strings
    scopes        TEXT    NOT NULL, -- likewise
    secret_hash   TEXT              -- SHA-256 in hexadecimal digits; NULL: a public client
) STRICT;
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
, target   TEXT    NOT NULL DEFAULT '', attempts INTEGER NOT NULL DEFAULT 0, due_at   INTEGER NOT NULL DEFAULT 0, error    TEXT    NOT NULL DEFAULT '') STRICT;
CREATE TABLE provisioning_profiles (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id       INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    token           TEXT    NOT NULL,
    name            TEXT,
    description     TEXT,
    provision_key   TEXT    NOT NULL UNIQUE, -- in the instance: it selects the tenant
    secret_hash     TEXT    NOT NULL,        -- as argon2id, PHC string
    strategy        TEXT    NOT NULL,
    device_type_id  INTEGER NOT NULL REFERENCES device_types (id),
    credential_type TEXT    NOT NULL,
    enabled         INTEGER NOT NULL,
    expires_at      INTEGER,
    metadata        TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE TABLE refresh_sessions (
    id           INTEGER PRIMARY KEY,
    family       TEXT    NOT NULL UNIQUE,
    turn         INTEGER NOT NULL,
    turned_at    INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    identity_id  INTEGER NOT NULL REFERENCES identities (id),
    entered      INTEGER NOT NULL REFERENCES tenants (id),
    pair         BLOB    NOT NULL
) STRICT;
CREATE TABLE roles (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    scope       TEXT    NOT NULL, -- system or tenant
    token       TEXT    NOT NULL UNIQUE,
    name        TEXT,
    description TEXT,
    authorities TEXT    NOT NULL, -- JSON array of strings
    not_before  INTEGER NOT NULL
) STRICT;
CREATE TABLE row_counts (
    tenant_id INTEGER NOT NULL,
    name      TEXT    NOT NULL, -- of the table
    rows      INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, name)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE rule_fires (
    tenant_id   INTEGER NOT NULL,
    rule        TEXT    NOT NULL, -- stable id
    fires       INTEGER NOT NULL,
    last_fired  INTEGER NOT NULL, -- event time, only ever forward
    last_signal INTEGER NOT NULL, stale INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, rule)
) WITHOUT ROWID;
CREATE TABLE rule_pages (
    page      TEXT    NOT NULL,
    gen       INTEGER NOT NULL,
    tenant_id INTEGER NOT NULL,
    body      BLOB, -- null: the page is gone
    PRIMARY KEY (page, gen)
) WITHOUT ROWID;
CREATE TABLE rule_snapshot_parts (
    gen       INTEGER NOT NULL REFERENCES rule_snapshots (gen) ON DELETE CASCADE,
    tenant_id INTEGER NOT NULL, -- 0: pages of all profiles
    profile   INTEGER NOT NULL, -- row id, 0: pages of all profiles
    pages     INTEGER NOT NULL, -- how many
    gens      INTEGER NOT NULL, -- sum of their generations
    PRIMARY KEY (gen, tenant_id, profile)
) STRICT, WITHOUT ROWID;
CREATE TABLE rule_snapshots (
    gen        INTEGER PRIMARY KEY, -- generation of the checkpoint
    log_offset INTEGER NOT NULL,    -- up to which it holds every result
    received   INTEGER NOT NULL,    -- newest receive stamp there, microseconds
    listening  INTEGER NOT NULL     -- newest listening time there, nanoseconds
) STRICT;
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
CREATE TABLE seen_pages (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    gen       INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    last_time INTEGER NOT NULL, -- newest receive time on the page, microseconds
    body      BLOB    NOT NULL
);
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
, open INTEGER NOT NULL DEFAULT 1);
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
CREATE TABLE series_head (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    head_offset INTEGER NOT NULL,
    generation  INTEGER NOT NULL
);
CREATE TABLE settings (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    key        TEXT    NOT NULL UNIQUE,
    value      TEXT    NOT NULL, -- JSON
    updated_by TEXT    NOT NULL
) STRICT;
CREATE TABLE signing_keys (
    id          INTEGER PRIMARY KEY,
    kid         TEXT    NOT NULL UNIQUE, -- RFC 7638 thumbprint
    private_key BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    retired_at  INTEGER
) STRICT;
CREATE TABLE site_firings (
    log_offset INTEGER NOT NULL,
    n          INTEGER NOT NULL,
    tenant_id  INTEGER NOT NULL,
    device     TEXT    NOT NULL,
    profile    TEXT    NOT NULL,
    rule       TEXT    NOT NULL,
    signal     INTEGER NOT NULL,
    occurred   INTEGER NOT NULL, -- microseconds
    value      REAL,
    PRIMARY KEY (log_offset, n)
) WITHOUT ROWID;
CREATE TABLE sparkplug_nodes (
    id       INTEGER PRIMARY KEY,
    tenant   TEXT    NOT NULL, -- token
    source   TEXT    NOT NULL, -- broker and host id
    node     TEXT    NOT NULL, -- group/node
    online   INTEGER NOT NULL,
    synced   INTEGER NOT NULL, -- 1: the births describe what comes
    bd_seq   INTEGER,          -- of the session, 64 bits; NULL for none
    born     INTEGER NOT NULL, -- timestamp of the birth, milliseconds
    next_seq INTEGER NOT NULL, -- the sequence number that is expected
    seen     INTEGER NOT NULL, -- when the node was heard last, microseconds
    births   BLOB    NOT NULL, -- of the node and its devices, see docs/formats.md
    UNIQUE (tenant, source, node)
) STRICT;
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
CREATE TABLE tenant_erasures (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    removed_id   INTEGER NOT NULL UNIQUE, -- row id of the tenant
    token        TEXT    NOT NULL,
    epoch        INTEGER NOT NULL, -- when the deletion began
    actor        TEXT    NOT NULL, -- who deleted it
    erased_at    INTEGER,          -- since when nothing of it is left, its own row included
    completed_at INTEGER           -- since when its token is free again
) STRICT;
CREATE TABLE tenant_looks (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    tenant_id  INTEGER NOT NULL UNIQUE REFERENCES tenants (id),
    branding   TEXT    NOT NULL, -- JSON
    logo       TEXT,             -- an https or a data URL
    basemap    TEXT    NOT NULL  -- JSON
) STRICT;
CREATE TABLE tenant_tiers (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    token         TEXT    NOT NULL UNIQUE,
    name          TEXT,
    description   TEXT,
    config        TEXT,             -- governance keys as a JSON object
    display_order INTEGER NOT NULL,
    color         TEXT    NOT NULL
) STRICT;
CREATE TABLE tenants (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL UNIQUE,
    name        TEXT,
    enabled     INTEGER NOT NULL,
    not_before  INTEGER NOT NULL,
    tier_id     INTEGER NOT NULL REFERENCES tenant_tiers (id),
    config      TEXT,
    ai_external_enabled              INTEGER,
    ingest_messages_per_second       REAL,    -- NULL in these: the tier decides, then the platform
    ingest_burst                     INTEGER,
    outbound_messages_per_second     REAL,
    outbound_burst                   INTEGER,
    ai_inference_requests_per_minute REAL,
    ai_inference_burst               INTEGER,
    shed_priority                    INTEGER,
    held_command_ceiling             INTEGER,
    geofence_ceiling                 INTEGER,
    geofence_position_ceiling        INTEGER,
    geofence_position_budget         INTEGER
, registry_bytes INTEGER, purge_epoch INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE view_rows (
    kind        TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    from_offset INTEGER NOT NULL,
    to_offset   INTEGER,
    body        BLOB    NOT NULL, ended_at INTEGER, began_at INTEGER,
    PRIMARY KEY (kind, key, from_offset)
) WITHOUT ROWID;
CREATE INDEX ai_function_models_of_provider ON ai_function_models (provider_id);
CREATE INDEX ai_providers_listed ON ai_providers (created_at DESC, token);
CREATE INDEX ai_tenant_grants_of_provider ON ai_tenant_grants (provider_id);
CREATE UNIQUE INDEX ai_tier_grants_default ON ai_tier_grants (tier_id) WHERE is_default = 1;
CREATE INDEX ai_tier_grants_of_provider ON ai_tier_grants (provider_id);
CREATE INDEX alarm_contributors_of_tenant ON alarm_contributors (tenant_id);
CREATE INDEX alarm_events_by_time ON alarm_events (at);
CREATE INDEX alarms_cleared ON alarms (tenant_id, state, log_offset, id);
CREATE INDEX alarms_listed ON alarms (tenant_id, created_at DESC, token);
CREATE INDEX anchor_set_members_set ON anchor_set_members (set_id);
CREATE INDEX area_types_listed ON area_types (tenant_id, created_at DESC, token);
CREATE INDEX areas_listed ON areas (tenant_id, created_at DESC, token);
CREATE INDEX areas_of_type ON areas (type_id, created_at DESC, token);
CREATE UNIQUE INDEX artifacts_body ON artifacts (body);
CREATE INDEX asset_types_listed ON asset_types (tenant_id, created_at DESC, token);
CREATE INDEX assets_by_id ON assets (tenant_id, id);
CREATE INDEX assets_listed ON assets (tenant_id, created_at DESC, token);
CREATE INDEX assets_of_type ON assets (type_id, created_at DESC, token);
CREATE INDEX attributes_by_number ON attributes (tenant_id, entity_type, scope, key, number_value, value_type, entity_id);
CREATE INDEX attributes_by_text ON attributes (tenant_id, entity_type, scope, key, text_value, value_type, entity_id) WHERE text_value IS NOT NULL;
CREATE INDEX attributes_listed ON attributes (tenant_id, created_at DESC, id);
CREATE INDEX attributes_other_than_numbers ON attributes (tenant_id, key, entity_id)
    WHERE entity_type = 'device' AND scope = 'SHARED' AND (number_value IS NULL OR value_type NOT IN ('LONG', 'DOUBLE'));
CREATE INDEX audit_events_tenant ON audit_events (tenant_id, occurred_at, id);
CREATE INDEX audit_events_time ON audit_events (occurred_at, id);
CREATE INDEX command_batches_cancelling ON command_batches (id) WHERE state = 'CANCELLING';
CREATE INDEX command_batches_listed ON command_batches (tenant_id, created_at DESC, token);
CREATE INDEX command_batches_paced ON command_batches (id) WHERE state = 'RUNNING' AND max_per_minute > 0 AND released_to < 9223372036854775807;
CREATE INDEX command_batches_unmade ON command_batches (id) WHERE state = 'MAKING';
CREATE INDEX command_definitions_listed ON command_definitions (tenant_id, created_at DESC, token);
CREATE INDEX commands_awaited_of ON commands (device_id) WHERE state = 'SENT' AND awaits <> '';
CREATE INDEX commands_awaiting ON commands (awaits, sent_at) WHERE state = 'SENT' AND awaits <> '';
CREATE INDEX commands_by_state ON commands (state, id) WHERE state IN ('QUEUED', 'HELD', 'PARKED');
CREATE INDEX commands_due ON commands (expires_at) WHERE state IN ('QUEUED', 'HELD', 'PARKED', 'SENT');
CREATE INDEX commands_ended ON commands (updated_at) WHERE state NOT IN ('QUEUED', 'HELD', 'PARKED', 'SENT');
CREATE INDEX commands_listed ON commands (tenant_id, created_at DESC, token);
CREATE INDEX commands_of_batch ON commands (batch_id, id) WHERE batch_id > 0;
CREATE INDEX commands_of_device ON commands (device_id, created_at DESC, token);
CREATE INDEX commands_waiting ON commands (device_id, id) WHERE state IN ('QUEUED', 'HELD', 'PARKED');
CREATE INDEX connectors_listed ON connectors (tenant_id, created_at DESC, token);
CREATE INDEX customer_types_listed ON customer_types (tenant_id, created_at DESC, token);
CREATE INDEX customers_listed ON customers (tenant_id, created_at DESC, token);
CREATE INDEX customers_of_type ON customers (type_id, created_at DESC, token);
CREATE INDEX dashboards_listed ON dashboards (tenant_id, created_at DESC, token);
CREATE INDEX dead_letters_age ON dead_letters (occurred);
CREATE UNIQUE INDEX dead_letters_place ON dead_letters (kind, epoch, log_offset) WHERE log_offset > 0;
CREATE INDEX dead_letters_ring ON dead_letters (stranger, id);
CREATE INDEX dead_letters_tenant ON dead_letters (tenant, id);
CREATE INDEX detection_rules_listed ON detection_rules (tenant_id, created_at DESC, token);
CREATE INDEX detection_rules_of_group ON detection_rules (tenant_id, entity_group_token) WHERE entity_group_token IS NOT NULL;
CREATE INDEX detection_rules_of_profile ON detection_rules (profile_id);
CREATE INDEX device_claims_of_tenant ON device_claims (tenant_id);
CREATE INDEX device_credentials_certificates ON device_credentials (id_hash, id) WHERE credential_type = 'X509_CERTIFICATE';
CREATE INDEX device_credentials_listed ON device_credentials (tenant_id, coalesce(expires_at, 9223372036854775807) DESC, token);
CREATE INDEX device_credentials_of_device ON device_credentials (device_id);
CREATE UNIQUE INDEX device_credentials_psk ON device_credentials (id_hash) WHERE credential_type IN ('PSK', 'BOOTSTRAP_PSK');
CREATE INDEX device_profiles_listed ON device_profiles (tenant_id, created_at DESC, token);
CREATE INDEX device_states_source ON device_states (source, device_id);
CREATE INDEX device_states_tenant ON device_states (tenant_id, device_id);
CREATE INDEX device_types_listed ON device_types (tenant_id, created_at DESC, token);
CREATE INDEX device_types_of_profile ON device_types (profile_id);
CREATE INDEX devices_by_id ON devices (tenant_id, id);
CREATE INDEX devices_listed ON devices (tenant_id, created_at DESC, token,
    fold(token || char(10) || coalesce(name, '') || char(10) || coalesce(external_id, '')));
CREATE INDEX devices_of_type ON devices (type_id, tenant_id, created_at DESC, token,
    fold(token || char(10) || coalesce(name, '') || char(10) || coalesce(external_id, '')));
CREATE INDEX edge_blocks_time ON edge_blocks (tenant_id, last_at, id, first_at, n, rules, sources);
CREATE INDEX edges_device_time ON edges (device_id, occurred, id);
CREATE UNIQUE INDEX edges_identity ON edges (log_offset, idx, rule, key, n, epoch);
CREATE INDEX edges_of_sites_device ON edges_of_sites (device_id);
CREATE INDEX edges_of_sites_group ON edges_of_sites (group_id);
CREATE INDEX edges_of_sites_listed ON edges_of_sites (tenant_id, created_at DESC, token);
CREATE INDEX edges_of_sites_type ON edges_of_sites (auto_register_type_id);
CREATE INDEX edges_tenant_time ON edges (tenant_id, occurred, id);
CREATE INDEX entity_groups_listed ON entity_groups (tenant_id, created_at DESC, token);
CREATE INDEX entity_relationship_types_listed ON entity_relationship_types (tenant_id, created_at DESC, token);
CREATE INDEX entity_relationships_from ON entity_relationships (tenant_id, source_token, created_at DESC, token);
CREATE INDEX entity_relationships_listed ON entity_relationships (tenant_id, created_at DESC, token);
CREATE INDEX entity_relationships_of_type ON entity_relationships (type_id, created_at DESC, token);
CREATE INDEX entity_relationships_source ON entity_relationships (tenant_id, source_type, source_id, type_id, target_type, target_id);
CREATE INDEX entity_relationships_target ON entity_relationships (tenant_id, target_type, target_id, source_type);
CREATE INDEX entity_relationships_to ON entity_relationships (tenant_id, target_token, created_at DESC, token);
CREATE INDEX facet_keys_listed ON facet_keys (tenant_id, created_at DESC, member_type, key);
CREATE INDEX geofence_sets_ended ON geofence_sets (tenant_id, to_version);
CREATE INDEX geofences_listed ON geofences (tenant_id, created_at DESC, token);
CREATE INDEX http_secrets_listed ON http_secrets (tenant_id, created_at DESC, token);
CREATE INDEX identity_roles_of_role ON identity_roles (role_id);
CREATE INDEX listening_spans_by_offset ON listening_spans (log_offset);
CREATE INDEX lwm2m_firmware_body ON lwm2m_firmware (body);
CREATE INDEX lwm2m_minted_device ON lwm2m_minted (device_id, credential_id);
CREATE INDEX membership_roles_of_role ON membership_roles (role_id);
CREATE INDEX memberships_of_tenant ON memberships (tenant_id);
CREATE INDEX metric_definitions_listed ON metric_definitions (tenant_id, created_at DESC, token);
CREATE INDEX notification_channels_listed ON notification_channels (tenant_id, created_at DESC, token);
CREATE INDEX notification_mutes_listed ON notification_mutes (tenant_id, created_at DESC, token);
CREATE INDEX notification_policies_listed ON notification_policies (tenant_id, created_at DESC, token);
CREATE INDEX notification_states_cleared ON notification_states (cleared_at) WHERE cleared_at IS NOT NULL;
CREATE INDEX notification_states_held ON notification_states (held_by) WHERE held_by IS NOT NULL;
CREATE INDEX notification_states_open ON notification_states (tenant_id, notified) WHERE cleared_at IS NULL AND acknowledged_at IS NULL AND notified IS NOT NULL;
CREATE INDEX outbox_in_turn ON outbox (tenant_id, kind, target, id);
CREATE INDEX outbox_of_device ON outbox (device_id);
CREATE INDEX provisioning_profiles_listed ON provisioning_profiles (tenant_id, created_at DESC, token);
CREATE INDEX provisioning_profiles_of_type ON provisioning_profiles (device_type_id);
CREATE INDEX refresh_sessions_ending ON refresh_sessions (expires_at);
CREATE INDEX refresh_sessions_of_identity ON refresh_sessions (identity_id, entered, turned_at);
CREATE INDEX refresh_sessions_of_tenant ON refresh_sessions (entered);
CREATE INDEX row_events_device ON row_events (device_id, type, occurred_at, log_offset, idx);
CREATE UNIQUE INDEX row_events_place ON row_events (log_offset, idx);
CREATE INDEX row_events_tenant ON row_events (tenant_id, type, occurred_at, log_offset, idx);
CREATE UNIQUE INDEX secrets_name ON secrets (tenant_id, scope, name);
CREATE INDEX seen_pages_age ON seen_pages (kind, last_time);
CREATE INDEX series_blocks_grp ON series_blocks (grp, last_at, id, first_at, n, gen, min_series, max_series);
CREATE INDEX series_blocks_log ON series_blocks (tenant_id, last_offset, first_offset, min_series, max_series, n, gen);
CREATE INDEX series_blocks_open ON series_blocks (gen, grp, min_series, first_at, n, runs, open) WHERE open <> 0;
CREATE INDEX series_blocks_tenant ON series_blocks (tenant_id, last_at, id, first_at, n, gen);
CREATE INDEX series_chunks_anchors ON series_chunks (anchors, last_at) WHERE anchors <> 0;
CREATE INDEX series_chunks_gen ON series_chunks (gen);
CREATE INDEX series_chunks_log ON series_chunks (tenant_id, last_offset, first_offset, series, n, gen);
CREATE INDEX series_chunks_series ON series_chunks (series, last_at, id, first_at, n, gen, anchors);
CREATE INDEX series_chunks_tenant ON series_chunks (tenant_id, last_at, id, first_at, n, gen, anchors);
CREATE UNIQUE INDEX series_device ON series (device_id, metric);
CREATE INDEX series_gen ON series (gen);
CREATE INDEX series_gone ON series (gone) WHERE gone <> 0;
CREATE INDEX series_metric ON series (tenant_id, metric);
CREATE INDEX tenant_erasures_of_token ON tenant_erasures (token, epoch);
CREATE INDEX tenants_of_tier ON tenants (tier_id);
CREATE INDEX view_rows_ended ON view_rows (to_offset) WHERE to_offset IS NOT NULL;
INSERT INTO edge_progress VALUES (1, 0, 0, 0);
