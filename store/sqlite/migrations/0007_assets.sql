-- Asset types and assets.

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
CREATE INDEX asset_types_listed ON asset_types (tenant_id, created_at DESC, token);

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
CREATE INDEX assets_listed ON assets (tenant_id, created_at DESC, token);
CREATE INDEX assets_of_type ON assets (type_id, created_at DESC, token);
