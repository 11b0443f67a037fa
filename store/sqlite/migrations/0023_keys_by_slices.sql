-- Up to which row id of a device the values under a key are in the metadata view: many of them come and go some at a time. Those of the
-- keys that are there are all in it.
ALTER TABLE attribute_keys_in_use ADD COLUMN through INTEGER NOT NULL DEFAULT 9223372036854775807;
CREATE INDEX attributes_other_than_numbers ON attributes (tenant_id, key, entity_id)
    WHERE entity_type = 'device' AND scope = 'SHARED' AND (number_value IS NULL OR value_type NOT IN ('LONG', 'DOUBLE'));

-- What rows take is counted again: with how tenants are shown, which was left out.
DELETE FROM meta WHERE key = 'tenant_bytes';
