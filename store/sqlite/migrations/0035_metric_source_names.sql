-- Other names under which devices send a metric: a JSON array of strings.
ALTER TABLE metric_definitions ADD COLUMN source_names TEXT NOT NULL DEFAULT '[]';
