package health

import "time"

// metricExpiry has a series for each listener with TLS, and none without such a listener: then no alert fires.
const metricExpiry = "weir_tls_certificate_expiry_seconds"

// Alerts are the conditions that an operator needs to know. Names of the first eight are those of the platform's contract. Those on sources
// are never true in an instance without sources that Weir connects to: it does not have their metrics.
func Alerts() []Alert {
	return []Alert{
		{Name: "DurableStalledBehindStream", Severity: Critical, When: Condition{Metric: "weir_ingest_applier_stalled"}, For: time.Minute,
			Summary: "Accepted messages are not applied: the applier is stalled.", Runbook: "what-was-accepted-is-not-applied"},
		{Name: "DurableLostUnread", Severity: Critical, When: Condition{Metric: "weir_log_recent_gaps"},
			Summary: "Records of the log were lost before they were applied.", Runbook: "a-part-of-the-log-is-lost"},
		{Name: "CaptureLeaderChanged", Severity: Minor, When: Condition{Metric: "weir_spool_epoch", Changes: time.Hour},
			Summary: "The log was replaced by a new one: messages of the old log that were not applied can come only from the devices' own records.",
			Runbook: "what-was-accepted-is-not-applied"},
		{Name: "ExternalMqttSourceNotReadByOnePod", Severity: Critical, When: Condition{Metric: "weir_eventsources_external_mqtt_owner", NotOneBy: "source"}, For: 2 * time.Minute,
			Summary: "A source of an external broker is read by no node, or by several.", Runbook: "an-event-source-is-down"},
		{Name: "IngestBackpressureEngaged", Severity: Critical, When: Condition{Metric: "weir_ingest_backpressure"}, For: time.Minute,
			Summary: "New messages are refused: the log is nearly full.", Runbook: "http-503"},
		{Name: "DetectLagHigh", Severity: Minor, When: Condition{Metric: "weir_eventprocessing_detect_lag_seconds", Above: 300}, For: 10 * time.Minute,
			Summary: "The rules evaluate readings that are minutes old.", Runbook: "what-was-accepted-is-not-applied"},
		{Name: "DetectConsumerBacklogHigh", Severity: Minor, When: Condition{Metric: "weir_eventprocessing_detect_consumer_pending", Above: 50_000}, For: 10 * time.Minute,
			Summary: "More than 50,000 records wait to be applied.", Runbook: "what-was-accepted-is-not-applied"},
		{Name: "DeadLetterWriteLost", Severity: Minor, When: Condition{Metric: "weir_ingest_refused_copies_dropped_total", Within: 15 * time.Minute},
			Summary: "Copies of refused messages were dropped instead of kept as dead letters; the senders received the refusal.", Runbook: "acknowledged-but-not-seen"},

		{Name: "LogNearlyFull", Severity: Minor, When: Condition{Metric: "weir_spool_bytes", Over: "weir_spool_max_bytes", Above: 0.5}, For: 5 * time.Minute,
			Summary: "The log is more than half full: at 90 % new messages are refused.", Runbook: "what-was-accepted-is-not-applied"},
		{Name: "LogUnavailable", Severity: Critical, When: Condition{Metric: "weir_spool_unavailable"}, For: 30 * time.Second,
			Summary: "The log cannot be written to disk: no message is acknowledged.", Runbook: "the-disk-is-full"},
		{Name: "DiskNearlyFull", Severity: Critical, When: Condition{Metric: "weir_disk_free_bytes", Above: minFree, Below: true}, For: time.Minute,
			Summary: "The disk of the data directory has less free space than Weir needs.", Runbook: "the-disk-is-full"},
		{Name: "DiskFilling", Severity: Minor, When: Condition{Metric: "weir_disk_free_bytes", Over: "weir_disk_size_bytes", Above: 0.1, Below: true}, For: 10 * time.Minute,
			Summary: "Less than a tenth of the disk of the data directory is free.", Runbook: "the-disk-is-full"},
		{Name: "DiskSlow", Severity: Minor, When: Condition{Metric: "weir_spool_sync_seconds", Mean: 10 * time.Minute, Above: 0.2}, For: 10 * time.Minute,
			Summary: "A flush of the log takes over 200 ms on average: every acknowledgement waits for a flush.", Runbook: "a-slow-disk-late-pubacks-low-rates"},
		{Name: "FlashWear", Severity: Minor, When: Condition{Metric: "weir_disk_written_bytes_total", Within: 6 * time.Hour, Above: 12.5e9}, For: time.Hour,
			Summary: "Weir writes more than 50 GB a day to its disk.", Runbook: "much-is-written-to-the-flash"},
		{Name: "StoreDamaged", Severity: Critical, When: Condition{Metric: "weir_store_damaged"},
			Summary: "The database is damaged: a page differs from what was written, or a sync failed.", Runbook: "the-database-is-damaged"},
		{Name: "LedgerOutOfBalance", Severity: Critical, When: Condition{Metric: "weir_ledger_unbalanced_lines"}, For: 5 * time.Minute,
			Summary: "The ledger does not balance: received messages have no outcome.", Runbook: "the-ledger-says-missing"},
		{Name: "DeadLettersRising", Severity: Minor, When: Condition{Metric: "weir_ingest_messages_total", Labels: [][2]string{{"outcome", "dead letter"}},
			Within: 15 * time.Minute, Above: 100},
			Summary: "More than 100 accepted messages became dead letters within 15 minutes.", Runbook: "acknowledged-but-not-seen"},
		{Name: "SourceDown", Severity: Critical, When: Condition{Metric: "weir_source_connected", Each: true, Above: 1, Below: true}, For: 5 * time.Minute,
			Summary: "Weir is not connected to the broker of an event source, or not subscribed there.", Runbook: "an-event-source-is-down"},
		{Name: "SubscriptionRefused", Severity: Critical, When: Condition{Metric: "weir_source_subscriptions_refused_total", Within: 10 * time.Minute},
			Summary: "A broker refuses a subscription of an event source: all transports are closed, unless external_mqtt.on_refused is wait.", Runbook: "an-event-source-is-down"},
		{Name: "CeilingReached", Severity: Minor, When: Condition{Metric: "weir_govern_ceiling_refused_total", Within: 15 * time.Minute}, For: 15 * time.Minute,
			Summary: "A tenant keeps sending more than its ceiling.", Runbook: "http-429-or-puback-0x97"},
		{Name: "RulesCannotJudge", Severity: Minor, When: Condition{Metric: "weir_eventprocessing_detect_eval_errors_total", Within: 15 * time.Minute},
			Summary: "Rules failed on readings and skipped them.", Runbook: "a-rule-does-not-fire"},
		{Name: "ReloadFailed", Severity: Minor, When: Condition{Metric: "weir_config_reloads_total", Labels: [][2]string{{"outcome", "failed"}}, Within: time.Hour},
			Summary: "A changed configuration was refused; the previous one stays effective.", Runbook: "a-reload-did-not-take"},
		{Name: "ClockWrong", Severity: Critical, When: Condition{Metric: "weir_clock_plausible", Above: 1, Below: true}, For: time.Minute,
			Summary: "The system clock is implausible: it is before the build time or before the newest record.", Runbook: "the-clock-is-wrong"},
		{Name: "CertificateExpiresSoon", Severity: Minor, When: Condition{Metric: metricExpiry, MinBy: "listener", Above: expiryWarning.Seconds(), Below: true}, For: time.Hour,
			Summary: "The certificate that the listeners serve expires within 30 days.", Runbook: "what-the-doctor-looks-at"},
		{Name: "CertificateExpired", Severity: Critical, When: Condition{Metric: metricExpiry, MinBy: "listener", Below: true}, For: time.Minute,
			Summary: "The certificate that the listeners serve has expired: clients refuse to connect.", Runbook: "what-the-doctor-looks-at"},
		{Name: "Lwm2mHandshakesFailing", Severity: Minor, When: Condition{Metric: "weir_lwm2m_handshakes_failing", Above: 0.5}, For: 5 * time.Minute,
			Summary: "More than half of the DTLS handshakes of LwM2M devices fail: keys differ, or identities are unknown.", Runbook: "an-lwm2m-device-does-not-get-in"},
		{Name: "Lwm2mRowsBehind", Severity: Minor, When: Condition{Metric: "weir_lwm2m_rows_behind_total", Within: 15 * time.Minute},
			Summary: "Registrations of LwM2M devices cannot be stored: a restart would take them as they were before.", Runbook: "the-disk-is-full"},
		{Name: "Lwm2mFirmwareFailing", Severity: Minor, When: Condition{Metric: "weir_lwm2m_firmware_ended_total", Labels: [][2]string{{"outcome", "failed"}}, Within: time.Hour},
			Summary: "A firmware update of an LwM2M device has failed, or was not complete in its time.", Runbook: "a-firmware-update-fails"},
		{Name: "SparkplugStateDenied", Severity: Critical, When: Condition{Metric: "weir_sparkplug_state_denied"}, For: time.Minute,
			Summary: "A broker does not deliver the STATE of a Sparkplug source: the source is down.", Runbook: "a-sparkplug-source"},
		{Name: "SparkplugHostIdInUse", Severity: Minor, When: Condition{Metric: "weir_sparkplug_state_conflicts_total", Within: 15 * time.Minute},
			Summary: "Another Sparkplug host application has the host id of Weir.", Runbook: "a-sparkplug-source"},
		{Name: "SparkplugDuplicateNode", Severity: Minor, When: Condition{Metric: "weir_sparkplug_duplicate_nodes"},
			Summary: "Two Sparkplug nodes use one id.", Runbook: "a-sparkplug-source"},
		{Name: "RebirthsDeferred", Severity: Minor, When: Condition{Metric: "weir_sparkplug_rebirths_deferred_total", Within: time.Minute}, For: 10 * time.Minute,
			Summary: "Requests for Sparkplug rebirths wait for the rate of their source.", Runbook: "a-sparkplug-source"},
		{Name: "EdgeCloned", Severity: Critical, When: Condition{Metric: "weir_uplink_findings_total", Labels: [][2]string{{"finding", "EdgeCloned"}}, Within: time.Hour},
			Summary: "Two edges have one installation, or one goes on from an older copy of itself: the second was asked to begin as another installation.", Runbook: "an-edge-does-not-forward"},
		{Name: "EdgeGap", Severity: Critical, When: Condition{Metric: "weir_uplink_findings_total", Labels: [][2]string{{"finding", "EdgeGap"}}, Within: time.Hour},
			Summary: "Messages that an edge has handed over are not here, and the edge has them no more.", Runbook: "an-edge-does-not-forward"},
		{Name: "OpenFilesNearLimit", Severity: Minor, When: Condition{Metric: "process_open_fds", Over: "process_max_fds", Above: 0.8}, For: 5 * time.Minute,
			Summary: "The process has four fifths of its maximum of open files: soon no client can connect.", Runbook: "connack-0x89-or-3-busy"},
	}
}

// EdgeAlerts are the conditions of an instance with role: edge, besides those of Alerts whose metrics it has. The instance does not
// evaluate them itself.
func EdgeAlerts() []Alert {
	const used, limit = "weir_edge_spool_used_bytes", "weir_edge_spool_limit_bytes"
	return []Alert{
		{Name: "EdgeSpoolHalfFull", Severity: Minor, When: Condition{Metric: used, Over: limit, Above: 0.5}, For: 5 * time.Minute,
			Summary: "Half of the log of an edge is used by messages that wait for the broker above.", Runbook: "an-edge-does-not-forward"},
		{Name: "EdgeSpoolNearlyFull", Severity: Critical, When: Condition{Metric: used, Over: limit, Above: 0.9}, For: time.Minute,
			Summary: "The log of an edge is nearly full: soon messages are refused, or the oldest dropped.", Runbook: "an-edge-does-not-forward"},
		{Name: "EdgeUplinkRefused", Severity: Critical, When: Condition{Metric: "weir_edge_uplink_refused"}, For: time.Minute,
			Summary: "The broker above refuses the credential or the client id of an edge.", Runbook: "an-edge-does-not-forward"},
		{Name: "EdgeUplinkDown", Severity: Minor, When: Condition{Metric: "weir_edge_uplink_connected", Above: 1, Below: true}, For: 15 * time.Minute,
			Summary: "An edge has not reached the broker above for 15 minutes; messages wait in its log.", Runbook: "an-edge-does-not-forward"},
		{Name: "EdgeSyncStale", Severity: Minor, When: Condition{Metric: "weir_edge_sync_age_seconds", Above: 3600}, For: time.Minute,
			Summary: "An edge is connected and has not been able to take over the credentials of its devices for an hour.", Runbook: "an-edge-does-not-forward"},
		{Name: "EdgeDropping", Severity: Critical, When: Condition{Metric: "weir_edge_dropped_total", Within: 15 * time.Minute},
			Summary: "The log of an edge is full and drops its oldest messages.", Runbook: "an-edge-does-not-forward"},
	}
}
