package httpingest

import (
	"errors"
	"sync"
	"time"

	"weir/command"
)

// httpCarrier is the name by which dispatches over HTTP are stored.
const httpCarrier = "http"

// maxPolled is how many devices are remembered that have fetched commands since the start: twice as many at most.
const maxPolled = 50_000

// polls are the devices that fetch their commands: one request of each may wait. It is a command.Carrier. A dispatch ends when the
// device names its command as received, or answers it; the next request that does neither gives it back.
type polls struct {
	source string
	most   int
	desk   command.Desk

	mu      sync.Mutex
	open    map[int64]*fetching
	polled  [2]map[int64]struct{} // devices that have polled; the first fills up and takes the place of the second
	closing bool
}

// fetching is a request of a device for a command. The lock of its polls guards it.
type fetching struct {
	device   int64
	claiming bool
	over     bool                  // it takes no command any more
	ended    chan struct{}         // closed when a newer one of the device has come, or at a stop
	got      chan command.Dispatch // holds the command
	none     chan struct{}         // has a value when a claim has found none
}

func newPolls(source string, most int, desk command.Desk) *polls {
	return &polls{source: source, most: most, desk: desk, open: map[int64]*fetching{}, polled: [2]map[int64]struct{}{{}, {}}}
}

// Traits implements command.Carrier.
func (p *polls) Traits() command.Traits {
	return command.Traits{Name: httpCarrier, Sources: []string{p.source}, Holds: true}
}

// Rhythm implements command.Carrier: when a device polls next is not known.
func (p *polls) Rhythm(int64) (time.Duration, bool) { return 0, false }

// Reach implements command.Carrier: a device is there while a request of it waits.
func (p *polls) Reach(device int64) command.Reach {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[device] != nil {
		return command.Present
	}
	for _, known := range p.polled {
		if _, ok := known[device]; ok {
			return command.Absent
		}
	}
	return command.Unknown
}

// Offer implements command.Carrier.
func (p *polls) Offer(device int64) bool {
	p.mu.Lock()
	one := p.open[device]
	p.mu.Unlock()
	if one == nil {
		return false
	}
	p.claim(one)
	return true
}

var (
	errTooManyPolls = errors.New("httpingest: too many requests for commands wait")
	errStopping     = errors.New("httpingest: the instance is stopping")
)

// begin takes up a request; the one of the device before it ends. received are the commands that the device has.
func (p *polls) begin(device int64, received []string) (*fetching, error) {
	one := &fetching{device: device, ended: make(chan struct{}), got: make(chan command.Dispatch, 1), none: make(chan struct{}, 1)}
	p.mu.Lock()
	older := p.open[device]
	switch {
	case p.closing:
		p.mu.Unlock()
		return nil, errStopping
	case older == nil && len(p.open) >= p.most:
		p.mu.Unlock()
		return nil, errTooManyPolls
	case older != nil:
		close(older.ended)
		older.over = true
	}
	p.open[device] = one
	p.remember(device)
	p.mu.Unlock()
	for _, token := range received {
		p.desk.Ended(command.Receipt{DeviceID: device, Token: token, Carrier: httpCarrier, End: command.Acknowledged})
	}
	p.desk.Ended(command.Receipt{DeviceID: device, Carrier: httpCarrier, End: command.Lost}) // what it does not name
	p.desk.Reachable(device)
	p.claim(one)
	return one, nil
}

// remember notes that a device polls. It needs the lock.
func (p *polls) remember(device int64) {
	if len(p.polled[0]) >= maxPolled {
		p.polled[0], p.polled[1] = map[int64]struct{}{}, p.polled[0]
	}
	p.polled[0][device] = struct{}{}
}

// claim asks the desk for the command of a request, unless it has been asked or the request has one.
func (p *polls) claim(one *fetching) {
	p.mu.Lock()
	if one.claiming || one.over {
		p.mu.Unlock()
		return
	}
	one.claiming = true
	p.mu.Unlock()
	p.desk.Claim(one.device, httpCarrier, func(d command.Dispatch, ok bool) { p.claimed(one, d, ok) })
}

// claimed hands a command to the request that was to get it.
func (p *polls) claimed(one *fetching, d command.Dispatch, ok bool) {
	p.mu.Lock()
	one.claiming = false
	taken := ok && !one.over
	one.over = one.over || taken
	p.mu.Unlock()
	switch {
	case taken:
		one.got <- d
	case ok:
		p.lost(d)
	default:
		select {
		case one.none <- struct{}{}:
		default:
		}
	}
}

// lost gives a command back that nobody was sent.
func (p *polls) lost(d command.Dispatch) {
	p.desk.Ended(command.Receipt{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Carrier: httpCarrier, End: command.Lost})
}

// end takes a request out and returns the command that it got at the last moment.
func (p *polls) end(one *fetching) (d command.Dispatch, ok bool) {
	p.mu.Lock()
	one.over = true
	if p.open[one.device] == one {
		delete(p.open, one.device)
	}
	p.mu.Unlock()
	select {
	case d = <-one.got:
		return d, true
	default:
		return d, false
	}
}

// shut ends every request that waits, and admits no other.
func (p *polls) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing = true
	for device, one := range p.open {
		one.over = true
		close(one.ended)
		delete(p.open, device)
	}
}

// known is how many devices are remembered to poll.
func (p *polls) known() int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.polled[0])
	for device := range p.polled[1] {
		if _, twice := p.polled[0][device]; !twice {
			n++
		}
	}
	return n
}

// len is how many requests are open.
func (p *polls) len() int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}
