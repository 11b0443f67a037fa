-- Devices that speak LwM2M: their registrations, and their identities, which name no tenant: an identity is that of one device of the
-- instance. The value_hash of a credential of type PSK is its key, sealed with the root key.

CREATE UNIQUE INDEX device_credentials_psk ON device_credentials (id_hash) WHERE credential_type IN ('PSK', 'BOOTSTRAP_PSK');

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
