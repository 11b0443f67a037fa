-- Detections are packed: a row holds those of one tenant and one UTC hour of event time that were committed together. The id
-- is that of its first detection, the others follow it. Rows of edges stay as they are and are read with the blocks.
CREATE TABLE edge_blocks (
    id         INTEGER PRIMARY KEY,
    n          INTEGER NOT NULL,
    tenant_id  INTEGER NOT NULL,
    log_offset INTEGER NOT NULL, -- highest
    first_at   INTEGER NOT NULL, -- event times, microseconds
    last_at    INTEGER NOT NULL,
    received   INTEGER NOT NULL, -- newest receive time, microseconds
    rules      INTEGER NOT NULL, -- bits of profiles, rules, severities and signals
    sources    INTEGER NOT NULL, -- bits of devices and of the tokens of devices and anchors
    data       BLOB    NOT NULL
);
-- Everything that a search looks at before it reads a block.
CREATE INDEX edge_blocks_time ON edge_blocks (tenant_id, last_at, id, first_at, n, rules, sources);

-- What was added of the detections: those of every record up to log_offset. A replay adds only what follows.
CREATE TABLE edge_progress (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    log_offset INTEGER NOT NULL,
    last_edge  INTEGER NOT NULL -- newest id of a detection
);
INSERT INTO edge_progress (id, log_offset, last_edge) VALUES (1, (SELECT coalesce(max(log_offset), 0) FROM edges),
    (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'edges'));
