-- DTLS sessions and observations of LwM2M devices, so that no device notices a restart. No record of a session with a number from bound on
-- was ever sent: what goes on with it begins there.
CREATE TABLE lwm2m_sessions (
    device_id     INTEGER PRIMARY KEY,
    tenant_id     INTEGER NOT NULL,
    credential_id INTEGER NOT NULL,
    name          TEXT    NOT NULL, -- of the session among those of the device
    form          INTEGER NOT NULL, -- of state
    state         BLOB    NOT NULL, -- sealed with the root key, bound to the data directory
    bound         INTEGER NOT NULL, -- record number
    received      INTEGER NOT NULL, -- records of the device below this number are no longer taken
    address       TEXT    NOT NULL, -- newest of the device
    heard_at      INTEGER NOT NULL
) STRICT;

CREATE TABLE lwm2m_observations (
    device_id INTEGER NOT NULL,
    token     BLOB    NOT NULL,
    tenant_id INTEGER NOT NULL,
    paths     TEXT    NOT NULL, -- separated by spaces; several of a composite observation
    settings  TEXT    NOT NULL, -- JSON: how it was asked for
    session   TEXT    NOT NULL, -- name of the session in which the device agreed to it, '' before
    number    INTEGER NOT NULL, -- of the newest notification that was stored
    heard_at  INTEGER NOT NULL, -- of that notification; 0: none
    value_at  INTEGER NOT NULL, -- of the newest value; 0: none
    PRIMARY KEY (device_id, token)
) STRICT, WITHOUT ROWID;
