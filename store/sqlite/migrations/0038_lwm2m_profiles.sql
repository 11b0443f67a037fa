-- What is observed of the LwM2M devices of a profile, as JSON.
ALTER TABLE device_profiles ADD COLUMN lwm2m TEXT;
