-- Devices that are edges: Weirs at sites, which forward what the devices there send.

CREATE TABLE edges_of_sites (
    id                    INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id             INTEGER NOT NULL,
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    token                 TEXT    NOT NULL,
    name                  TEXT,
    description           TEXT,
    device_id             INTEGER NOT NULL REFERENCES devices (id),
    group_id              INTEGER REFERENCES entity_groups (id),
    auto_register_type_id INTEGER REFERENCES device_types (id),
    enabled               INTEGER NOT NULL,
    metadata              TEXT,
    UNIQUE (tenant_id, token)
) STRICT;
CREATE INDEX edges_of_sites_listed ON edges_of_sites (tenant_id, created_at DESC, token);
CREATE INDEX edges_of_sites_device ON edges_of_sites (device_id);
CREATE INDEX edges_of_sites_group ON edges_of_sites (group_id);
CREATE INDEX edges_of_sites_type ON edges_of_sites (auto_register_type_id);
