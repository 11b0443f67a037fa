-- OAuth clients, and the settings of the instance that differ from their defaults. All of it belongs to the instance.

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
