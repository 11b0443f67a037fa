-- How many bytes the rows that a tenant makes may take; NULL: its tier decides, then the platform.
ALTER TABLE tenants ADD COLUMN registry_bytes INTEGER;
