-- Previews read history in the order of the log: which rows hold readings of a stretch of it.
CREATE INDEX series_chunks_log ON series_chunks (tenant_id, last_offset, first_offset, series, n, gen);
CREATE INDEX series_blocks_log ON series_blocks (tenant_id, last_offset, first_offset, min_series, max_series, n, gen);

-- Receive time of the record from which a row of the metadata is effective; null for rows of an older Weir.
ALTER TABLE view_rows ADD COLUMN began_at INTEGER;
