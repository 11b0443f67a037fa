-- The ledger balances per event source. So far each transport had one: mqtt1 and http1.
CREATE TABLE ledger_by_source (
    tenant   TEXT    NOT NULL,
    hour     INTEGER NOT NULL, -- hours since the epoch
    source   TEXT    NOT NULL, -- event source
    door     TEXT    NOT NULL, -- transport of the source
    heading  TEXT    NOT NULL, -- outcome; received is one of its own
    reason   TEXT    NOT NULL,
    messages INTEGER NOT NULL,
    readings INTEGER NOT NULL,
    PRIMARY KEY (tenant, hour, source, door, heading, reason)
) WITHOUT ROWID;
INSERT INTO ledger_by_source (tenant, hour, source, door, heading, reason, messages, readings)
    SELECT tenant, hour, CASE door WHEN 'mqtt' THEN 'mqtt1' WHEN 'http' THEN 'http1' ELSE door END, door, heading,
        CASE reason WHEN 'strangers' THEN 'unauthenticated' ELSE reason END, messages, readings FROM ledger;
DROP TABLE ledger;
ALTER TABLE ledger_by_source RENAME TO ledger;
