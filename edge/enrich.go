package edge

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/jsonscan"
	"weir/model"
)

// number identifies a record above: what is forwarded of an epoch is numbered by the offsets of the log, or by its place among the messages of a
// platform's log, so that a record has the same number whenever it is sent.
func (e *Edge) number(epoch uint32, number uint64) string {
	return e.InstallID() + ":" + strconv.FormatUint(uint64(epoch), 10) + ":" + strconv.FormatUint(number, 10)
}

// enrich gives a JSON object the members altId and occurredTime where it lacks them, in front of what it has. Anything else is returned
// as it is.
func enrich(payload []byte, number string, received model.Nanos) []byte {
	var altID, occurred, any bool
	s := jsonscan.New(payload)
	if s.Peek() != '{' {
		return payload
	}
	open := s.Pos()
	s.Object(func(name []byte) {
		any = true
		switch string(name) {
		case "altId":
			altID = true
		case "occurredTime":
			occurred = true
		}
		s.Skip()
	})
	if s.End() != nil || altID && occurred {
		return payload
	}
	out := make([]byte, 0, len(payload)+len(number)+96)
	out = append(out, payload[:open+1]...)
	if !altID {
		out = fmt.Appendf(out, `"altId":"edge:%s"`, number)
	}
	if !occurred {
		if !altID {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, `"occurredTime":%q`, timeText(received))
	}
	if any {
		out = append(out, ',')
	}
	return append(out, payload[open+1:]...)
}

// enrichTime gives a JSON object the member occurredTime where it lacks it. Anything else is returned as it is.
func enrichTime(payload []byte, received model.Nanos) []byte {
	var occurred, any bool
	s := jsonscan.New(payload)
	if s.Peek() != '{' {
		return payload
	}
	open := s.Pos()
	s.Object(func(name []byte) {
		any = true
		occurred = occurred || string(name) == "occurredTime"
		s.Skip()
	})
	if s.End() != nil || occurred {
		return payload
	}
	out := append(make([]byte, 0, len(payload)+64), payload[:open+1]...)
	if out = fmt.Appendf(out, `"occurredTime":%q`, timeText(received)); any {
		out = append(out, ',')
	}
	return append(out, payload[open+1:]...)
}

// timeText is a time as it stands in a message.
func timeText(t model.Nanos) string { return t.Time().UTC().Format(time.RFC3339Nano) }

// cutTenant splits a user name of a Weir.
func cutTenant(user string) (tenant, credential string, ok bool) {
	tenant, credential, ok = strings.Cut(user, ":")
	return tenant, credential, ok && model.ValidToken(tenant)
}
