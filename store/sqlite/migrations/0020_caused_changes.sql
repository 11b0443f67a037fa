-- Changes of the registry that records of the log have caused since the checkpoint: a device report, an event of a new
-- relationship. A replay finds in it what it has done before, and how that ended.
CREATE TABLE caused_changes (
    log_offset INTEGER PRIMARY KEY,
    reason     TEXT NOT NULL, -- why it was refused; empty: it was not
    why        TEXT NOT NULL,
    views      BLOB           -- what it changed of the metadata view
) STRICT;
