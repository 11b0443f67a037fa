-- How listening time went: from a receive stamp on it is this much, and so it goes on. A row is written where it goes on otherwise.
CREATE TABLE listening_spans (
    id         INTEGER PRIMARY KEY,
    tenant_id  INTEGER NOT NULL, -- 0: the time of the transports together, from which that of a tenant follows
    link       TEXT    NOT NULL, -- through which a tenant's devices were heard; '' for the transports together
    log_offset INTEGER NOT NULL, -- of the record before which it is so
    received   INTEGER NOT NULL, -- receive stamp of that record, microseconds
    boot       INTEGER NOT NULL, -- start of the process that received it
    listening  INTEGER NOT NULL, -- of the transports together, nanoseconds
    slope      INTEGER NOT NULL, -- tenant 0: how much of it passes with the receive stamp (0, 1, 2); otherwise 1, 0 while it stands still
    lag        INTEGER NOT NULL, -- by how much that of the tenant is less there, nanoseconds
    UNIQUE (tenant_id, link, log_offset, listening, slope)
) STRICT;
CREATE INDEX listening_spans_by_offset ON listening_spans (log_offset);
