package lwm2m

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/command"
	"weir/lwm2m/coap"
	"weir/lwm2m/content"
)

// badParameters says that a command cannot be performed as it is: the device is not asked.
type badParameters struct{ text string }

func (e badParameters) Error() string { return e.text }

func wrong(format string, args ...any) error { return badParameters{fmt.Sprintf(format, args...)} }

// operation is a command as it is performed.
type operation struct {
	s    *Server
	sess *session
	r    *registration
	d    command.Dispatch
	name string
	args map[string]json.RawMessage
	used map[string]bool
}

// operations are the commands by their names.
var operations = map[string]func(*operation) (any, error){
	"lwm2m.read": (*operation).read, "lwm2m.write": (*operation).write, "lwm2m.execute": (*operation).execute, "lwm2m.create": (*operation).create,
	"lwm2m.delete": (*operation).remove, "lwm2m.discover": (*operation).discover, "lwm2m.writeAttributes": (*operation).writeAttributes,
	"lwm2m.observe": (*operation).observe, "lwm2m.cancelObserve": (*operation).cancelObserve, "lwm2m.observeComposite": (*operation).observeComposite, "lwm2m.readComposite": (*operation).readComposite,
	"lwm2m.writeComposite": (*operation).writeComposite, "lwm2m.reboot": (*operation).reboot, "lwm2m.readDeviceInfo": (*operation).readDeviceInfo,
	"lwm2m.factoryReset": (*operation).factoryReset, firmwareCommand: (*operation).firmwareUpdate, "lwm2m.bootstrap": (*operation).bootstrap,
}

// opOf is the label of a command in metrics.
func opOf(name string) string {
	if operations[name] == nil {
		return "other"
	}
	return strings.TrimPrefix(name, "lwm2m.")
}

// perform performs a command and returns its result as JSON. Errors are for people; badParameters, errNoAnswer and errEnded say that the device has not
// refused it.
func (s *Server) perform(sess *session, r *registration, d command.Dispatch) (string, error) {
	run := operations[d.Name]
	if run == nil {
		return "", wrong("%.64q is no command of LwM2M: there are %s", d.Name, strings.Join(slices.Sorted(maps.Keys(operations)), ", "))
	}
	o := &operation{s: s, sess: sess, r: r, d: d, name: d.Name, args: map[string]json.RawMessage{}, used: map[string]bool{}}
	if d.Payload != nil {
		if err := json.Unmarshal([]byte(*d.Payload), &o.args); err != nil {
			return "", wrong("the payload is no JSON object")
		}
	}
	result, err := run(o)
	if err != nil {
		return "", err
	}
	return marshalResult(result)
}

func marshalResult(result any) (string, error) {
	b, err := json.Marshal(result)
	if err != nil {
		return "", fmt.Errorf("the answer cannot be written as JSON: %w", err)
	}
	if len(b) > maxResult {
		return "", fmt.Errorf("the answer has %d bytes, a command may return %d", len(b), maxResult)
	}
	return string(b), nil
}

// maxResult is how large the result of a command may be.
const maxResult = 64 << 10

// argument decodes a parameter, if it is given.
func (o *operation) argument(name string, into any) (given bool, err error) {
	o.used[name] = true
	raw, ok := o.args[name]
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return true, wrong("%s: %v", name, err)
	}
	return true, nil
}

// rest refuses parameters that the command does not know.
func (o *operation) rest() error {
	for _, name := range slices.Sorted(maps.Keys(o.args)) {
		if !o.used[name] {
			return wrong("%s has no parameter %.64q", o.name, name)
		}
	}
	return nil
}

// path decodes the parameter path, of at least min and at most max segments.
func (o *operation) path(min, max int) (content.Path, error) {
	var text string
	if given, err := o.argument("path", &text); err != nil || !given {
		return nil, errors.Join(err, missing(given, "path"))
	}
	p, ok := content.ParsePath(text)
	if !ok || len(p) < min || len(p) > max {
		return nil, wrong("path: %.40q must be %s: numbers in 0..65535 without leading zeros", text, pathForm(min, max))
	}
	return p, nil
}

func missing(given bool, name string) error {
	if given {
		return nil
	}
	return wrong("%s is required", name)
}

func pathForm(min, max int) string {
	form := []string{"/object", "/object/instance", "/object/instance/resource", "/object/instance/resource/instance"}
	return strings.Join(form[min-1:max], " or ")
}

// ask sends a request within the time of a command. A code that is none of success is an error.
func (o *operation) ask(m *coap.Message) (*coap.Message, error) {
	ctx, cancel := context.WithTimeout(o.sess.ctx, o.s.settings.Load().CommandTimeout)
	defer cancel()
	answer, err := o.sess.ask(ctx, m, int(o.s.settings.Load().MaxRead))
	var large errTooLarge
	switch {
	case errors.As(err, &large):
		return nil, fmt.Errorf("the answer has %d bytes or more, lwm2m.max_read is %d", large.size, large.limit)
	case err != nil:
		return nil, err
	case !answer.Code.Success():
		return answer, refusedBy(answer)
	}
	return answer, nil
}

// deviceError is a refusal of the device.
type deviceError struct {
	code coap.Code
	text string
}

func (e deviceError) Error() string {
	if e.text != "" {
		return e.code.String() + ": " + e.text
	}
	return e.code.String()
}

// refusedBy is the refusal that an answer is, with its diagnostic text (RFC 7252 section 5.5.2).
func refusedBy(m *coap.Message) error {
	text := ""
	if format, ok := m.Uint(coap.ContentFormat); (!ok || format == 0) && utf8.Valid(m.Payload) && len(m.Payload) <= 200 {
		text = strings.TrimSpace(string(m.Payload))
	}
	return deviceError{m.Code, text}
}

// isCode reports whether err is a refusal of the device with one of some codes.
func isCode(err error, codes ...coap.Code) bool {
	var refused deviceError
	return errors.As(err, &refused) && slices.Contains(codes, refused.code)
}

func (o *operation) formats() []uint16 {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return o.r.formats()
}

// observeFormats are those in which an observation is asked for.
func (o *operation) observeFormats() []uint16 {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return o.s.formats(o.r)
}

// jsonOf is a value as results have it: bytes as base64.
func jsonOf(v content.Value) any {
	switch v.Kind {
	case content.Integer, content.Time:
		return v.Int
	case content.Unsigned:
		return uint64(v.Int)
	case content.Float:
		if math.IsNaN(v.Float) || math.IsInf(v.Float, 0) {
			return content.FormatText(v)
		}
		return v.Float
	case content.Boolean:
		return v.Bool
	case content.Bytes:
		return base64.StdEncoding.EncodeToString(v.Bytes)
	}
	return v.Text
}

// result is what reading commands return.
type result struct {
	Path    string         `json:"path,omitempty"`
	Value   any            `json:"value,omitempty"`
	Values  map[string]any `json:"values,omitempty"`
	Missing []string       `json:"missing,omitempty"`
	Code    string         `json:"code"`
	Format  string         `json:"format,omitempty"`
}

// valuesOf is an answer with values as a result.
func (o *operation) valuesOf(path content.Path, answer *coap.Message, format uint16) result {
	out := result{Path: path.String(), Code: answer.Code.String(), Format: content.Name(format)}
	if len(path) == 0 {
		out.Path = ""
	}
	records, err := o.s.models(o.sess.binding.DeviceID).Decode(format, path, answer.Payload, o.s.seconds())
	switch {
	case err != nil && utf8.Valid(answer.Payload):
		out.Value = string(answer.Payload)
	case err != nil:
		out.Value = base64.StdEncoding.EncodeToString(answer.Payload)
	case len(records) == 1 && slices.Equal(records[0].Path, path):
		out.Value = jsonOf(records[0].Value)
	default:
		out.Values = map[string]any{}
		for _, r := range records {
			out.Values[r.Path.String()] = jsonOf(r.Value)
		}
	}
	return out
}

func (o *operation) read() (any, error) {
	path, err := o.path(1, 4)
	if err = errors.Join(err, o.rest()); err != nil {
		return nil, first(err)
	}
	return o.get(path)
}

// first is the first of joined errors.
func first(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok && len(all.Unwrap()) > 0 {
		return first(all.Unwrap()[0])
	}
	return err
}

func (o *operation) get(path content.Path) (any, error) {
	formats := o.formats()
	for i, accept := range formats {
		m := &coap.Message{Code: coap.GET}
		m.AddPath(coap.URIPath, path.Segments()...)
		m.AddUint(coap.Accept, uint32(accept))
		answer, err := o.ask(m)
		if isCode(err, coap.NotAcceptable) && i < len(formats)-1 {
			continue
		}
		if err != nil {
			return nil, err
		}
		format := accept
		if given, ok := answer.Uint(coap.ContentFormat); ok {
			format = uint16(given)
		}
		return o.valuesOf(path, answer, format), nil
	}
	return nil, errNoAnswer
}

// value reads a value of a parameter as the type of a resource.
func (o *operation) value(path content.Path, raw json.RawMessage) (v content.Value, err error) {
	kind := o.s.models(o.sess.binding.DeviceID).KindOf(path)
	var any any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(&any); err != nil {
		return v, wrong("%s: %v", path, err)
	}
	switch x := any.(type) {
	case string:
		v = content.Value{Kind: content.String, Text: x}
	case bool:
		v = content.Value{Kind: content.Boolean, Bool: x}
		if kind == content.Integer || kind == content.Float || kind == content.Unsigned {
			n, _ := v.Number()
			v = content.Value{Kind: content.Integer, Int: int64(n)}
		}
	case json.Number:
		if n, err := x.Int64(); err == nil {
			v = content.Value{Kind: content.Integer, Int: n}
		} else if f, err := x.Float64(); err == nil {
			v = content.Value{Kind: content.Float, Float: f}
		} else {
			return v, wrong("%s: %.40s is no number of 64 bits", path, x)
		}
	default:
		return v, wrong("%s: a value is a string, a number or a boolean", path)
	}
	as, ok := content.As(kind, v)
	if !ok {
		return v, wrong("%s: %.40s does not fit the type of the resource", path, raw)
	}
	return as, nil
}

// records reads a parameter of values: names are resources below path, or whole paths.
func (o *operation) records(path content.Path, values map[string]json.RawMessage) (out []content.Record, err error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		full := name
		if !strings.HasPrefix(name, "/") {
			full = strings.TrimSuffix(path.String(), "/") + "/" + name
		}
		p, ok := content.ParsePath(full)
		if !ok || len(p) < 3 || !p.Within(path) {
			return nil, wrong("values: %.40q is no resource below %s", name, path)
		}
		v, err := o.value(p, values[name])
		if err != nil {
			return nil, err
		}
		out = append(out, content.Record{Path: p, Value: v})
	}
	if len(out) == 0 {
		return nil, wrong("values must not be empty")
	}
	return out, nil
}

// put sends records in the first of some formats that the device takes.
func (o *operation) put(code coap.Code, path, base content.Path, records []content.Record, formats []uint16) (any, error) {
	var refused error
	for _, format := range formats {
		body, err := content.Encode(format, base, records)
		if err != nil {
			refused = wrong("%v", err)
			continue
		}
		if limit := int(o.s.settings.Load().MaxWrite); len(body) > limit {
			return nil, wrong("what is written has %d bytes, lwm2m.max_write is %d", len(body), limit)
		}
		m := &coap.Message{Code: code, Payload: body}
		m.AddPath(coap.URIPath, path.Segments()...)
		m.AddUint(coap.ContentFormat, uint32(format))
		answer, err := o.ask(m)
		if isCode(err, coap.BadFormat) {
			refused = err
			continue
		}
		if err != nil {
			return nil, err
		}
		out := map[string]any{"path": path.String(), "code": answer.Code.String(), "format": content.Name(format)}
		if at := answer.Texts(coap.LocationPath); len(at) > 0 {
			out["location"] = "/" + strings.Join(at, "/")
		}
		return out, nil
	}
	return nil, refused
}

func (o *operation) write() (any, error) {
	path, err := o.path(2, 4)
	if err != nil {
		return nil, err
	}
	var values map[string]json.RawMessage
	var mode string
	hasValues, err := o.argument("values", &values)
	if err != nil {
		return nil, err
	}
	if _, err = o.argument("mode", &mode); err != nil {
		return nil, err
	}
	o.used["value"] = true
	raw, hasValue := o.args["value"]
	if err = o.rest(); err != nil {
		return nil, err
	}
	code := coap.PUT
	switch {
	case mode == "update" && hasValues && len(path) < 4:
		code = coap.POST
	case mode != "" && mode != "replace":
		return nil, wrong("mode must be replace, or update where values are written")
	}
	switch {
	case hasValue == hasValues:
		return nil, wrong("give either value or values")
	case hasValues:
		all, err := o.records(path, values)
		if err != nil {
			return nil, err
		}
		return o.put(code, path, path, all, o.formats())
	case len(path) < 3:
		return nil, wrong("value is written to a resource; an instance takes values")
	}
	v, err := o.value(path, raw)
	if err != nil {
		return nil, err
	}
	formats := append([]uint16{content.Text}, o.formats()...)
	if v.Kind == content.Bytes {
		formats[0] = content.Opaque
	}
	return o.put(coap.PUT, path, path, []content.Record{{Path: path, Value: v}}, formats)
}

// factoryReset and reboot of the device object.
var (
	rebootPath = content.Path{3, 0, 4}
	resetPath  = content.Path{3, 0, 5}
)

// destructiveRefused is the code of the refusal of a raw factory reset.
const destructiveRefused = "COMMAND_DESTRUCTIVE_REFUSED"

func (o *operation) execute() (any, error) {
	path, err := o.path(3, 3)
	if err != nil {
		return nil, err
	}
	var args string
	if _, err = o.argument("args", &args); err != nil {
		return nil, err
	}
	if err = o.rest(); err != nil {
		return nil, err
	}
	if slices.Equal(path, resetPath) { // the registry has refused it already
		return nil, wrong("%s: use lwm2m.factoryReset", destructiveRefused)
	}
	if limit := int(o.s.settings.Load().MaxWrite); len(args) > limit {
		return nil, wrong("args has %d bytes, lwm2m.max_write is %d", len(args), limit)
	}
	return o.post(path, args)
}

func (o *operation) post(path content.Path, args string) (any, error) {
	m := &coap.Message{Code: coap.POST, Payload: []byte(args)}
	m.AddPath(coap.URIPath, path.Segments()...)
	if args != "" {
		m.AddUint(coap.ContentFormat, uint32(content.Text))
	}
	answer, err := o.ask(m)
	if err != nil {
		return nil, err
	}
	return map[string]any{"path": path.String(), "code": answer.Code.String()}, nil
}

func (o *operation) reboot() (any, error) {
	if err := o.rest(); err != nil {
		return nil, err
	}
	return o.post(rebootPath, "")
}

func (o *operation) factoryReset() (any, error) {
	var confirm string
	if _, err := o.argument("confirm", &confirm); err != nil {
		return nil, err
	}
	if err := o.rest(); err != nil {
		return nil, err
	}
	if confirm != o.d.Device {
		return nil, wrong("confirm must be the token of the device, %s", o.d.Device)
	}
	return o.post(resetPath, "")
}

func (o *operation) readDeviceInfo() (any, error) {
	if err := o.rest(); err != nil {
		return nil, err
	}
	found, absent, err := o.s.readAbout(o.sess, o.formats())
	if err != nil {
		return nil, err
	}
	out := result{Values: map[string]any{}, Missing: []string{}, Code: coap.Content.String()}
	for key, v := range found {
		out.Values[key] = jsonOf(v)
	}
	for _, p := range absent {
		out.Missing = append(out.Missing, p.String())
	}
	return map[string]any{"values": out.Values, "missing": out.Missing, "code": out.Code}, nil
}

func (o *operation) create() (any, error) {
	path, err := o.path(1, 1)
	if err != nil {
		return nil, err
	}
	var instance *uint16
	var values map[string]json.RawMessage
	if _, err = o.argument("instance", &instance); err != nil {
		return nil, err
	}
	if given, err := o.argument("values", &values); err != nil || !given {
		return nil, first(errors.Join(err, missing(given, "values")))
	}
	if err = o.rest(); err != nil {
		return nil, err
	}
	if instance != nil {
		below := content.Path{path[0], *instance}
		all, err := o.records(below, values)
		if err != nil {
			return nil, err
		}
		return o.put(coap.POST, path, path, all, o.formats())
	}
	all, err := o.records(content.Path{path[0], 0}, values) // the number of the instance is not written
	if err != nil {
		return nil, err
	}
	return o.put(coap.POST, path, content.Path{path[0], 0}, all, []uint16{content.TLV})
}

func (o *operation) remove() (any, error) {
	path, err := o.path(2, 4)
	if err = errors.Join(err, o.rest()); err != nil {
		return nil, first(err)
	}
	m := &coap.Message{Code: coap.DELETE}
	m.AddPath(coap.URIPath, path.Segments()...)
	answer, err := o.ask(m)
	if err != nil {
		return nil, err
	}
	return map[string]any{"path": path.String(), "code": answer.Code.String()}, nil
}

func (o *operation) discover() (any, error) {
	path, err := o.path(1, 3)
	if err = errors.Join(err, o.rest()); err != nil {
		return nil, first(err)
	}
	m := &coap.Message{Code: coap.GET}
	m.AddPath(coap.URIPath, path.Segments()...)
	m.AddUint(coap.Accept, uint32(content.LinkList))
	answer, err := o.ask(m)
	if err != nil {
		return nil, err
	}
	links, err := content.ParseLinks(answer.Payload)
	if err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	type found struct {
		Path       string            `json:"path"`
		Attributes map[string]string `json:"attributes,omitempty"`
	}
	all := make([]found, len(links))
	for i, l := range links {
		all[i].Path = l.Target
		for _, a := range l.Attributes {
			if all[i].Attributes == nil {
				all[i].Attributes = map[string]string{}
			}
			all[i].Attributes[a.Name] = a.Value
		}
	}
	return map[string]any{"path": path.String(), "links": all, "code": answer.Code.String()}, nil
}

// attributes are those that a server may write.
var attributes = []string{"pmin", "pmax", "gt", "lt", "st", "epmin", "epmax", "edge", "con", "hqmax"}

func (o *operation) writeAttributes() (any, error) {
	path, err := o.path(1, 4)
	if err != nil {
		return nil, err
	}
	var given map[string]*json.Number
	if has, err := o.argument("attributes", &given); err != nil || !has {
		return nil, first(errors.Join(err, missing(has, "attributes")))
	}
	if err = o.rest(); err != nil {
		return nil, err
	}
	m := &coap.Message{Code: coap.PUT}
	m.AddPath(coap.URIPath, path.Segments()...)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch n := given[name]; {
		case !slices.Contains(attributes, name):
			return nil, wrong("attributes: there is no %.40q, there are %s", name, strings.Join(attributes, ", "))
		case n == nil: // removes it
			m.Add(coap.URIQuery, []byte(name))
		default:
			m.Add(coap.URIQuery, []byte(name+"="+n.String()))
		}
	}
	if len(given) == 0 {
		return nil, wrong("attributes must not be empty")
	}
	answer, err := o.ask(m)
	if err != nil {
		return nil, err
	}
	return map[string]any{"path": path.String(), "code": answer.Code.String()}, nil
}

func (o *operation) observe() (any, error) {
	path, err := o.path(1, 4)
	if err = errors.Join(err, o.rest()); err != nil {
		return nil, first(err)
	}
	if err := o.observeTarget(target{paths: []content.Path{path}, Ordered: true}); err != nil {
		return nil, err
	}
	return map[string]any{"path": path.String(), "observed": true}, nil
}

// observeTarget observes what is not observed yet, where there is room.
func (o *operation) observeTarget(t target) error {
	o.s.mu.Lock()
	limit, have := o.s.settings.Load().MaxObservations, len(o.r.observed)
	known := o.r.observes(t.name())
	o.s.mu.Unlock()
	switch {
	case known != nil:
		return nil
	case have >= limit:
		return fmt.Errorf("the device has %d observations, lwm2m.max_observations is %d", have, limit)
	}
	return o.s.order(o.sess, o.r, t, o.observeFormats())
}

func (o *operation) observeComposite() (any, error) {
	paths, err := o.paths()
	if err = errors.Join(err, o.rest()); err != nil {
		return nil, first(err)
	}
	if _, err := o.composite(); err != nil {
		return nil, err
	}
	t := target{paths: paths, Composite: true, Ordered: true}
	if err := o.observeTarget(t); err != nil {
		return nil, err
	}
	return map[string]any{"paths": strings.Fields(t.name()), "observed": true}, nil
}

// order observes what a command asks for, until it is cancelled or the device registers anew.
func (s *Server) order(sess *session, r *registration, t target, formats []uint16) error {
	made := &observation{target: t, token: newToken()}
	s.mu.Lock()
	r.observed[string(made.token)] = made
	row := made.row(r.Binding)
	s.mu.Unlock()
	if err := s.deps.Store.Save(sess.ctx, true, &Changes{Observations: []Observation{row}}); err != nil {
		s.mu.Lock()
		delete(r.observed, string(made.token))
		s.mu.Unlock()
		return fmt.Errorf("the observation cannot be stored: %w", err)
	}
	if err := s.observeOne(sess, r, made, formats); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.observed[string(made.token)] != made {
		return fmt.Errorf("the device does not observe it: %s", r.refusedAt[t.name()])
	}
	return nil
}

// observes returns the observation of a name, nil for none. It needs the lock of the server.
func (r *registration) observes(name string) *observation {
	for _, o := range r.observed {
		if o.name() == name {
			return o
		}
	}
	return nil
}

func (o *operation) cancelObserve() (any, error) {
	var paths []content.Path
	var err error
	_, several := o.args["paths"]
	if several {
		paths, err = o.paths()
	} else {
		var path content.Path
		path, err = o.path(1, 4)
		paths = []content.Path{path}
	}
	if err = errors.Join(err, o.rest()); err != nil {
		return nil, first(err)
	}
	name := (&target{paths: paths}).name()
	o.s.mu.Lock()
	known := o.r.observes(name)
	o.s.mu.Unlock()
	if known == nil {
		return nil, fmt.Errorf("%s is not observed", name)
	}
	o.s.cancel(o.sess, o.r, known)
	if several {
		return map[string]any{"paths": strings.Fields(name), "observed": false}, nil
	}
	return map[string]any{"path": name, "observed": false}, nil
}

// composite is the format of a composite request, which needs LwM2M 1.1.
func (o *operation) composite() (uint16, error) {
	if o.r.Version == "1.0" {
		return 0, fmt.Errorf("the device has registered with LwM2M 1.0: composite operations came with 1.1")
	}
	for _, f := range o.formats() {
		if f != content.TLV {
			return f, nil
		}
	}
	return content.SenMLCBOR, nil
}

// paths decodes the parameter paths.
func (o *operation) paths() ([]content.Path, error) {
	var names []string
	if given, err := o.argument("paths", &names); err != nil || !given {
		return nil, first(errors.Join(err, missing(given, "paths")))
	}
	paths := make([]content.Path, len(names))
	for i, name := range names {
		var ok bool
		if paths[i], ok = content.ParsePath(name); !ok {
			return nil, wrong("paths: %.40q is no path", name)
		}
	}
	if len(paths) == 0 || len(paths) > 64 {
		return nil, wrong("paths must hold 1 to 64 paths")
	}
	return paths, nil
}

func (o *operation) readComposite() (any, error) {
	paths, err := o.paths()
	if err = errors.Join(err, o.rest()); err != nil {
		return nil, first(err)
	}
	format, err := o.composite()
	if err != nil {
		return nil, err
	}
	m := &coap.Message{Code: coap.FETCH, Payload: content.EncodePaths(format, paths)}
	m.AddUint(coap.ContentFormat, uint32(format))
	m.AddUint(coap.Accept, uint32(format))
	answer, err := o.ask(m)
	if err != nil {
		return nil, err
	}
	if given, ok := answer.Uint(coap.ContentFormat); ok {
		format = uint16(given)
	}
	found, err := o.s.models(o.sess.binding.DeviceID).Decode(format, nil, answer.Payload, o.s.seconds())
	if err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	values, absent := map[string]any{}, []string{}
	for _, r := range found {
		values[r.Path.String()] = jsonOf(r.Value)
	}
	for _, p := range paths {
		if !slices.ContainsFunc(found, func(r content.Record) bool { return r.Path.Within(p) }) {
			absent = append(absent, p.String())
		}
	}
	return map[string]any{"values": values, "missing": absent, "code": answer.Code.String(), "format": content.Name(format)}, nil
}

func (o *operation) writeComposite() (any, error) {
	var values map[string]json.RawMessage
	if given, err := o.argument("values", &values); err != nil || !given {
		return nil, first(errors.Join(err, missing(given, "values")))
	}
	if err := o.rest(); err != nil {
		return nil, err
	}
	all, err := o.records(nil, values)
	if err != nil {
		return nil, err
	}
	format, err := o.composite()
	if err != nil {
		return nil, err
	}
	return o.put(coap.IPATCH, nil, nil, all, []uint16{format})
}
