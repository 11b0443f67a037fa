-- Connectors: drafts of what messages are published to, and the versions that were published of them.

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
CREATE INDEX connectors_listed ON connectors (tenant_id, created_at DESC, token);

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

-- HTTP secrets: what calls of URLs may use, and where. The value is in secrets, under http/{token}.
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
CREATE INDEX http_secrets_listed ON http_secrets (tenant_id, created_at DESC, token);
