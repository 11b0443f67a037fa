-- Blocks are merged: a series with a chunk's worth in them gets a chunk, the rest of a day comes together in fewer rows.

-- 0: it has been merged and is left alone from then on.
ALTER TABLE series_blocks ADD COLUMN open INTEGER NOT NULL DEFAULT 1;
-- Rows come to its end, and those of a head that was not finished lie there: it takes the place of the one by generation.
CREATE INDEX series_blocks_open ON series_blocks (gen, grp, min_series, first_at, n, runs, open) WHERE open <> 0;
DROP INDEX series_blocks_gen;
-- A look-up of one series passes over the rows of its group that cannot hold it.
DROP INDEX series_blocks_grp;
CREATE INDEX series_blocks_grp ON series_blocks (grp, last_at, id, first_at, n, gen, min_series, max_series);
