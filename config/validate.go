package config

import (
	"errors"
	"math"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/auth"
	"weir/internal/guard"
	"weir/internal/setting"
	"weir/internal/yamldoc"
	"weir/model"
)

// validate checks what the parsing of single values does not: the tags of the keys, and how keys go together.
func (l *loader) validate() {
	c := l.config
	for _, k := range keysOf(l.root) {
		l.tags(k)
	}
	l.check("instance.id", model.ValidToken(c.Instance.ID), "must be an entity token: letters, digits, - and _, at most 128")
	l.check("data_dir", c.DataDir != "", "must not be empty")
	l.auth()
	l.openTopics()
	l.sparkplug()
	l.egress()
	l.externalMQTT()
	l.lwm2m()
	l.console()
	l.tls()
	l.spaceForCheckpoints()
	l.paths()
	l.role()
	l.ports()
}

// tags checks a value against the tags of its key: enum, format, zero, min and max. No setting removes a limit: where 0 or less
// means the default, the value is replaced.
func (l *loader) tags(k key) {
	if words := k.enum(); len(words) > 0 && !slices.Contains(words, k.value.String()) {
		l.complain(k.path, yamldoc.Suggest(k.value.String(), words), "must be one of "+strings.Join(words, ", "))
	}
	switch addr := k.value.String(); k.of.Tag.Get("format") {
	case "address":
		l.check(k.path, addr == "" || validAddress(addr), "must be host:port, or :port for every interface")
	case "url":
		l.check(k.path, addr == "" || validURL(addr), "must be an http or https URL without query and fragment")
	}
	switch zero := k.of.Tag.Get("zero"); {
	case !setting.NotPositive(k.value):
	case zero == "default":
		def, _ := setting.OfTag(k.of, "default")
		k.value.Set(def)
	default:
		l.check(k.path, zero != "no", "must be longer than 0s")
	}
	if k.value.CanInt() {
		l.bounds(k)
	}
	l.check(k.path, !k.value.CanFloat() || !math.IsInf(k.value.Float(), 0), "must be a finite number")
}

// bounds checks a number, a size or a duration. No duration is negative.
func (l *loader) bounds(k key) {
	n, lowest, highest := k.value.Int(), k.bound("min"), k.bound("max")
	switch {
	case lowest != nil && highest != nil:
		l.check(k.path, n >= lowest.Int() && n <= highest.Int(), "must lie in "+text(*lowest)+".."+text(*highest))
	case lowest != nil:
		l.check(k.path, n >= lowest.Int(), "must be at least "+text(*lowest))
	case k.value.Type() == reflect.TypeFor[time.Duration]():
		l.check(k.path, n >= 0, "must not be negative")
	}
}

// bound returns the value in the tag min or max of a key; nil: there is none.
func (f field) bound(tag string) *reflect.Value {
	if v, ok := setting.OfTag(f.of, tag); ok {
		return &v
	}
	return nil
}

// spaceForCheckpoints checks that a checkpoint is written before the log is full. The problem is reported at the key that was given.
func (l *loader) spaceForCheckpoints() {
	ok := l.config.Spool.ReplayBytes <= l.config.Ingest.Capacity.MaxBytes/2
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

// egress checks the destinations that the operator allows.
func (l *loader) egress() {
	if _, err := guard.ParseAllowed(l.config.Egress.Allowed); err != nil {
		l.check("egress.allowed_destinations", false, err.Error())
	}
}

// console checks who may frame the console: an origin becomes a part of its policy.
func (l *loader) console() {
	for _, origin := range l.config.Console.FrameAncestors {
		u, err := url.Parse(origin)
		plain := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && origin == u.Scheme+"://"+u.Host && !strings.ContainsAny(origin, " ;,'\"*")
		l.check("console.frame_ancestors", plain, "must be origins such as https://portal.example.org, which "+strconv.Quote(origin)+" is not")
	}
}

// messageOf leaves out the field that an error names: the key is named already.
func messageOf(err error) string {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e.Text()
	}
	return err.Error()
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
	f, _ := fieldAt(l.root, path)
	l.problems = append(l.problems, l.last(path).problem(path, f.secret(), hint, reason))
}

// last is where the value of a key was given, nowhere for one that was not.
func (l *loader) last(path string) given {
	if g := l.given[path]; len(g) > 0 {
		return g[len(g)-1]
	}
	return given{}
}

// with checks that a key was given, as another one demands: the problem is at that one, where it stands in a file.
func (l *loader) with(path, other string, ok bool) {
	if ok || l.bad[path] {
		return
	}
	l.bad[path] = true
	by := l.last(path)
	if from := l.last(other); !by.file && by.name == "" && from.file {
		by = from
	}
	l.problems = append(l.problems, by.problem(path, false, "", "must be given with "+other))
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
