-- Attributes of devices, assets, areas, customers and groups; geofences, and the versions of a tenant's set of them.

-- A text is in text_value; a number, and true and false as 1 and 0, in number_value; what was sent of a number or a JSON
-- document, which these two do not keep, in literal.
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
CREATE INDEX attributes_listed ON attributes (tenant_id, created_at DESC, id);
CREATE INDEX attributes_by_number ON attributes (tenant_id, entity_type, scope, key, number_value, value_type, entity_id);
CREATE INDEX attributes_by_text ON attributes (tenant_id, entity_type, scope, key, text_value, value_type, entity_id) WHERE text_value IS NOT NULL;

CREATE TABLE geofences (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL,
    name        TEXT,
    description TEXT,
    metadata    TEXT,
    geometry    TEXT    NOT NULL,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX geofences_listed ON geofences (tenant_id, created_at DESC, token);

-- A geometry in the versions from from_version on, up to and without to_version.
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
CREATE INDEX geofence_sets_ended ON geofence_sets (tenant_id, to_version);
