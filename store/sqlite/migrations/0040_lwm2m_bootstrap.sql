-- Pre-shared keys that bootstrap has made for devices. Once a device has registered with one, those that were made before it are removed.
CREATE TABLE lwm2m_minted (
    credential_id INTEGER PRIMARY KEY,
    tenant_id     INTEGER NOT NULL,
    device_id     INTEGER NOT NULL,
    made_at       INTEGER NOT NULL,
    used_at       INTEGER NOT NULL -- 0: no device has registered with it yet
) STRICT;
CREATE INDEX lwm2m_minted_device ON lwm2m_minted (device_id, credential_id);
