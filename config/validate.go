package config

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

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
		"listeners.mqtt": c.Listeners.MQTT, "listeners.metrics": c.Listeners.Metrics} {
		l.check(path, addr == "" || validAddress(addr), "must be host:port, or :port for every interface")
	}
	l.check("auth.service_secret", !c.Auth.ServiceSecret.Set() || len(c.Auth.ServiceSecret.Reveal()) >= 32, "must have at least 32 bytes")
	l.check("auth.superuser_password", c.Auth.SuperuserEmail == "" || c.Auth.SuperuserPassword.Set(), "is needed when auth.superuser_email is set")
	l.check("auth.superuser_email", !c.Auth.SuperuserPassword.Set() || c.Auth.SuperuserEmail != "", "is needed when auth.superuser_password is set")
	l.oneOf("auth.device_auth_mode", c.Auth.DeviceAuthMode, "required", "optional", "disabled")
	l.oneOf("logging.level", c.Logging.Level, "debug", "info", "warn", "error")
	l.oneOf("logging.format", c.Logging.Format, "auto", "text", "json")
	for path, d := range map[string]time.Duration{"auth.access_token_ttl": c.Auth.AccessTokenTTL, "auth.refresh_token_ttl": c.Auth.RefreshTokenTTL,
		"ingest.max_age": c.Ingest.MaxAge, "ingest.http_header_timeout": c.Ingest.HTTPHeaderTimeout, "ingest.http_request_timeout": c.Ingest.HTTPRequestTimeout,
		"ingest.dedupe_window": c.Ingest.DedupeWindow, "spool.head_age": c.Spool.HeadAge, "presence.inactivity_timeout": c.Presence.InactivityTimeout, "presence.reconcile_interval": c.Presence.ReconcileInterval,
		"detection.max_rule_duration": c.Detection.MaxRuleDuration} {
		l.check(path, d > 0, "must be longer than nothing")
	}
	for path, d := range map[string]time.Duration{"auth.signing_key_max_age": c.Auth.SigningKeyMaxAge, "ingest.max_future_skew": c.Ingest.MaxFutureSkew,
		"presence.restart_grace": c.Presence.RestartGrace, "history.dead_letter_retention": c.History.DeadLetterRetention} {
		l.check(path, d >= 0, "must not be negative")
	}
	l.check("ingest.max_body", c.Ingest.MaxBody >= 1<<10 && c.Ingest.MaxBody <= 1<<20, "must lie in 1KiB..1MiB")
	l.check("ingest.spool_max_bytes", c.Ingest.SpoolMaxBytes >= 16<<20, "must be at least 16MiB")
	l.check("spool.replay_bytes", c.Spool.ReplayBytes >= 64<<10, "must be at least 64KiB")
	l.check("spool.replay_bytes", c.Spool.ReplayBytes <= c.Ingest.SpoolMaxBytes/2, "must be at most half of ingest.spool_max_bytes, or the log is full before the head is written")
	l.check("ingest.dedupe_max_bytes", c.Ingest.DedupeMaxBytes >= 1<<20, "must be at least 1MiB")
	l.zeroMeansDefault()
	l.check("governance.shed_priority", c.Governance.ShedPriority >= 1 && c.Governance.ShedPriority <= 100, "must lie in 1..100")
	l.check("governance.manual_floor", c.Governance.ManualFloor >= 0 && c.Governance.ManualFloor <= 3, "must lie in 0..3")
}

// zeroMeansDefault gives back the default for limits that are 0 or less: no setting removes a limit.
func (l *loader) zeroMeansDefault() {
	c, d := l.config, Default()
	for p, def := range map[*int]int{&c.Governance.IngestBurst: d.Governance.IngestBurst, &c.Broker.MaxConnections: d.Broker.MaxConnections,
		&c.Limits.SeriesPerDevice: d.Limits.SeriesPerDevice, &c.Limits.SeriesPerTenant: d.Limits.SeriesPerTenant,
		&c.Limits.DevicesPerTenant: d.Limits.DevicesPerTenant, &c.Detection.MaxRulesPerTenant: d.Detection.MaxRulesPerTenant,
		&c.Detection.MaxKeysPerTenant: d.Detection.MaxKeysPerTenant, &c.Governance.ShedPriority: d.Governance.ShedPriority} {
		if *p <= 0 {
			*p = def
		}
	}
	if !(c.Governance.IngestMessagesPerSecond > 0) {
		c.Governance.IngestMessagesPerSecond = d.Governance.IngestMessagesPerSecond
	}
}

// told reports whether the key has a problem already: its value is still the default, and nothing more is said of it.
func (l *loader) told(path string) bool {
	return slices.ContainsFunc(l.problems, func(p Problem) bool { return p.Path == path || strings.HasPrefix(p.Path, path+"_") })
}

func (l *loader) check(path string, ok bool, reason string) {
	if !ok && !l.told(path) {
		f, _ := fieldAt(ofConfig(l.config), path)
		l.problem(path, l.at[path], f.secret(), "", "%s", reason)
	}
}

func (l *loader) oneOf(path, value string, allowed ...string) {
	if slices.Contains(allowed, value) {
		return
	}
	if l.told(path) {
		return
	}
	hint := ""
	if s := nearest(value, allowed); s != "" {
		hint = "did you mean " + s + "?"
	}
	l.problem(path, l.at[path], false, hint, "must be one of %v", allowed)
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
