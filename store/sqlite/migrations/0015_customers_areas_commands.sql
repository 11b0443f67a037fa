-- Customers and areas with their types, the commands of device profiles, facet keys, how many rows of some kinds a tenant has, and
-- the index by which devices are searched.

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
CREATE INDEX customer_types_listed ON customer_types (tenant_id, created_at DESC, token);

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
CREATE INDEX customers_listed ON customers (tenant_id, created_at DESC, token);
CREATE INDEX customers_of_type ON customers (type_id, created_at DESC, token);

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
CREATE INDEX area_types_listed ON area_types (tenant_id, created_at DESC, token);

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
CREATE INDEX areas_listed ON areas (tenant_id, created_at DESC, token);
CREATE INDEX areas_of_type ON areas (type_id, created_at DESC, token);

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
CREATE INDEX command_definitions_listed ON command_definitions (tenant_id, created_at DESC, token);

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
CREATE INDEX facet_keys_listed ON facet_keys (tenant_id, created_at DESC, member_type, key);

-- How many rows a tenant has in a table, for kinds of which it may have many: the ceiling costs no count over all of them.
CREATE TABLE row_counts (
    tenant_id INTEGER NOT NULL,
    name      TEXT    NOT NULL, -- of the table
    rows      INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, name)
) STRICT, WITHOUT ROWID;
INSERT INTO row_counts (tenant_id, name, rows) SELECT tenant_id, 'asset_types', count(*) FROM asset_types GROUP BY tenant_id;
INSERT INTO row_counts (tenant_id, name, rows) SELECT tenant_id, 'assets', count(*) FROM assets GROUP BY tenant_id;

-- Lists of devices, and of those of a type, are read in the order of these indexes, and a search compares the texts in them
-- without reading the rows.
DROP INDEX devices_listed;
CREATE INDEX devices_listed ON devices (tenant_id, created_at DESC, token,
    fold(token || char(10) || coalesce(name, '') || char(10) || coalesce(external_id, '')));
DROP INDEX devices_of_type;
CREATE INDEX devices_of_type ON devices (type_id, tenant_id, created_at DESC, token,
    fold(token || char(10) || coalesce(name, '') || char(10) || coalesce(external_id, '')));
