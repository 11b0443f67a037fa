-- What operators keep on the identity plane: OAuth clients, the settings of the instance that differ from their defaults, and
-- which dead letters are done with.

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

CREATE TABLE settings (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    key        TEXT    NOT NULL UNIQUE,
    value      TEXT    NOT NULL, -- JSON
    updated_by TEXT    NOT NULL
) STRICT;

-- 1: sent again or discarded. The row stays until its retention ends, because a recount of the ledger compares with it.
ALTER TABLE dead_letters ADD COLUMN closed INTEGER NOT NULL DEFAULT 0;

-- How a tenant wants to be shown.
CREATE TABLE tenant_looks (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    tenant_id  INTEGER NOT NULL UNIQUE REFERENCES tenants (id),
    branding   TEXT    NOT NULL, -- JSON
    logo       TEXT,             -- an https or a data URL
    basemap    TEXT    NOT NULL  -- JSON
) STRICT;
