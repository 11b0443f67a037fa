package lwm2mpeer

import (
	"fmt"
	"sync"
)

// Machine is a device with a firmware object.
type Machine struct {
	sync.Mutex
	State    int
	Result   int
	Version  string
	Next     string // version after the update
	Delivery int
	Block    int    // size of the blocks that it wants; 0: any
	Refuse   byte   // code that the package is refused with
	Becomes  int    // result of the update
	Forgets  bool   // the result in its restart
	Hold     int    // blocks after which it does not answer; 0: none
	Got      []byte // of the package
	URI      string
	Applied  int // how often it was ordered to
	Resets   int
	Restart  func() // after it was ordered to apply
}

func (d *Machine) read(path string) *Message {
	values := map[string]string{"/5/0/3": fmt.Sprintf(`"v":%d`, d.State), "/5/0/5": fmt.Sprintf(`"v":%d`, d.Result), "/5/0/9": fmt.Sprintf(`"v":%d`, d.Delivery), "/5/0/8": `"v":1`, "/3/0/3": fmt.Sprintf(`"vs":%q`, d.Version)}
	v, ok := values[path]
	if path == "/5/0/8" {
		path += "/0"
	}
	if !ok {
		return &Message{Code: Code2(4, 4)}
	}
	return &Message{Code: Code2(2, 5), Options: []Option{{Number: 12, Value: []byte{110}}}, Payload: []byte(`[{"n":"` + path + `",` + v + `}]`)}
}

// Handle answers the server.
func (d *Machine) Handle(m *Message) *Message {
	d.Lock()
	defer d.Unlock()
	path := m.Path(11)
	code := func(class, detail byte) *Message {
		return &Message{Code: Code2(class, detail)}
	}
	switch {
	case m.Code == 1:
		return d.read(path)
	case m.Code == 3 && path == "/5/0/1":
		d.URI = string(m.Payload)
		if d.URI == "" {
			d.State, d.Result, d.Resets = 0, 0, d.Resets+1
		} else {
			d.State = 1
		}
		return code(2, 4)
	case m.Code == 3 && path == "/5/0/0":
		return d.write(m)
	case m.Code == 2 && path == "/5/0/2":
		if d.State != 2 {
			return code(4, 5)
		}
		d.State, d.Applied = 3, d.Applied+1
		if d.Restart != nil {
			go d.Restart()
		}
		return code(2, 4)
	}
	return code(4, 5)
}

// write takes a block of the package.
func (d *Machine) write(m *Message) *Message {
	if d.Refuse != 0 {
		return &Message{Code: d.Refuse}
	}
	block := m.Uint(27)
	if block < 0 {
		if string(m.Payload) == "\x00" {
			d.Got, d.State, d.Result, d.Resets = nil, 0, 0, d.Resets+1
		} else {
			d.Got, d.State = m.Payload, 2
		}
		return &Message{Code: Code2(2, 4)}
	}
	number, more, size := block>>4, block&8 != 0, 16<<(block&7)
	if d.Hold > 0 && number >= d.Hold {
		return nil
	}
	if number == 0 {
		d.Got = nil
	}
	if number*size != len(d.Got) {
		if number*size+len(m.Payload) == len(d.Got) { // a repeat
			return d.continues(block, more)
		}
		return &Message{Code: Code2(4, 8)}
	}
	payload := m.Payload
	if d.Block > 0 && size > d.Block {
		payload = payload[:d.Block]
		block = block&^7 | map[int]int{16: 0, 32: 1, 64: 2, 128: 3, 256: 4, 512: 5}[d.Block]
	}
	d.Got = append(d.Got, payload...)
	if !more {
		d.State, d.Result = 2, 0
	}
	return d.continues(block, more)
}

func (d *Machine) continues(block int, more bool) *Message {
	answer := &Message{Code: Code2(2, 4), Options: []Option{{Number: 27, Value: []byte{byte(block >> 16), byte(block >> 8), byte(block)}}}}
	if more {
		answer.Code = Code2(2, 31)
	}
	return answer
}
