-- A handshake of LwM2M names no tenant: the certificate of its device is looked for among those of all.

CREATE INDEX device_credentials_certificates ON device_credentials (id_hash, id) WHERE credential_type = 'X509_CERTIFICATE';
