package config

// pending refuses what can be written already and is not served yet: a section that is accepted and inert would be worse.
func (l *loader) pending() {
	l.check("external_mqtt.sources", len(l.cfg.MQTTSource.Sources) == 0, "must be empty: brokers of others are not read yet")
}
