package sparkplug

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)

// edge is an edge node as it should be: it counts its messages and knows its births.
type edge struct {
	group, node string
	seq         uint8
	bdSeq       uint64
	at          uint64 // timestamp of the next message
	metrics     []string
	devices     map[string][]string
}

func newEdge() *edge {
	return &edge{group: "g", node: "n", at: uint64(start.UnixMilli()), metrics: []string{"temp", "level"}, devices: map[string][]string{"d": {"speed"}}}
}

func (e *edge) topic(k Kind, device string) Topic {
	return Topic{Kind: k, Group: e.group, Node: e.node, Device: device}
}

// sent is a message of an edge.
type sent struct {
	Topic
	body []byte
}

// next begins a payload with the time and the next sequence number.
func (e *edge) next() pb {
	e.at++
	b := pb{}.varint(1, e.at).varint(3, uint64(e.seq))
	e.seq++
	return b
}

func alias(device, name string) uint64 {
	n := uint64(7)
	for _, c := range device + "/" + name {
		n = n*31 + uint64(c)
	}
	return n % (1 << 40)
}

func metricBirth(device, name string, value float64) pb {
	return pb{}.text(1, name).varint(2, alias(device, name)).varint(4, uint64(Double)).double(13, value)
}

func (e *edge) birth(values ...float64) sent {
	e.seq = 0
	b := e.next().msg(2, pb{}.text(1, "bdSeq").varint(4, uint64(Int64)).varint(11, e.bdSeq)).msg(2, pb{}.text(1, rebirthMetric).varint(4, uint64(Boolean)).varint(14, 0))
	for i, name := range e.metrics {
		v := 0.0
		if i < len(values) {
			v = values[i]
		}
		b = b.msg(2, metricBirth("", name, v))
	}
	return sent{e.topic(NBIRTH, ""), b}
}

func (e *edge) deviceBirth(device string, value float64) sent {
	b := e.next()
	for _, name := range e.devices[device] {
		b = b.msg(2, metricBirth(device, name, value))
	}
	return sent{e.topic(DBIRTH, device), b}
}

func (e *edge) data(device, name string, value float64) sent {
	kind := NDATA
	if device != "" {
		kind = DDATA
	}
	return sent{e.topic(kind, device), e.next().msg(2, pb{}.varint(2, alias(device, name)).double(13, value))}
}

func (e *edge) deviceDeath(device string) sent { return sent{e.topic(DDEATH, device), e.next()} }

func (e *edge) death() sent {
	return sent{e.topic(NDEATH, ""), pb{}.varint(1, 1).msg(2, pb{}.text(1, "bdSeq").varint(4, uint64(Int64)).varint(11, e.bdSeq))}
}

// show writes effects as one text each.
func show(effects []Effect) (out []string) {
	for _, e := range effects {
		who := strings.TrimPrefix(e.ExternalID(), "g/")
		switch e.What {
		case Online, Offline:
			out = append(out, fmt.Sprintf("%s %s %s", who, map[What]string{Online: "online", Offline: "offline"}[e.What], e.Reason))
		case Readings:
			for _, s := range e.Samples {
				out = append(out, fmt.Sprintf("%s %s=%v", who, s.Name, s.Value))
			}
		case Attributes:
			for _, a := range e.Texts {
				out = append(out, fmt.Sprintf("%s %s:%s", who, a.Key, a.Value))
			}
		case NoBirth:
			out = append(out, who+" no-birth "+e.Kind.String())
		case Malformed:
			out = append(out, who+" malformed "+e.Kind.String())
		}
	}
	return out
}

// follower is a machine with a clock.
type follower struct {
	t *testing.T
	*Machine
	now time.Time
}

func newFollower(t *testing.T, change ...func(*Rules)) *follower {
	rules := Rules{ResumeWithin: 30 * time.Second, RebirthsPerSecond: 10}
	for _, c := range change {
		c(&rules)
	}
	return &follower{t: t, Machine: NewMachine(rules), now: start}
}

// gets feeds messages in and compares what follows.
func (h *follower) gets(messages []sent, want ...string) {
	h.t.Helper()
	var got []string
	for _, s := range messages {
		h.now = h.now.Add(time.Millisecond)
		got = append(got, show(h.Message(s.Topic, s.body, h.now))...)
	}
	if !slices.Equal(got, want) {
		h.t.Errorf("got  %q\nwant %q", got, want)
	}
}

// waits lets time pass and compares what follows.
func (h *follower) waits(d time.Duration, want ...string) {
	h.t.Helper()
	h.now = h.now.Add(d)
	if got := show(h.Tick(h.now)); !slices.Equal(got, want) {
		h.t.Errorf("after %s got  %q\nwant %q", d, got, want)
	}
}

// asks compares which nodes are asked for a rebirth.
func (h *follower) asks(want ...string) {
	h.t.Helper()
	if got := h.Rebirths(h.now, true); !slices.Equal(got, want) {
		h.t.Errorf("asked %q, want %q", got, want)
	}
}

func of(s ...sent) []sent { return s }

// born is a host with a node and a device that were born.
func born(t *testing.T, e *edge, change ...func(*Rules)) *follower {
	h := newFollower(t, change...)
	h.gets(of(e.birth(20, 5), e.deviceBirth("d", 7)), "n online nbirth", "n temp=20", "n level=5", "n/d online dbirth", "n/d speed=7")
	h.asks()
	return h
}

// TestANodeAndItsDevice: tck-id-payloads-alias-data-cmd-requirement, tck-id-payloads-metric-datatype-not-req.
func TestANodeAndItsDevice(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	h.gets(of(e.data("", "temp", 21), e.data("d", "speed", 8)), "n temp=21", "n/d speed=8")
	h.gets(of(e.deviceDeath("d")), "n/d offline ddeath")
	h.gets(of(e.deviceBirth("d", 9), e.death()), "n/d online dbirth", "n/d speed=9", "n offline ndeath-will", "n/d offline ndeath-will")
	h.asks()
	h.gets(of(e.death())) // the will of a session that is over
	e.bdSeq++
	h.gets(of(e.birth(1, 2)), "n online nbirth", "n temp=1", "n level=2")
}

// TestTheSequenceWraps: tck-id-payloads-sequence-num-incrementing: 255 is followed by 0.
func TestTheSequenceWraps(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	for i := range 600 {
		h.gets(of(e.data("", "temp", float64(i))), fmt.Sprintf("n temp=%d", i))
	}
	h.asks()
}

// TestAGap: tck-id-operational-behavior-host-reordering-rebirth without a timeout.
func TestAGap(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	e.data("", "temp", 1) // lost
	h.gets(of(e.data("", "temp", 2)))
	h.asks("g/n")
	h.gets(of(e.data("d", "speed", 3)))
	h.gets(of(e.birth(4, 4)), "n temp=2", "n temp=4", "n level=4")
	h.gets(of(e.deviceBirth("d", 5)), "n/d speed=3", "n/d speed=5")
	h.asks()
	if c := h.TakeCounts(); c.Rebirths[CauseGap] != 1 || h.HeldBytes() != 0 {
		t.Errorf("%+v, %d bytes", c, h.HeldBytes())
	}
}

// TestAfterAGapABirthWithOtherNames: nothing says what the aliases of what waited meant.
func TestAfterAGapABirthWithOtherNames(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	e.data("", "temp", 1)
	h.gets(of(e.data("", "temp", 2)))
	e.metrics = []string{"temp", "pressure"}
	h.gets(of(e.birth(3, 4)), "n no-birth NDATA", "n temp=3", "n pressure=4")
}

// TestReordering: tck-id-operational-behavior-host-reordering-start, -success, -rebirth.
func TestReordering(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e, func(r *Rules) { r.ReorderTimeout = 2 * time.Second })
	a, b, c := e.data("", "temp", 1), e.data("", "temp", 2), e.data("", "temp", 3)
	h.gets(of(c, b, b))
	h.asks()
	h.gets(of(a), "n temp=1", "n temp=2", "n temp=3")
	h.waits(time.Hour)
	h.asks()
	e.data("", "temp", 4)
	h.gets(of(e.deviceDeath("d")))
	h.waits(time.Second)
	h.asks()
	h.waits(2*time.Second, "n/d offline ddeath") // a death counts, whatever is missing before it
	h.asks("g/n")
}

func TestARepeatIsNoGap(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	a := e.data("", "temp", 1)
	h.gets(of(a, a), "n temp=1")
	h.asks()
	if c := h.TakeCounts(); c.Repeats != 1 {
		t.Errorf("%+v", c)
	}
}

// TestBeforeBirth: data of a node that was not born.
func TestBeforeBirth(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := newFollower(t)
	h.gets(of(e.data("", "temp", 1), e.deviceBirth("d", 2)))
	h.asks("g/n")
	h.gets(of(e.birth(3, 4)), "n online nbirth", "n no-birth NDATA", "n/d speed=2", "n temp=3", "n level=4")
	h.gets(of(e.deviceBirth("d", 5)), "n/d online dbirth", "n/d speed=5")
	h.asks()
	h.gets(of(e.data("new", "x", 1))) // a device that was not born
	h.waits(5 * time.Second)
	h.asks("g/n")
	h.gets(of(e.birth(3, 4), e.deviceBirth("d", 5)), "n temp=3", "n level=4", "n/d speed=5")
	h.waits(11*time.Second, "n/new no-birth DDATA")
}

func TestAnUnknownAlias(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	h.gets(of(e.data("", "unheard of", 1)))
	h.asks("g/n")
	h.gets(of(e.birth(3, 4)), "n temp=3", "n level=4") // the alias is unknown still
	if c := h.TakeCounts(); c.Skipped[SkippedUnknown] != 1 || c.Rebirths[CauseUnknownAlias] != 1 {
		t.Errorf("%+v", c)
	}
	// The cause stays: the waits double.
	waits := []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute}
	for _, wait := range waits {
		h.gets(of(e.deviceBirth("d", 0), e.data("", "unheard of", 1)), "n/d speed=0")
		h.now = h.now.Add(wait - 500*time.Millisecond)
		h.asks()
		h.now = h.now.Add(500 * time.Millisecond)
		h.asks("g/n")
		h.gets(of(e.birth(3, 4)), "n temp=3", "n level=4")
	}
}

// TestAMetricByNameThatTheBirthDoesNotHave is stored, since it says itself what it is, and a birth is asked for.
func TestAMetricByNameThatTheBirthDoesNotHave(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	h.gets(of(sent{e.topic(NDATA, ""), e.next().msg(2, pb{}.text(1, "new").varint(4, uint64(Int32)).varint(10, 5))}), "n new=5")
	h.asks("g/n")
}

// TestDeathsOfOtherSessions: tck-id-payloads-ndeath-bdseq, tck-id-topics-nbirth-bdseq-matching: the will of a connection that is over
// comes after the next birth.
func TestDeathsOfOtherSessions(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	old := e.death()
	e.bdSeq++
	h.gets(of(e.birth(1, 2)), "n online nbirth", "n temp=1", "n level=2")
	h.gets(of(old))
	h.gets(of(e.deviceBirth("d", 3)), "n/d speed=3")
	h.gets(of(e.death()), "n offline ndeath-will", "n/d offline ndeath-will")
}

// TestTheSameBirthOnceMore is ignored; a later one of the same session, which another host has asked for, is not, and moves no presence.
func TestTheSameBirthOnceMore(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := newFollower(t)
	b := e.birth(1, 2)
	h.gets(of(b, b), "n online nbirth", "n temp=1", "n level=2")
	h.gets(of(e.data("", "temp", 3), e.birth(4, 5)), "n temp=3", "n temp=4", "n level=5")
	h.gets(of(e.data("", "temp", 6)), "n temp=6")
	h.asks()
}

// TestADeviceThatIsNotBornAgain: after the birth of its node a device has 10 s.
func TestADeviceThatIsNotBornAgain(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	e.bdSeq++
	h.gets(of(e.birth(1, 2)), "n online nbirth", "n temp=1", "n level=2")
	h.waits(9 * time.Second)
	h.waits(2*time.Second, "n/d offline reconcile-timeout")
}

// TestAnInterruption: a node goes on without a rebirth when its first message is the expected one and the interruption was short.
func TestAnInterruption(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	h.LinkDown()
	h.now = h.now.Add(20 * time.Second)
	h.LinkUp(h.now)
	h.asks()
	h.gets(of(e.data("", "temp", 1)), "n temp=1")
	h.waits(time.Hour)
	h.asks()

	h.LinkDown()
	h.LinkUp(h.now) // long after
	h.asks("g/n")
	h.gets(of(e.data("", "temp", 2)))
	h.gets(of(e.birth(3, 3), e.deviceBirth("d", 4)), "n temp=2", "n temp=3", "n level=3", "n/d speed=4")

	h.LinkDown()
	e.data("", "temp", 5) // said meanwhile
	h.LinkUp(h.now)
	h.gets(of(e.data("", "temp", 6)))
	h.waits(5 * time.Second)
	h.asks("g/n")

	// Nobody answers.
	h.waits(9 * time.Second)
	h.waits(2*time.Second, "n offline reconcile-timeout", "n/d offline reconcile-timeout")
	h.asks()
}

// TestANodeThatIsSilentAfterAnInterruption is asked once it cannot go on without a birth.
func TestANodeThatIsSilentAfterAnInterruption(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	h.LinkDown()
	h.LinkUp(h.now)
	h.waits(29 * time.Second)
	h.asks()
	h.waits(2 * time.Second)
	h.asks("g/n")
}

func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	h.gets(of(sent{e.topic(NDATA, ""), []byte("hello")}), "n malformed NDATA")
	h.asks("g/n")
	e.seq++ // it was one of the sequence
	h.gets(of(e.data("", "temp", 2)), "n temp=2")
	twice := e.next().msg(2, pb{}.text(1, "a").varint(2, 1)).msg(2, pb{}.text(1, "b").varint(2, 1))
	h.gets(of(sent{e.topic(DBIRTH, "d2"), twice}), "n/d2 malformed DBIRTH")
	// tck-id-payloads-alias-uniqueness: over the node and its devices
	taken := e.next().msg(2, pb{}.text(1, "a").varint(2, alias("", "temp")).varint(4, 10))
	h.gets(of(sent{e.topic(DBIRTH, "d2"), taken}), "n/d2 malformed DBIRTH")
	if c := h.TakeCounts(); c.Errors != 3 || c.Rebirths[CauseMalformed] != 1 {
		t.Errorf("%+v", c)
	}
}

// TestTheRateOfRebirths: 10 a second per source, 20 at once.
func TestTheRateOfRebirths(t *testing.T) {
	t.Parallel()
	h := newFollower(t)
	for i := range 100 {
		e := newEdge()
		e.node = fmt.Sprintf("n%03d", i)
		h.Message(e.topic(NDATA, ""), e.next(), h.now)
	}
	if got := len(h.Rebirths(h.now, true)); got != 20 {
		t.Errorf("%d at once", got)
	}
	h.now = h.now.Add(time.Second)
	if got := len(h.Rebirths(h.now, true)); got != 10 {
		t.Errorf("%d after a second", got)
	}
	if c := h.TakeCounts(); c.Deferred == 0 || c.Rebirths[CauseBeforeBirth] != 100 {
		t.Errorf("%+v", c)
	}
}

// TestDroppedReadingsAreOwed once there is room.
func TestDroppedReadingsAreOwed(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	h.Dropped("g/n", h.now)
	if got := h.Rebirths(h.now, false); len(got) != 0 {
		t.Error(got)
	}
	h.asks("g/n")
	h.gets(of(e.data("", "temp", 1)), "n temp=1")
}

func TestANodeThatNeverAnswersIsForgotten(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := newFollower(t)
	h.gets(of(e.data("", "temp", 1)))
	var got []string
	for range maxAsks + 2 {
		h.Rebirths(h.now, true)
		h.now = h.now.Add(lastWait)
		got = append(got, show(h.Tick(h.now))...)
	}
	if !slices.Equal(got, []string{"n no-birth NDATA"}) || len(h.nodes) != 0 || h.HeldBytes() != 0 {
		t.Errorf("%q, %d nodes, %d bytes", got, len(h.nodes), h.HeldBytes())
	}
}

// TestWhatIsHeldIsBounded: 256 messages of a node.
func TestWhatIsHeldIsBounded(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := newFollower(t)
	for range maxHeld {
		h.gets(of(e.data("", "temp", 1)))
	}
	h.gets(of(e.data("", "temp", 1)), "n no-birth NDATA")
	big := newFollower(t)
	body := e.next().msg(2, pb{}.text(1, "x").text(15, strings.Repeat("x", maxHeldBytes/2)))
	big.gets(of(sent{e.topic(NDATA, ""), body}))
	big.gets(of(sent{e.topic(NDATA, ""), body}), "n no-birth NDATA")
}

// TestTwoNodesWithOneID: each ends the other's connection, again and again. Presence stands still and nobody is asked.
func TestTwoNodesWithOneID(t *testing.T) {
	t.Parallel()
	one, two := newEdge(), newEdge()
	two.bdSeq = 100
	h := newFollower(t)
	h.gets(of(one.birth(1, 1)), "n online nbirth", "n temp=1", "n level=1")
	for range 3 {
		h.gets(of(two.birth(2, 2)), "n online nbirth", "n temp=2", "n level=2")
		one.bdSeq++
		h.Message(one.topic(NBIRTH, ""), one.birth(1, 1).body, h.now)
		two.bdSeq++
	}
	if names := h.Duplicates(10); !slices.Equal(names, []string{"g/n"}) {
		t.Errorf("found to be two: %q", names)
	}
	if _, _, _, duplicates := h.Nodes(); duplicates != 1 {
		t.Fatal("not found")
	}
	h.gets(of(two.birth(2, 2), one.death()), "n temp=2", "n level=2")
	h.gets(of(two.data("", "temp", 3), one.data("", "temp", 4)), "n temp=3")
	h.now = h.now.Add(lastWait)
	h.asks()
	h.waits(time.Second)
	h.asks("g/n")
	if _, _, _, duplicates := h.Nodes(); duplicates != 0 {
		t.Error("for ever")
	}
}

// TestTexts are attributes when they change, at most every 10 s.
func TestTexts(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := newFollower(t)
	texts := func(pairs ...string) sent {
		b := e.next()
		for i := 0; i < len(pairs); i += 2 {
			b = b.msg(2, pb{}.text(1, pairs[i]).varint(4, uint64(String)).text(15, pairs[i+1]))
		}
		return sent{e.topic(NDATA, ""), b}
	}
	e.metrics = nil
	birth := e.birth()
	birth.body = pb(birth.body).msg(2, pb{}.text(1, "mode").varint(4, uint64(String)).text(15, "auto")).msg(2, pb{}.text(1, "name").varint(4, uint64(Text)).text(15, "x"))
	h.gets(of(birth), "n online nbirth", "n mode:auto", "n name:x")
	h.gets(of(texts("mode", "auto"), texts("mode", "manual"), texts("mode", "auto")))
	h.waits(11 * time.Second)
	h.gets(of(texts("mode", "manual")), "n mode:manual")
	h.gets(of(texts("mode", "off"), texts("mode", "on")))
	h.waits(9 * time.Second)
	h.waits(2*time.Second, "n mode:on")
	h.gets(of(texts("name", strings.Repeat("x", maxText+1))))
	if c := h.TakeCounts(); c.Skipped[SkippedTooLarge] != 1 {
		t.Errorf("%+v", c)
	}
}

// TestWhatIsNotStored is counted.
func TestWhatIsNotStored(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := newFollower(t, func(r *Rules) { r.Keep = func(name string) bool { return name != "unwanted" } })
	metric := func(name string, kind DataType) pb { return pb{}.text(1, name).varint(4, uint64(kind)) }
	b := e.birth(1, 2)
	body := pb(b.body).msg(2, metric("null", Int32).varint(7, 1)).msg(2, metric("no value", Int32)).msg(2, metric("bytes", Bytes).text(16, "x")).
		msg(2, metric("file", File).text(16, "x")).msg(2, metric("nan", Double).double(13, nan())).msg(2, metric("no type", 0).varint(10, 1)).
		msg(2, metric("mismatch", Int32).text(15, "x")).msg(2, metric("unwanted", Int32).varint(10, 1)).msg(2, metric("Device Control/x", Int32).varint(10, 1)).
		msg(2, metric("stale", Int32).varint(10, 1).msg(9, pb{}.text(1, "Quality").msg(2, pb{}.varint(1, 3).varint(3, 500))))
	h.gets(of(sent{b.Topic, body}), "n online nbirth", "n temp=1", "n level=2")
	want := map[string]int{SkippedNull: 2, SkippedType: 2, SkippedValue: 2, SkippedUnknown: 1, SkippedFiltered: 1, SkippedQuality: 1}
	for why, n := range h.TakeCounts().Skipped {
		if want[why] != n {
			t.Errorf("%s: %d, want %d", why, n, want[why])
		}
		delete(want, why)
	}
	if len(want) > 0 {
		t.Errorf("not counted: %v", want)
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

// TestTimes: the metric's, else the payload's, else now; historical values keep theirs.
func TestTimes(t *testing.T) {
	t.Parallel()
	h := newFollower(t)
	topic := Topic{Kind: NBIRTH, Group: "g", Node: "n"}
	body := func(at uint64) pb {
		return pb{}.varint(1, at).msg(2, pb{}.text(1, "a").varint(3, 5).varint(4, 3).varint(5, 1).varint(10, 1)).msg(2, pb{}.text(1, "b").varint(4, 3).varint(10, 1))
	}
	for at, want := range map[uint64][2]int64{7: {5, 7}, 0: {5, start.UnixMilli()}} {
		effects := h.Message(topic, body(at), start)
		samples := effects[len(effects)-1].Samples
		if len(samples) != 2 || samples[0].At != want[0] || samples[1].At != want[1] {
			t.Errorf("%d: %+v", at, samples)
		}
	}
}

// TestTheTimeOfADeath: of a device that of the payload, of a node the host's
// (tck-id-operational-behavior-edge-node-termination-host-action-ddeath-devices-offline, -ndeath-node-offline).
func TestTheTimeOfADeath(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	e.at -= 5000
	d := e.deviceDeath("d")
	if got := h.Message(d.Topic, d.body, h.now); len(got) != 1 || got[0].At.UnixMilli() != int64(e.at) {
		t.Errorf("%+v", got)
	}
	h.now = h.now.Add(time.Minute)
	if got := h.Message(e.topic(NDEATH, ""), e.death().body, h.now); len(got) != 1 || !got[0].At.Equal(h.now) {
		t.Errorf("%+v", got)
	}
}

// TestRowsAreWhatAMachineKnows: a machine that was restored goes on as the one that wrote.
func TestRowsAreWhatAMachineKnows(t *testing.T) {
	t.Parallel()
	e := newEdge()
	h := born(t, e)
	h.gets(of(e.data("", "temp", 1)), "n temp=1")
	stored := map[string]Row{}
	keep := func() {
		rows, gone := h.TakeRows()
		if len(gone) != 0 {
			t.Error(gone)
		}
		for _, r := range rows {
			if r.Births == nil {
				r.Births = stored[r.Node].Births
			}
			stored[r.Node] = r
		}
	}
	keep()
	h.gets(of(e.data("", "temp", 2)), "n temp=2")
	keep()
	next := newFollower(t)
	for _, r := range stored {
		if err := next.Restore(&r); err != nil {
			t.Fatal(err)
		}
	}
	next.now = h.now.Add(10 * time.Second)
	next.LinkUp(next.now)
	next.gets(of(e.data("d", "speed", 3)), "n/d speed=3")
	next.asks()
	next.gets(of(e.death()), "n offline ndeath-will", "n/d offline ndeath-will")

	r := stored["g/n"]
	for n := range r.Births {
		cut := r
		cut.Births = r.Births[:n]
		if m := NewMachine(Rules{}); m.Restore(&cut) == nil && n > 0 && len(m.nodes["g/n"].devices) == 1 {
			t.Errorf("%d of %d bytes are read", n, len(r.Births))
		}
	}
}

func FuzzRestore(f *testing.F) {
	e := newEdge()
	m := NewMachine(Rules{})
	for _, s := range of(e.birth(1, 2), e.deviceBirth("d", 3)) {
		m.Message(s.Topic, s.body, start)
	}
	rows, _ := m.TakeRows()
	f.Add(rows[0].Births)
	f.Add([]byte{rowVersion})
	f.Fuzz(func(t *testing.T, births []byte) {
		m := NewMachine(Rules{})
		if m.Restore(&Row{Node: "g/n", Online: true, Births: births}) != nil {
			return
		}
		n := m.nodes["g/n"]
		again := NewMachine(Rules{})
		if err := again.Restore(&Row{Node: "g/n", Births: n.appendBirths(nil)}); err != nil || len(again.nodes["g/n"].devices) != len(n.devices) {
			t.Fatalf("%v", err)
		}
	})
}
