package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"weir/auth"
	"weir/internal/yamldoc"
	"weir/model"
)

// validate looks at what single values cannot show: ranges, and how keys go together.
func (l *loader) validate() {
	c := l.config
	l.check("instance.id", model.ValidToken(c.Instance.ID), "must be an entity token: letters, digits, - and _, at most 128")
	l.check("data_dir", c.DataDir != "", "must not be empty")
	for path, u := range map[string]string{"base_url": c.BaseURL, "docs_url": c.DocsURL} {
		l.check(path, u == "" || validURL(u), "must be an http or https URL without query and fragment")
	}
	for path, addr := range map[string]string{"listeners.api": c.Listeners.API, "listeners.ingest": c.Listeners.Ingest,
		"listeners.mqtt": c.Listeners.MQTT, "listeners.metrics": c.Listeners.Metrics, "listeners.mqtts": c.Listeners.MQTTS,
		"listeners.api_tls": c.Listeners.APITLS, "listeners.ingest_tls": c.Listeners.IngestTLS,
		"listeners.mqtt_ws": c.Listeners.MQTTWS, "listeners.mqtt_wss": c.Listeners.MQTTWSS, "broker.open_topics": c.Broker.OpenTopics} {
		l.check(path, addr == "" || validAddress(addr), "must be host:port, or :port for every interface")
	}
	l.auth()
	l.openTopics()
	l.tls()
	l.words()
	for path, d := range map[string]time.Duration{
		"ingest.max_age": c.Ingest.MaxAge, "ingest.http_header_timeout": c.Ingest.HTTPHeaderTimeout, "ingest.http_request_timeout": c.Ingest.HTTPRequestTimeout,
		"ingest.dedupe_window": c.Ingest.DedupeWindow, "spool.head_age": c.Spool.HeadAge, "presence.inactivity_timeout": c.Presence.InactivityTimeout, "presence.reconcile_interval": c.Presence.ReconcileInterval,
		"presence.restart_grace":      c.Presence.RestartGrace,
		"detection.max_rule_duration": c.Detection.MaxRuleDuration} {
		l.check(path, d > 0, "must be longer than nothing")
	}
	for path, d := range map[string]time.Duration{"ingest.max_future_skew": c.Ingest.MaxFutureSkew, "history.dead_letter_retention": c.History.DeadLetterRetention,
		"history.audit_retention": c.History.AuditRetention} {
		l.check(path, d >= 0, "must not be negative")
	}
	for path, days := range map[string]int{"history.event_retention_days": c.History.EventRetentionDays, "history.location_retention_days": c.History.LocationRetentionDays} {
		l.check(path, days >= 0 && days <= 36500, "must lie in 0..36500")
	}
	l.check("ingest.max_body", c.Ingest.MaxBody >= 1<<10 && c.Ingest.MaxBody <= 1<<20, "must lie in 1KiB..1MiB")
	l.check("ingest.spool_max_bytes", c.Ingest.SpoolMaxBytes >= 16<<20, "must be at least 16MiB")
	l.check("ingest.spool_max_messages", c.Ingest.SpoolMaxMessages >= 10_000 || c.Ingest.SpoolMaxMessages <= 0, "must be at least 10000")
	l.check("spool.replay_bytes", c.Spool.ReplayBytes >= 64<<10, "must be at least 64KiB")
	l.spaceForCheckpoints()
	l.check("ingest.dedupe_max_bytes", c.Ingest.DedupeMaxBytes >= 1<<20, "must be at least 1MiB")
	l.zeroMeansDefault()
	l.bounds()
	l.check("governance.ingest_messages_per_second", !math.IsInf(c.Governance.IngestMessagesPerSecond, 0), "must be a finite number")
}

// spaceForCheckpoints checks that a checkpoint is written before the log is full. The problem is reported at the key that was given.
func (l *loader) spaceForCheckpoints() {
	ok := l.config.Spool.ReplayBytes <= l.config.Ingest.SpoolMaxBytes/2
	switch {
	case l.bad["spool.replay_bytes"] || l.bad["ingest.spool_max_bytes"]:
	case l.given["spool.replay_bytes"] == nil:
		l.check("ingest.spool_max_bytes", ok, "must be at least twice spool.replay_bytes, or the log is full before the head is written")
	default:
		l.check("spool.replay_bytes", ok, "must be at most half of ingest.spool_max_bytes, or the log is full before the head is written")
	}
}

// auth checks what auth would refuse at the start.
func (l *loader) auth() {
	a := l.config.Auth
	l.check("auth.service_secret", !a.ServiceSecret.Set() || len(a.ServiceSecret.Reveal()) >= 32, "must have at least 32 bytes")
	if !l.bad["auth.superuser_password"] {
		l.check("auth.superuser_email", a.SuperuserEmail == "" || a.SuperuserPassword.Set(), "needs auth.superuser_password, too")
	}
	l.check("auth.superuser_password", !a.SuperuserPassword.Set() || a.SuperuserEmail != "", "needs auth.superuser_email, too")
	if a.SuperuserPassword.Set() {
		if err := auth.CheckPassword(a.SuperuserPassword.Reveal()); err != nil {
			l.check("auth.superuser_password", false, messageOf(err))
		}
	}
	l.check("auth.access_token_ttl", a.AccessTokenTTL >= time.Minute, "must be at least 1m")
	l.check("auth.refresh_token_ttl", a.RefreshTokenTTL >= a.AccessTokenTTL && a.RefreshTokenTTL <= 365*24*time.Hour, "must lie between auth.access_token_ttl and 8760h")
	l.check("auth.signing_key_max_age", a.SigningKeyMaxAge == 0 || a.SigningKeyMaxAge >= time.Hour, "must be 0s or at least 1h")
}

// openTopics checks that only clients of the machine itself are let in without a credential.
func (l *loader) openTopics() {
	b := l.config.Broker
	l.check("broker.open_topics_tenant", b.OpenTopicsTenant == "" || model.ValidToken(b.OpenTopicsTenant), "must be the token of a tenant")
	l.check("broker.open_topics_anonymous", !b.OpenTopicsAnonymous || b.OpenTopics == "" || loopback(b.OpenTopics),
		"needs a loopback address in broker.open_topics, such as 127.0.0.1:1884: any client that reaches the listener is let in")
	l.check("broker.open_topics_anonymous", !b.OpenTopicsAnonymous || b.OpenTopicsTenant == "", "cannot be combined with broker.open_topics_tenant: leave one of them out")
}

// messageOf leaves out the field that an error names: the key is named already.
func messageOf(err error) string {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e.Text()
	}
	return err.Error()
}

// words holds that a key which may be one of some words is.
func (l *loader) words() {
	for _, k := range keysOf(l.root) {
		if words := k.enum(); len(words) > 0 && !slices.Contains(words, k.value.String()) {
			l.complain(k.path, yamldoc.Suggest(k.value.String(), words), fmt.Sprintf("must be one of %v", words))
		}
	}
}

// bounds holds that numbers lie where their tags say.
func (l *loader) bounds() {
	for _, k := range keysOf(l.root) {
		if lowest, highest, ok := k.bounds(); ok {
			l.check(k.path, k.value.Int() >= lowest && k.value.Int() <= highest, fmt.Sprintf("must lie in %d..%d", lowest, highest))
		}
	}
}

// bounds returns the smallest and the largest value of a whole number that has them in its tags.
func (f field) bounds() (lowest, highest int64, ok bool) {
	lowest, errLowest := strconv.ParseInt(f.tag.Get("min"), 10, 64)
	highest, errHighest := strconv.ParseInt(f.tag.Get("max"), 10, 64)
	return lowest, highest, errLowest == nil && errHighest == nil
}

// zeroMeansDefault gives back the default for limits that are 0 or less: no setting removes a limit.
func (l *loader) zeroMeansDefault() {
	c, d := l.config, Default()
	for p, def := range map[*int]int{&c.Governance.IngestBurst: d.Governance.IngestBurst, &c.Broker.MaxConnections: d.Broker.MaxConnections,
		&c.Limits.SeriesPerDevice: d.Limits.SeriesPerDevice, &c.Limits.SeriesPerTenant: d.Limits.SeriesPerTenant,
		&c.Limits.DevicesPerTenant: d.Limits.DevicesPerTenant, &c.Detection.MaxRulesPerTenant: d.Detection.MaxRulesPerTenant,
		&c.Limits.DeadLetters: d.Limits.DeadLetters, &c.Ingest.SpoolMaxMessages: d.Ingest.SpoolMaxMessages,
		&c.Detection.MaxKeysPerTenant: d.Detection.MaxKeysPerTenant, &c.Governance.ShedPriority: d.Governance.ShedPriority} {
		if *p <= 0 {
			*p = def
		}
	}
	if c.Limits.DeadLetterBytes == 0 {
		c.Limits.DeadLetterBytes = d.Limits.DeadLetterBytes
	}
	if c.Spool.DiskReserve == 0 {
		c.Spool.DiskReserve = d.Spool.DiskReserve
	}
	if !(c.Governance.IngestMessagesPerSecond > 0) {
		c.Governance.IngestMessagesPerSecond = d.Governance.IngestMessagesPerSecond
	}
}

// check reports what is wrong with a key, unless that was reported already: its value is then not what was given.
func (l *loader) check(path string, ok bool, reason string) {
	if !ok {
		l.complain(path, "", reason)
	}
}

func (l *loader) complain(path, hint, reason string) {
	if l.bad[path] {
		return
	}
	l.bad[path] = true
	by := given{}
	if g := l.given[path]; len(g) > 0 {
		by = g[len(g)-1]
	}
	f, _ := fieldAt(l.root, path)
	l.problems = append(l.problems, by.problem(path, f.secret(), hint, reason))
}

func validURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.Fragment == "" && u.User == nil
}

func validAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65535
}
