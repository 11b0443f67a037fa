-- The numbers of an installation that were carried by hand: JSON, ranges by epoch.
ALTER TABLE edge_installs ADD COLUMN carried TEXT NOT NULL DEFAULT '{}';
