package lograte

import (
	"testing"
	"time"
)

func TestOneMessagePerIntervalAndACountOfTheOthers(t *testing.T) {
	var e Every
	at := time.Duration(0)
	let, held := 0, int64(0)
	for range 1000 { // of a hundred seconds
		if n, ok := e.Allow(at); ok {
			let, held = let+1, held+n
		}
		at += 100 * time.Millisecond
	}
	if let != 2 || held != 599 {
		t.Errorf("%d messages, %d held back, want 2 and 599", let, held)
	}
}
