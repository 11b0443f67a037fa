package mqttsource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/command"
	"weir/ingest"
	"weir/internal/mqttclient"
	"weir/model"
	"weir/registry"
)

// Ways in which a command is completed.
const (
	byResponse  = "response"  // a message on the response topic, Weir's response JSON
	byValue     = "value"     // the next message on the response topic, whatever it is
	byPublished = "published" // the acknowledgement of the broker
)

// Bounds of commands.
const (
	carrierName   = ingest.TransportExternalMQTT // by which dispatches are stored
	publishWait   = 30 * time.Second             // for the acknowledgement of the broker
	publishRoom   = 32                           // commands of a source that wait for it
	maxPlaces     = 50_000                       // devices that are remembered since they were heard: twice as many at most
	maxWaits      = 10_000                       // commands that wait for a value
	answerTries   = 3                            // of handing an answer to the log
	answerPause   = 250 * time.Millisecond
	maxTopicBytes = 65535
)

// commands is how a mapping reaches its devices, ready to be used.
type commands struct {
	complete string
	topic    *wireText
	payload  path      // nil: the whole message
	response *template // byResponse
	value    *wireText // byValue
	filter   string    // what has to be subscribed to for the response; "": nothing
}

// wireText is a text with the levels that name the device, and with paths into the message of a command, in braces.
type wireText struct {
	*text
	paths map[string]path
}

var pathInBraces = regexp.MustCompile(`\{(\$[^}]*)\}`)

// parseWireText parses a topic of commands for the devices of a mapping.
func (m *mapping) parseWireText(s string) (*wireText, error) {
	w := &wireText{paths: map[string]path{}}
	names := m.deviceLevels()
	for _, found := range pathInBraces.FindAllStringSubmatch(s, -1) {
		p, err := parsePath(found[1])
		if err != nil {
			return nil, fmt.Errorf("{%s} %w", found[1], err)
		}
		w.paths[found[1]] = p
		names = append(names, found[1])
	}
	t, err := parseText(s, &template{text: m.settings.Topic}, names...)
	if err != nil {
		return nil, fmt.Errorf("may have %s in braces, and paths into the message of the command such as {$.payload.id}", strings.Join(m.deviceLevels(), ", "))
	}
	w.text = t
	for _, p := range t.parts {
		if strings.ContainsAny(p.literal, "+#\x00") {
			return nil, errors.New("must not have wildcards")
		}
	}
	return w, nil
}

// deviceLevels are the names that stand for a device in topics of commands: {device}, which is the external id unless the template has it as a level, and
// the levels of the template that name the device.
func (m *mapping) deviceLevels() []string {
	names := []string{levelDevice}
	if m.device != nil {
		for _, p := range m.device.parts {
			if p.name != "" && p.name != levelDevice {
				names = append(names, p.name)
			}
		}
	}
	return names
}

// compileCommands parses how commands reach the devices of the mapping.
func (m *mapping) compileCommands() *Fault {
	c := &m.settings.Commands
	if c.Topic == "" {
		if c.Payload != "" || c.Response != "" {
			return &Fault{"commands.topic", "must be set: it is where commands are published"}
		}
		return nil
	}
	if m.settings.Decode == decodePresence && m.settings.All {
		return &Fault{"commands.topic", "has no device: the mapping is of all of them"}
	}
	out := &commands{complete: c.Complete}
	var err error
	if out.topic, err = m.parseWireText(c.Topic); err != nil {
		return &Fault{"commands.topic", err.Error()}
	}
	if c.Payload != "" {
		if out.payload, err = parsePath(c.Payload); err != nil {
			return &Fault{"commands.payload", err.Error()}
		}
	}
	switch {
	case c.Complete == byPublished && c.Response != "":
		return &Fault{"commands.response", "has no use with complete: published"}
	case c.Complete == byPublished:
		m.commands = out
		return nil
	case c.Response == "":
		return &Fault{"commands.response", "must be set, or complete must be published"}
	case c.Complete == byValue:
		if out.value, err = m.parseWireText(c.Response); err != nil {
			return &Fault{"commands.response", err.Error()}
		}
		out.filter = out.value.filter(m.topic.rest >= 0)
	default:
		if out.response, err = parseTemplate(c.Response); err != nil {
			return &Fault{"commands.response", err.Error()}
		}
		for _, name := range m.deviceLevels() {
			if !out.response.captures(name) && (name != levelDevice || m.device == nil || m.usesDevice()) {
				return &Fault{"commands.response", fmt.Sprintf("must have a level {%s}: it names the device", name)}
			}
		}
		out.filter = out.response.filter()
	}
	m.commands = out
	return nil
}

// usesDevice reports whether the text of the device has the level {device}.
func (m *mapping) usesDevice() bool {
	return slices.ContainsFunc(m.device.parts, func(p level) bool { return p.name == levelDevice })
}

// filter is the topic filter that covers what the text can become. several says that {device} may be several levels.
func (w *wireText) filter(several bool) string {
	var b strings.Builder
	for _, p := range w.parts {
		switch {
		case p.name == levelDevice && several:
			before := b.String()
			return before[:strings.LastIndex(before, "/")+1] + "#"
		case p.name != "":
			b.WriteByte('+')
		default:
			b.WriteString(p.literal)
		}
	}
	levels := strings.Split(b.String(), "/")
	for i, l := range levels { // a filter has nothing beside +
		if strings.Contains(l, "+") {
			levels[i] = "+"
		}
	}
	return strings.Join(levels, "/")
}

// fill makes a topic for a device and a command. What the command puts in is one level.
func (w *wireText) fill(levels captured, message any) (string, error) {
	all := maps.Clone(levels)
	for name, p := range w.paths {
		found, _ := p.find(message)
		value := textOf(found)
		if value == "" || strings.ContainsAny(value, "/+#\x00") {
			return "", fmt.Errorf("the command needs a text or a number at %s that can be a level of a topic", name)
		}
		all[name] = value
	}
	topic := w.text.fill(all)
	if topic == "" || len(topic) > maxTopicBytes || strings.ContainsAny(topic, "+#\x00") {
		return "", fmt.Errorf("%.100q is no topic", topic)
	}
	return topic, nil
}

// body is what is published of a command: the message as Weir's own broker delivers it, or what the path takes out of it. A text is published
// without quotes. A command without a payload publishes nothing where its path finds nothing.
func (c *commands) body(d command.Dispatch, message any) ([]byte, error) {
	if c.payload == nil {
		return d.Body(), nil
	}
	found, ok := c.payload.find(message)
	switch text, isText := found.(string); {
	case !ok && d.Payload == nil:
		return nil, nil
	case !ok:
		return nil, errors.New("the command has nothing at the path of commands.payload")
	case isText:
		return []byte(text), nil
	}
	return json.Marshal(found)
}

// place is where a device is heard, and so can be reached.
type place struct {
	source  *source
	mapping *mapping
	levels  captured
	binding model.Binding
	absent  bool // asserted so
	missed  bool // it could not be reached when it was asked for
}

// wait is a command that a value completes.
type wait struct {
	dispatch command.Dispatch
	binding  model.Binding
}

// waitKey is what completes it.
type waitKey struct{ source, topic string }

// carrier brings commands to the devices that have been heard through a mapping with commands. It may be called while the desk holds a lock: it
// calls the desk from goroutines only.
type carrier struct {
	t       *Transport
	desk    command.Desk
	sources []string

	mu     sync.Mutex
	places [2]map[int64]*place // by device; the first fills up and takes the place of the second
	busy   map[int64]bool      // devices with a claim or a publish under way
	waits  map[waitKey][]wait
	waitN  int // of all topics
	shut   bool
	works  sync.WaitGroup
}

var _ command.Carrier = (*carrier)(nil)

// newCarrier returns the carrier of the sources; nil when none has commands.
func newCarrier(t *Transport) *carrier {
	c := &carrier{t: t, desk: t.deps.Desk, places: [2]map[int64]*place{{}, {}}, busy: map[int64]bool{}, waits: map[waitKey][]wait{}}
	for _, s := range t.sources {
		if slices.ContainsFunc(s.mappings, func(m *mapping) bool { return m.commands != nil }) {
			c.sources = append(c.sources, s.ID)
			s.room = make(chan struct{}, publishRoom)
		}
	}
	if len(c.sources) == 0 || c.desk == nil {
		return nil
	}
	return c
}

// Commands returns what takes commands to the devices of mappings; nil where no mapping has commands.
func (t *Transport) Commands() command.Carrier {
	if t.carrier == nil {
		return nil
	}
	return t.carrier
}

// Traits implements command.Carrier. A dispatch ends with the acknowledgement of the broker, and with its connection.
func (c *carrier) Traits() command.Traits {
	return command.Traits{Name: carrierName, Sources: c.sources, Connected: true, ByAnswer: true}
}

// Rhythm implements command.Carrier: nothing is known of when a device sleeps.
func (*carrier) Rhythm(int64) (time.Duration, bool) { return 0, false }

// Reach implements command.Carrier.
func (c *carrier) Reach(device int64) command.Reach {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.place(device)
	switch {
	case p == nil:
		return command.Unknown
	case p.absent || p.source.live() == nil:
		p.missed = true
		return command.Absent
	}
	return command.Present
}

// place finds a device. It needs the lock.
func (c *carrier) place(device int64) *place {
	if p := c.places[0][device]; p != nil {
		return p
	}
	return c.places[1][device]
}

// Offer implements command.Carrier.
func (c *carrier) Offer(device int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut || c.place(device) == nil {
		return false
	}
	if c.busy[device] {
		return true // the desk offers again when this one has ended
	}
	c.busy[device] = true
	c.works.Go(func() { c.claim(device) })
	return true
}

func (c *carrier) claim(device int64) {
	c.desk.Claim(device, carrierName, func(d command.Dispatch, ok bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case ok && !c.shut:
			c.works.Go(func() { c.deliver(d) })
			return
		case ok: // the run that comes next finds it
			return
		}
		delete(c.busy, device)
	})
}

// begin runs something that calls the desk, unless the transport has stopped.
func (c *carrier) begin(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shut {
		c.works.Go(f)
	}
}

// stop waits for what is under way. What of it has no acknowledgement is sent again after the next start.
func (c *carrier) stop() {
	c.mu.Lock()
	c.shut = true
	c.mu.Unlock()
	c.works.Wait()
}

// heard notes that a device is heard through a mapping, and wakes its commands the first time.
func (c *carrier) heard(s *source, m *mapping, levels captured, external string, b model.Binding) {
	if c == nil || m.commands == nil {
		return
	}
	c.mu.Lock()
	old := c.places[0][b.DeviceID]
	if old != nil && old.source == s && old.mapping == m && old.binding == b {
		c.mu.Unlock()
		return
	}
	if old == nil && len(c.places[0]) >= maxPlaces {
		c.places[0], c.places[1] = map[int64]*place{}, c.places[0]
	}
	p := &place{source: s, mapping: m, levels: captured{levelDevice: external}, binding: b}
	for _, name := range m.deviceLevels() {
		if value, ok := levels[name]; ok {
			p.levels[name] = value
		}
	}
	known := old
	if known == nil {
		known = c.places[1][b.DeviceID]
	}
	if known != nil {
		p.absent, p.missed = known.absent && known.source == s, known.missed
	}
	c.places[0][b.DeviceID] = p
	c.t.metrics.places.Set(float64(len(c.places[0]) + len(c.places[1])))
	c.mu.Unlock()
	if known == nil {
		c.begin(func() { c.desk.Reachable(b.DeviceID) })
	}
}

// asserts notes the presence that a mapping asserts of a device.
func (c *carrier) asserts(device int64, present bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	p := c.place(device)
	back := p != nil && p.absent && present
	if p != nil {
		p.absent = !present
	}
	c.mu.Unlock()
	if back {
		c.begin(func() { c.desk.Reachable(device) })
	}
}

// up wakes the commands that have waited for a source.
func (c *carrier) up(s *source) {
	if c == nil {
		return
	}
	var missed []int64
	c.mu.Lock()
	for _, places := range c.places {
		for device, p := range places {
			if p.source == s && p.missed {
				p.missed = false
				missed = append(missed, device)
			}
		}
	}
	c.mu.Unlock()
	c.begin(func() {
		for _, device := range missed {
			c.desk.Reachable(device)
		}
	})
}

// live is the session of the source when it is up, nil otherwise.
func (s *source) live() *mqttclient.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != ingest.SourceUp || s.ending.Load() {
		return nil
	}
	return s.session
}

// Outcomes of commands, as a metric labels them.
const (
	outcomePublished = "published"
	outcomeRefused   = "refused" // by the broker, or as they are
	outcomeLost      = "lost"    // the connection ended before the acknowledgement
)

// deliver publishes a command and reports its end.
func (c *carrier) deliver(d command.Dispatch) {
	c.mu.Lock()
	p := c.place(d.DeviceID)
	var at place
	if p != nil {
		at = *p
	}
	c.mu.Unlock()
	end := func(how command.End, text string) {
		c.mu.Lock()
		delete(c.busy, d.DeviceID)
		c.mu.Unlock()
		if at.source != nil {
			outcome := map[command.End]string{command.Acknowledged: outcomePublished, command.Lost: outcomeLost}[how]
			if outcome == "" {
				outcome = outcomeRefused
			}
			c.t.metrics.commands.WithLabelValues(at.source.ID, outcome).Inc()
		}
		c.desk.Ended(command.Receipt{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Carrier: carrierName, End: how, Text: text})
	}
	if p == nil {
		end(command.Lost, "")
		return
	}
	at.source.room <- struct{}{}
	defer func() { <-at.source.room }()
	session := at.source.live()
	if session == nil || d.Expires > 0 && model.MicrosOf(c.t.deps.Now()) >= d.Expires {
		end(command.Lost, "")
		return
	}
	m := at.mapping.commands
	topic, value, body, err := m.message(d, at.levels)
	if err != nil {
		end(command.Undeliverable, err.Error())
		return
	}
	key := waitKey{at.source.ID, value}
	if m.complete == byValue && !c.await(key, wait{d, at.binding}) {
		end(command.Undeliverable, fmt.Sprintf("%d commands wait for a value already", maxWaits))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), publishWait)
	defer cancel()
	if err := session.Publish(ctx, mqttclient.Message{Topic: topic, Payload: body, QoS: 1}); err != nil {
		c.forget(key, d.Nonce)
		_, refused := errors.AsType[*mqttclient.Refused](err)
		if refused || errors.Is(err, mqttclient.ErrQoS) || errors.Is(err, mqttclient.ErrTooLarge) {
			end(command.Undeliverable, "the broker does not take the command: "+err.Error())
			return
		}
		c.t.deps.Logger.Warn("a command could not be published", "source", at.source.ID, "device", d.Device, "command", d.Token, "error", err)
		end(command.Lost, "")
		return
	}
	if m.complete == byPublished {
		c.answer(at.source, at.binding, d, nil)
	}
	end(command.Acknowledged, "")
}

// message makes topic and payload of a command, and the topic whose next message completes it.
func (c *commands) message(d command.Dispatch, levels captured) (topic, value string, body []byte, err error) {
	parsed, err := parseJSON(d.Body())
	if err != nil {
		return "", "", nil, err
	}
	if topic, err = c.topic.fill(levels, parsed); err == nil && c.value != nil {
		value, err = c.value.fill(levels, parsed)
	}
	if err == nil {
		body, err = c.body(d, parsed)
	}
	return topic, value, body, err
}

// await notes that a value completes a command. It returns false at the bound, once those are left out whose life is over.
func (c *carrier) await(key waitKey, w wait) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waitN >= maxWaits {
		now := model.MicrosOf(c.t.deps.Now())
		for key, all := range c.waits {
			all = slices.DeleteFunc(slices.Clone(all), func(w wait) bool { return w.dispatch.Expires > 0 && now >= w.dispatch.Expires })
			c.put(key, all)
		}
		if c.waitN >= maxWaits {
			return false
		}
	}
	// An earlier dispatch of the same command waits for nothing any more.
	c.put(key, append(slices.DeleteFunc(slices.Clone(c.waits[key]), func(o wait) bool {
		return o.dispatch.Token == w.dispatch.Token && o.dispatch.TenantID == w.dispatch.TenantID
	}), w))
	return true
}

// put stores what waits for a topic. It needs the lock.
func (c *carrier) put(key waitKey, all []wait) {
	c.waitN += len(all) - len(c.waits[key])
	if len(all) == 0 {
		delete(c.waits, key)
	} else {
		c.waits[key] = all
	}
	c.t.metrics.waiting.Set(float64(c.waitN))
}

func (c *carrier) forget(key waitKey, nonce string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(key, slices.DeleteFunc(slices.Clone(c.waits[key]), func(w wait) bool { return w.dispatch.Nonce == nonce }))
}

// complete completes the commands that have waited for a message. What was there before they were sent, a retained message, is none.
func (c *carrier) complete(s *source, r *received) {
	if c == nil || r.Retained {
		return
	}
	key := waitKey{s.ID, r.Topic}
	c.mu.Lock()
	all := c.waits[key]
	if len(all) > 0 {
		c.put(key, nil)
	}
	c.mu.Unlock()
	now := model.MicrosOf(c.t.deps.Now())
	for _, w := range all {
		if w.dispatch.Expires == 0 || now < w.dispatch.Expires {
			payload := bytes.Clone(r.Payload)
			c.begin(func() { c.answer(s, w.binding, w.dispatch, payload) })
		}
	}
}

// answer hands to the log that a command was successful. A payload that is no JSON is a text.
func (c *carrier) answer(s *source, b model.Binding, d command.Dispatch, payload []byte) {
	text := ""
	if len(payload) > 0 {
		text = string(payload)
		if !json.Valid(payload) {
			quoted, err := json.Marshal(text)
			if err != nil { // no text of Go fails
				quoted = nil
			}
			text = string(quoted)
		}
	}
	for try := 1; ; try++ {
		a := &ingest.Arrival{Transport: s.Name(), Source: s.ID, Tenant: b.Tenant, Topic: b.Device, Body: payload, Conn: &b, CeilingWait: ceilingWait,
			Answer: &model.Response{Command: d.Token, Nonce: d.Nonce, Success: true, Payload: text}}
		taken := make(chan ingest.Answer, 1)
		c.t.deps.Intake.Accept(context.Background(), a, func(got ingest.Answer) { taken <- got })
		got := <-taken
		if got.Outcome == ingest.Stored {
			return
		}
		if try == answerTries {
			c.t.deps.Logger.Warn("the end of a command could not be stored", "source", s.ID, "device", d.Device, "command", d.Token, "reason", got.Reason)
			return
		}
		time.Sleep(answerPause)
	}
}

// takeResponse takes a message on the response topic of a mapping. ok is false when the topic is none.
func (s *source) takeResponse(ctx context.Context, r *received) (ok bool) {
	for _, m := range s.mappings {
		if m.commands == nil || m.commands.response == nil {
			continue
		}
		levels, found := m.commands.response.match(r.Topic)
		if !found {
			continue
		}
		tenant := m.tenantOf(levels)
		id, enabled, known := s.deps.Tenant(tenant)
		external := levels[levelDevice]
		if m.device != nil {
			external = m.device.fill(levels)
		}
		switch {
		case r.Retained:
			s.ignore(r, ignoredRetained)
		case !known:
			s.drop(r, tenant, ingest.ReasonUnknownTenant)
		case !enabled:
			s.drop(r, tenant, ingest.ReasonDisabledTenant)
		default:
			b, _, err := s.deps.Adopter.Adopt(ctx, registry.Adoption{Tenant: tenant, TenantID: id, ExternalID: external, ByToken: true})
			switch {
			case errors.Is(err, registry.ErrNotAdopted):
				s.noteUnknown(external, err)
				s.drop(r, tenant, ingest.ReasonUnknownDevice)
			case err != nil:
				s.fail(r, "the device cannot be looked up", err)
			default:
				a := s.arrival(r, tenant, b.Device)
				a.Conn, a.Answers = &b, true
				s.accept(ctx, r, a)
			}
		}
		return true
	}
	return false
}
