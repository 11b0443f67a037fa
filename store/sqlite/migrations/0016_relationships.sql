-- Relationships between entities, and groups of them. Both ends of a relationship are named by type and row id; their tokens,
-- which never change, are kept besides for filters.

CREATE TABLE entity_relationship_types (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL,
    name        TEXT,
    description TEXT,
    metadata    TEXT,
    tracked     INTEGER NOT NULL, -- those of a device are anchors of its events
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX entity_relationship_types_listed ON entity_relationship_types (tenant_id, created_at DESC, token);

CREATE TABLE entity_relationships (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    token        TEXT    NOT NULL,
    source_type  TEXT    NOT NULL, -- device, asset, area, customer, group
    source_token TEXT    NOT NULL,
    source_id    INTEGER NOT NULL,
    target_type  TEXT    NOT NULL,
    target_token TEXT    NOT NULL,
    target_id    INTEGER NOT NULL,
    type_id      INTEGER NOT NULL REFERENCES entity_relationship_types (id),
    metadata     TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX entity_relationships_listed ON entity_relationships (tenant_id, created_at DESC, token);
CREATE INDEX entity_relationships_of_type ON entity_relationships (type_id, created_at DESC, token);
CREATE INDEX entity_relationships_source ON entity_relationships (tenant_id, source_type, source_id, type_id, target_type, target_id);
CREATE INDEX entity_relationships_target ON entity_relationships (tenant_id, target_type, target_id, source_type);
CREATE INDEX entity_relationships_from ON entity_relationships (tenant_id, source_token, created_at DESC, token);
CREATE INDEX entity_relationships_to ON entity_relationships (tenant_id, target_token, created_at DESC, token);

CREATE TABLE entity_groups (
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
    member_type      TEXT    NOT NULL, -- device, asset, area, customer
    membership_mode  TEXT    NOT NULL, -- static, dynamic
    selector         TEXT,             -- of a dynamic group
    active_version   INTEGER,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX entity_groups_listed ON entity_groups (tenant_id, created_at DESC, token);

CREATE TABLE entity_group_versions (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    INTEGER NOT NULL,
    group_id     INTEGER NOT NULL REFERENCES entity_groups (id),
    version      INTEGER NOT NULL,
    label        TEXT,
    description  TEXT,
    published_at INTEGER NOT NULL,
    published_by TEXT,
    snapshot     TEXT    NOT NULL,
    UNIQUE (group_id, version)
) STRICT;

-- Members of groups are read in the order of their row ids.
CREATE INDEX devices_by_id ON devices (tenant_id, id);
CREATE INDEX assets_by_id ON assets (tenant_id, id);

-- Rules that are scoped to a group.
CREATE INDEX detection_rules_of_group ON detection_rules (tenant_id, entity_group_token) WHERE entity_group_token IS NOT NULL;
