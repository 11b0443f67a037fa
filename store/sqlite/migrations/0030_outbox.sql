-- What goes out: to whom, how often it was tried, when it is due; and what is kept of it once it was given up.

ALTER TABLE outbox ADD COLUMN target   TEXT    NOT NULL DEFAULT ''; -- '' for the device itself
ALTER TABLE outbox ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;  -- that failed
ALTER TABLE outbox ADD COLUMN due_at   INTEGER NOT NULL DEFAULT 0;  -- of the next attempt, 0: at once
ALTER TABLE outbox ADD COLUMN error    TEXT    NOT NULL DEFAULT ''; -- of the newest attempt
DROP INDEX outbox_of_tenant;
CREATE INDEX outbox_in_turn ON outbox (tenant_id, kind, target, id);
CREATE INDEX outbox_of_device ON outbox (device_id);

-- The idempotency key of a dead letter that was to go out, and the rule that ordered it.
ALTER TABLE dead_letters ADD COLUMN correlation TEXT;
ALTER TABLE dead_letters ADD COLUMN reference   TEXT;
