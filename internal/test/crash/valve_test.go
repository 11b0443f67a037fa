package crash_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/test/seed"
	"weir/internal/test/testweir"
)

// habits are what devices do with their commands.
type habit string

const (
	prompt habit = "prompt" // acknowledges and answers at once
	slow   habit = "slow"   // takes its time for both
	absent habit = "absent" // is there now and then only
	twice  habit = "twice"  // answers everything twice
	lossy  habit = "lossy"  // hangs up before it acknowledges, now and then
	paired habit = "paired" // has two sessions, each with a client id of its own
	taken  habit = "taken"  // has two connections that take the session from one another
	mute   habit = "mute"   // never answers
)

var habits = []habit{prompt, slow, absent, twice, lossy, paired, taken, mute}

// valve is a device that takes commands. It keeps on sending an answer until that is acknowledged, over every end of the instance.
type valve struct {
	books  *receipts
	tenant string
	token  string // of the device
	key    string // its credential
	habit  habit
	calm   atomic.Bool // it is there, and prompt unless it is mute

	mu     sync.Mutex
	r      *rand.Rand
	owed   []owed // oldest first
	lastID uint16
}

// owed is an answer that was not acknowledged.
type owed struct {
	command, nonce string
	on             *line  // it was sent on, nil for none
	id             uint16 // of the packet
}

// success is what a device says of a command, whenever it is asked.
func success(token string) bool {
	h := fnv.New32()
	_, _ = h.Write([]byte(token)) // it never fails
	return h.Sum32()%4 != 0
}

// receipts are the books of what devices have received, and what must never be.
type receipts struct {
	mu        sync.Mutex
	n         int
	of        map[string][]*receipt // by the token of the command
	cancelled map[string]bool       // commands of which a cancel was answered: they are CANCELLED
	wrong     []string
	answered  map[string]int // acknowledged answers by command
	busy      string         // command of an operator that a slow device has received last
}

// receipt is a command as it arrived at its device.
type receipt struct {
	number  int // in the order in which they arrived, at whatever device
	at      time.Time
	on      *line
	command string
	device  string
	nonce   string
	name    string
	payload string
	// acknowledged: the PUBACK is written. recorded: and the instance has recorded that, for it has sent the next command.
	acknowledged, recorded bool
}

func newReceipts() *receipts {
	return &receipts{of: map[string][]*receipt{}, cancelled: map[string]bool{}, answered: map[string]int{}}
}

// line is a connection of a valve. The lock of the books guards what follows mu.
type line struct {
	*testweir.MQTT
	habit   habit
	writing sync.Mutex
	ended   bool     // the device has seen its end
	last    *receipt // on it
	doubts  []string // what is wrong if the instance still serves this connection
}

// send writes a packet; that the connection has ended its reader finds out.
func (l *line) send(first byte, body []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.Send(first, body)
}

const (
	// stalled is when a dispatch without an acknowledgement may be given up although its connection lives, and less.
	stalled = 25 * time.Second
	// inTurn is for how long a command waits for the acknowledgement of the one before it, and less.
	inTurn = 4 * time.Second
)

// received takes a command into the books. A command comes once more only where the table of states allows it: under another nonce, after
// the connection of the dispatch before it has ended, and never once the instance has recorded the acknowledgement. What comes after its
// cancel was answered, or while the connection before seems to be there, may have been on its way on a connection that the instance has
// already given up: then a ping on that connection is not answered.
func (b *receipts) received(r *receipt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	r.number = b.n
	for _, a := range b.of[r.command] {
		switch {
		case a.nonce == r.nonce:
			b.complain("%s came twice in one dispatch, %s", r.command, r.nonce)
		case a.recorded:
			b.complain("%s came again, to %s, after its acknowledgement was recorded", r.command, r.device)
		case r.at.Sub(a.at) > stalled:
		case a.on == r.on:
			b.complain("%s came twice to %s on one connection", r.command, r.device)
		case !a.on.ended:
			a.on.doubt("%s came again, to %s, on another connection while this one was served", r.command, r.device)
		}
	}
	if b.cancelled[r.command] {
		r.on.doubt("%s came to %s after its cancel was answered", r.command, r.device)
	}
	if a := r.on.last; a != nil && a.acknowledged && a.command != r.command && r.at.Sub(a.at) < inTurn {
		a.recorded = true
	}
	r.on.last = r
	if r.on.habit == slow && strings.HasPrefix(r.command, operatorPrefix) {
		b.busy = r.command
	}
	b.of[r.command] = append(b.of[r.command], r)
}

func (b *receipts) complain(format string, args ...any) {
	b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
}

// doubt asks whether the instance still serves a connection.
func (l *line) doubt(format string, args ...any) {
	l.doubts = append(l.doubts, fmt.Sprintf(format, args...))
	go func() { _ = l.send(0xc0, nil) }()
}

// live keeps a device going until stop is closed, whatever becomes of the instance.
func (v *valve) live(p *testweir.Proc, stop <-chan struct{}) {
	var running sync.WaitGroup
	defer running.Wait()
	lines := []string{""}
	switch v.habit {
	case paired:
		lines = []string{"", ":b"}
	case taken:
		if !v.calm.Load() {
			lines = []string{"", ""}
		}
	}
	for _, suffix := range lines {
		v.mu.Lock()
		r := seed.Fork(v.r)
		v.mu.Unlock()
		running.Go(func() {
			for !over(stop) && !p.Over() {
				if v.habit == absent && !v.calm.Load() {
					pass(stop, time.Duration(50+r.IntN(300))*time.Millisecond)
				}
				v.connect(p, suffix, stop, r)
				pass(stop, time.Duration(1+r.IntN(20))*time.Millisecond)
			}
		})
	}
}

func over(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// pass waits, at most until stop is closed.
func pass(stop <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-stop:
	case <-t.C:
	}
}

// connect is one connection of a device, from its beginning to its end.
func (v *valve) connect(p *testweir.Proc, suffix string, stop <-chan struct{}, r *rand.Rand) {
	m, err := testweir.DialMQTT(p.MQTT, "weir", v.tenant, v.token+suffix, v.key)
	if err != nil {
		return // the instance has ended
	}
	l := &line{MQTT: m, habit: v.habit}
	gone := make(chan struct{})
	defer func() {
		close(gone)
		_ = m.Close()
		v.books.mu.Lock()
		l.ended = true
		v.books.mu.Unlock()
	}()
	life := time.Hour
	switch {
	case v.calm.Load():
	case v.habit == absent, v.habit == paired, v.habit == taken:
		life = time.Duration(20+r.IntN(200)) * time.Millisecond
	}
	go func() {
		t := time.NewTimer(life)
		defer t.Stop()
		select {
		case <-stop:
		case <-gone:
		case <-t.C:
		}
		_ = m.Close()
	}()
	topic := "weir/" + v.tenant + "/device-commands/" + v.token
	if l.send(0x82, append(append([]byte{0, 1}, text(topic)...), 1)) != nil {
		return
	}
	for {
		kind, body, err := m.Packet()
		if err != nil || !v.packet(l, kind, body, r) {
			return
		}
	}
}

func text(s string) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...) }

// packet takes a packet of the instance. It returns false where the device hangs up.
func (v *valve) packet(l *line, kind byte, body []byte, r *rand.Rand) bool {
	switch kind {
	case 9: // SUBACK: what is owed is sent again
		v.mu.Lock()
		defer v.mu.Unlock()
		for i := range v.owed {
			v.answer(l, &v.owed[i])
		}
	case 4: // PUBACK of an answer
		v.settled(l, binary.BigEndian.Uint16(body))
	case 13: // PINGRESP: the connection is served
		v.books.mu.Lock()
		v.books.wrong = append(v.books.wrong, l.doubts...)
		l.doubts = nil
		v.books.mu.Unlock()
	case 3:
		return v.command(l, body, r)
	}
	return true
}

// command takes a command.
func (v *valve) command(l *line, body []byte, r *rand.Rand) bool {
	topic := int(binary.BigEndian.Uint16(body))
	id, body := body[2+topic:4+topic], body[4+topic:]
	var c struct {
		Token, DeviceToken, Name, DispatchNonce string
		Payload                                 json.RawMessage
	}
	if err := json.Unmarshal(body, &c); err != nil || c.DeviceToken != v.token || c.Token == "" || c.DispatchNonce == "" {
		v.books.mu.Lock()
		v.books.complain("%s received %s: %v", v.token, body, err)
		v.books.mu.Unlock()
		return true
	}
	got := &receipt{at: time.Now(), on: l, command: c.Token, device: v.token, nonce: c.DispatchNonce, name: c.Name, payload: string(c.Payload)}
	v.books.received(got)
	calm := v.calm.Load()
	if v.habit == lossy && !calm && r.IntN(4) == 0 {
		return false
	}
	acknowledge := func() {
		if l.send(0x40, id) == nil {
			v.books.mu.Lock()
			got.acknowledged = true
			v.books.mu.Unlock()
		}
	}
	answer := func() {
		if v.habit == mute {
			return
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		times := 1
		if v.habit == twice {
			times = 2
		}
		for range times {
			v.owed = append(v.owed, owed{command: c.Token, nonce: c.DispatchNonce})
			v.answer(l, &v.owed[len(v.owed)-1])
		}
	}
	if v.habit != slow || calm {
		acknowledge()
		answer()
		return true
	}
	thinks := time.Duration(1+r.IntN(40)) * time.Millisecond
	time.AfterFunc(time.Duration(1+r.IntN(40))*time.Millisecond, func() {
		acknowledge()
		time.AfterFunc(thinks, answer)
	})
	return true
}

// answer sends an answer on a connection. The lock is held.
func (v *valve) answer(l *line, o *owed) {
	v.lastID = v.lastID%60000 + 1
	o.on, o.id = l, v.lastID
	body := fmt.Sprintf(`{"commandToken":%q,"dispatchNonce":%q,"success":%v,"payload":%q,"error":"jammed"}`, o.command, o.nonce, success(o.command), o.command)
	if success(o.command) {
		body = fmt.Sprintf(`{"commandToken":%q,"dispatchNonce":%q,"success":true,"payload":%q}`, o.command, o.nonce, o.command)
	}
	packet := append(text("weir/"+v.tenant+"/command-responses/"+v.token), byte(o.id>>8), byte(o.id))
	_ = l.send(0x32, append(packet, body...)) // where it fails, it is sent again on the next connection
}

// settled takes the acknowledgement of an answer.
func (v *valve) settled(l *line, id uint16) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, o := range v.owed {
		if o.on == l && o.id == id {
			v.owed = append(v.owed[:i:i], v.owed[i+1:]...)
			v.books.mu.Lock()
			v.books.answered[o.command]++
			v.books.mu.Unlock()
			return
		}
	}
}

// owes reports how many answers were not acknowledged.
func (v *valve) owes() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.owed)
}
