-- Past detections are listed newest first, of a tenant or of one device.
CREATE INDEX edges_tenant_time ON edges (tenant_id, occurred, id);
CREATE INDEX edges_device_time ON edges (device_id, occurred, id);
