-- The keys of SHARED attributes of devices that selectors in use name: their values are read whatever their type. Selectors in use are
-- those of active versions of groups, and of versions that enabled rules of active profile versions are scoped to.
CREATE TABLE attribute_keys_in_use (
    tenant_id INTEGER NOT NULL,
    key       TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, key)
) STRICT, WITHOUT ROWID;
