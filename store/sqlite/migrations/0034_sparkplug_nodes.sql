-- What is known of the edge nodes of Sparkplug sources, so that a node goes on after a restart without being asked for its births.
CREATE TABLE sparkplug_nodes (
    id       INTEGER PRIMARY KEY,
    tenant   TEXT    NOT NULL, -- token
    source   TEXT    NOT NULL, -- broker and host id
    node     TEXT    NOT NULL, -- group/node
    online   INTEGER NOT NULL,
    synced   INTEGER NOT NULL, -- 1: the births describe what comes
    bd_seq   INTEGER,          -- of the session, 64 bits; NULL for none
    born     INTEGER NOT NULL, -- timestamp of the birth, milliseconds
    next_seq INTEGER NOT NULL, -- the sequence number that is expected
    seen     INTEGER NOT NULL, -- when the node was heard last, microseconds
    births   BLOB    NOT NULL, -- of the node and its devices, see docs/formats.md
    UNIQUE (tenant, source, node)
) STRICT;
