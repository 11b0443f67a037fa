-- Where a detection rule is judged: NULL or CLOUD here, EDGE at the site.
ALTER TABLE detection_rules ADD COLUMN placement TEXT;
