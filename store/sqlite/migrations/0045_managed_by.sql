-- The edge of a Weir above that manages a row, NULL for none: it follows what is said there.
ALTER TABLE devices ADD COLUMN managed_by TEXT;
ALTER TABLE device_types ADD COLUMN managed_by TEXT;
ALTER TABLE device_profiles ADD COLUMN managed_by TEXT;
ALTER TABLE geofences ADD COLUMN managed_by TEXT;

-- Edges of rules that this site judges for the Weir above, until that has them. n is the place among those of a record.
CREATE TABLE site_firings (
    log_offset INTEGER NOT NULL,
    n          INTEGER NOT NULL,
    tenant_id  INTEGER NOT NULL,
    device     TEXT    NOT NULL,
    profile    TEXT    NOT NULL,
    rule       TEXT    NOT NULL,
    signal     INTEGER NOT NULL,
    occurred   INTEGER NOT NULL, -- microseconds
    value      REAL,
    PRIMARY KEY (log_offset, n)
) WITHOUT ROWID;
