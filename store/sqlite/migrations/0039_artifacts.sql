-- Artifacts: files that devices are given, such as firmware. The bytes of one are the parts of its body, in their order; a body is written once.
CREATE TABLE artifacts (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id  INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    token      TEXT    NOT NULL,
    name       TEXT    NOT NULL, -- '' for none
    version    TEXT    NOT NULL, -- '' for none
    sha256     TEXT    NOT NULL, -- of the bytes, lower-case hexadecimal
    bytes      INTEGER NOT NULL,
    body       INTEGER NOT NULL, -- random
    UNIQUE (tenant_id, token)
) STRICT;
CREATE UNIQUE INDEX artifacts_body ON artifacts (body);

-- A body whose artifact is gone, or was never complete, is removed.
CREATE TABLE artifact_parts (
    body      INTEGER NOT NULL,
    n         INTEGER NOT NULL, -- from 0; each but the last has the same size
    tenant_id INTEGER NOT NULL,
    data      BLOB    NOT NULL,
    PRIMARY KEY (body, n)
) STRICT, WITHOUT ROWID;

-- Firmware updates of LwM2M devices that are under way: each is one dispatch of a command.
CREATE TABLE lwm2m_firmware (
    device_id  INTEGER PRIMARY KEY,
    tenant_id  INTEGER NOT NULL,
    command    TEXT    NOT NULL, -- token
    nonce      TEXT    NOT NULL, -- of the dispatch
    expires_at INTEGER NOT NULL, -- of the command
    artifact   TEXT    NOT NULL, -- token
    body       INTEGER NOT NULL,
    phase      TEXT    NOT NULL,
    pull       INTEGER NOT NULL, -- the device fetches it
    secret     TEXT    NOT NULL, -- last part of the path at which it does
    before     TEXT    NOT NULL, -- firmware version of the device before the update
    began_at   INTEGER NOT NULL, -- the transfer; 0: it waits for its turn
    updated_at INTEGER NOT NULL  -- the device was ordered to apply it; 0: not yet
) STRICT;
CREATE INDEX lwm2m_firmware_body ON lwm2m_firmware (body);

-- How far a command is whose exchange with its device takes long; '' where that is not reported.
ALTER TABLE commands ADD COLUMN progress TEXT NOT NULL DEFAULT '';
