-- Provisioning profiles, by which devices get their credential themselves; and the claims by which customers take devices over.

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
CREATE INDEX provisioning_profiles_listed ON provisioning_profiles (tenant_id, created_at DESC, token);
CREATE INDEX provisioning_profiles_of_type ON provisioning_profiles (device_type_id);

-- 1 until the first successful use of a credential that provisioning has minted: until then a repeated request gets it again.
ALTER TABLE device_credentials ADD COLUMN unused INTEGER NOT NULL DEFAULT 0;

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
CREATE INDEX device_claims_of_tenant ON device_claims (tenant_id);
