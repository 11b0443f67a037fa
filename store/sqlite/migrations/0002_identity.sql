-- Tenants with their tiers, and who may come in: identities, memberships, roles, sign-in sessions, signing keys. All of
-- it belongs to the instance, but for memberships. Row ids are never used twice (AUTOINCREMENT): tokens, data and history
-- refer to them. Times are microseconds since the epoch, booleans 0 and 1. not_before: what was issued earlier
-- to this identity, membership, role or tenant no longer counts.

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
) STRICT;
CREATE INDEX tenants_of_tier ON tenants (tier_id);

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
CREATE INDEX identity_roles_of_role ON identity_roles (role_id);

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
CREATE INDEX memberships_of_tenant ON memberships (tenant_id);

CREATE TABLE membership_roles (
    membership_id INTEGER NOT NULL REFERENCES memberships (id),
    role_id       INTEGER NOT NULL REFERENCES roles (id),
    PRIMARY KEY (membership_id, role_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX membership_roles_of_role ON membership_roles (role_id);

-- One row per session: a refresh token is {family}.{turn}, and only that of the present turn is good. pair holds the
-- claims of the tokens that the last turn gave, without their signatures, so that a repeated call gets the same ones.
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
CREATE INDEX refresh_sessions_of_identity ON refresh_sessions (identity_id, entered, turned_at);
CREATE INDEX refresh_sessions_of_tenant ON refresh_sessions (entered);
CREATE INDEX refresh_sessions_ending ON refresh_sessions (expires_at);

-- The private key is PKCS #8, sealed with the root key.
CREATE TABLE signing_keys (
    id          INTEGER PRIMARY KEY,
    kid         TEXT    NOT NULL UNIQUE, -- RFC 7638 thumbprint
    private_key BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    retired_at  INTEGER
) STRICT;
