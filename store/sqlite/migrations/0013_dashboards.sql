-- Dashboards: drafts, and the versions that were published of them.

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
CREATE INDEX dashboards_listed ON dashboards (tenant_id, created_at DESC, token);

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
