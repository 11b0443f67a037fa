-- What is done with a value outside its range: REFUSE, as before, FLAG or CLAMP.
ALTER TABLE metric_definitions ADD COLUMN out_of_range TEXT NOT NULL DEFAULT 'REFUSE';
-- The mark of the newest measurement: 0 in range, 1 flagged, 2 clamped.
ALTER TABLE latest_measurements ADD COLUMN range_mark INTEGER NOT NULL DEFAULT 0;
