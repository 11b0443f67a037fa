-- What is known of the installations that have signed in as an edge.
CREATE TABLE edge_installs (
    device_id   INTEGER NOT NULL, -- as which it signs in
    install     TEXT    NOT NULL, -- random id of the installation
    tenant_id   INTEGER NOT NULL,
    machine     TEXT    NOT NULL, -- hash of the machine on which it was heard first, '' for none
    hello       TEXT    NOT NULL, -- JSON: what it said last, see internal/edgewire
    gaps        TEXT    NOT NULL, -- JSON: ranges of numbers that are nowhere any more
    copied_at   INTEGER NOT NULL, -- when a copy of it was noticed; 0: never
    replaced_at INTEGER NOT NULL, -- when it came in the place of another installation; 0: it did not
    gap_at      INTEGER NOT NULL, -- when gaps were noticed last; 0: never
    first_at    INTEGER NOT NULL,
    heard_at    INTEGER NOT NULL,
    PRIMARY KEY (device_id, install)
) STRICT, WITHOUT ROWID;
