package ingest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"weir/command"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// answerOf is an answer of a connected device to a command.
func (w *world) answerOf(device int, body string) *Arrival {
	a := w.arrival(device, body)
	a.Answers = true
	return a
}

// desk takes answers in place of the commands.
type desk struct {
	did   map[string]command.Answered // by token; Moved where it names none
	err   error
	taken []command.Response
}

func (d *desk) Answer(_ store.Tx, r command.Response) (command.Answered, error) {
	d.taken = append(d.taken, r)
	return d.did[r.Token], d.err
}

// answered is a world whose commands are those of a desk.
func answered(t *testing.T, d *desk) *world {
	t.Helper()
	w := newWorld(t, func(w *world) { w.answers = d })
	w.furnish(2)
	return w
}

// responses are the events of answers, as text.
func (w *world) responses() []string {
	w.t.Helper()
	var out []string
	w.must(w.db.Read(w.t.Context(), func(tx store.Tx) error {
		rows, err := store.EventsInOrder(tx, 1, 0, 0, 1<<40, 1000)
		for i := range rows {
			e := &rows[i]
			if e.Type == model.CommandResponse {
				out = append(out, fmt.Sprintf("%s %+v %s", e.DeviceToken, e.Response, e.Received.Nanos().Time().UTC().Format("15:04:05")))
			}
		}
		return err
	}))
	return out
}

// An answer is an event at its place in the log, and moves its command once: a replay changes nothing.
func TestAnAnswerIsKeptAndMovesItsCommandOnce(t *testing.T) {
	t.Parallel()
	d := &desk{}
	w := answered(t, d)
	w.stored(w.answerOf(1, `{"commandToken":"c-1","success":true,"dispatchNonce":"n1","payload":"21.5"}`))
	w.stored(w.answerOf(2, `{"commandToken":"c-2","success":false,"error":"jammed"}`))
	w.apply()
	want := []string{"d1 {Command:c-1 Nonce:n1 Success:true Payload:21.5 Error:} 12:00:01", "d2 {Command:c-2 Nonce: Success:false Payload: Error:jammed} 12:00:02"}
	if got := w.responses(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(d.taken) != 2 || d.taken[0].Token != "c-1" || d.taken[0].Nonce != "n1" || !d.taken[0].Success || *d.taken[0].Payload != "21.5" || d.taken[0].Error != nil ||
		d.taken[0].TenantID != 1 || d.taken[0].DeviceID != 1 || d.taken[1].Payload != nil || *d.taken[1].Error != "jammed" {
		t.Fatalf("%+v", d.taken)
	}
	w.restart()
	w.apply()
	if got := w.responses(); !slices.Equal(got, want) || len(d.taken) != 2 {
		t.Errorf("replayed: %q, and %d answers were taken", got, len(d.taken))
	}
	if n := w.ledger(); n[store.OutcomeReceived] != 2 || n[store.OutcomeStored] != 2 {
		t.Errorf("%v", n)
	}
	w.writeHead()
	if v := w.verifyDisk(); len(v.Wrongs) != 0 {
		t.Errorf("%s", wrongsOf(v))
	}
}

// The event and the move of the command are one transaction: neither is there without the other.
func TestAnAnswerThatCannotBeTakenIsTriedAgain(t *testing.T) {
	t.Parallel()
	d := &desk{err: errors.New("disk")}
	w := answered(t, d)
	w.stored(w.answerOf(1, `{"commandToken":"c-1","success":true}`))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for w.applier.Stalled() == "" {
		}
		if got := w.responses(); got != nil {
			t.Errorf("the event is there: %q", got)
		}
		w.must(w.db.Write(t.Context(), store.Results, func(store.Tx) error { d.err = nil; return nil }))
	}()
	w.apply()
	<-done
	if got := w.responses(); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

// What moves no command is kept as an event; a dead letter says why where the device may have meant one.
func TestAnswersThatMoveNothingAreKept(t *testing.T) {
	t.Parallel()
	d := &desk{did: map[string]command.Answered{"final": command.TooLate, "none": command.NoSuch, "foreign": command.NotOwner, "old": command.BadNonce, "held": command.NotSent}}
	w := answered(t, d)
	for _, token := range []string{"c-1", "final", "none", "foreign", "old", "held"} {
		w.stored(w.answerOf(1, `{"commandToken":"`+token+`","success":true}`))
	}
	w.apply()
	if got := w.responses(); len(got) != 6 {
		t.Errorf("%q", got)
	}
	got := fixture.Rows(t, w.db, `SELECT kind, reason, subject, detail FROM dead_letters ORDER BY log_offset`)
	if want := []string{"command-response unprocessable d1 answer to command old: success "}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
	again := func() []string {
		return fixture.Rows(t, w.db, `SELECT kind, tenant_id, device_id, json_extract(body, '$.commandResponse.command'), json_extract(body, '$.deviceToken') FROM outbox`)
	}
	if got, want := again(), []string{"commandResponse 1 1 none d1"}; !slices.Equal(got, want) {
		t.Errorf("answers that are tried again: %q, want %q", got, want)
	}
	if n := w.ledger(); n[store.OutcomeStored] != 6 {
		t.Errorf("%v", n)
	}
	w.restart()
	w.apply()
	if got := again(); len(got) != 1 {
		t.Errorf("replayed: %q", got)
	}
	w.writeHead()
	if v := w.verifyDisk(); len(v.Wrongs) != 0 {
		t.Errorf("%s", wrongsOf(v))
	}
}

// An answer ends in one of the ways in which a message may end, and its line of the ledger says which.
func TestEachEndOfAnAnswerIsCounted(t *testing.T) {
	t.Parallel()
	d := &desk{}
	w := answered(t, d)
	const sound = `{"commandToken":"c-1","success":true}`
	w.stored(w.answerOf(7, sound))
	foreign := w.answerOf(1, sound)
	foreign.Conn.DeviceID = 99
	w.stored(foreign)
	repeat := func(dup bool) *Arrival { a := w.answerOf(2, sound); a.PacketID, a.Dup = 4, dup; return a }
	w.stored(repeat(false))
	w.stored(repeat(true))
	old := w.answerOf(1, `{"success":true}`)
	old.CannotRefuse = true
	w.stored(old)
	if an := w.send(w.answerOf(1, `{"success":true}`)); an.Outcome != Refused || an.Reason != ReasonUndecodable || an.Text == "" {
		t.Errorf("%+v", an)
	}
	if an := w.send(w.answerOf(1, `{"commandToken":"c-1","success":true,"device":"d2"}`)); an.Outcome != Refused || an.Reason != ReasonNotAuthorized {
		t.Errorf("another device: %+v", an)
	}
	http := &Arrival{Transport: TransportHTTP, Source: "http1", Tenant: "acme", Answers: true}
	http.Body = []byte(`{"commandToken":"c-3","success":true,"credentialType":"ACCESS_TOKEN","credentialId":"token-1"}`)
	w.stored(http)
	unsigned := *http
	unsigned.Body = []byte(`{"device":"d1","commandToken":"c-4","success":true}`)
	w.stored(&unsigned)
	decoded := w.arrival(1, "bytes of its own")
	decoded.Answer = &model.Response{Command: "c-5", Success: true}
	w.stored(decoded)
	bad := w.arrival(1, "bytes of its own")
	bad.Answer = &model.Response{Command: "c-6", Success: true, Payload: "{"}
	if an := w.send(bad); an.Outcome != Refused || an.Reason != ReasonUndecodable {
		t.Errorf("%+v", an)
	}
	w.ceiling.left = 0
	for cannotRefuse, want := range map[bool]Outcome{false: Refused, true: Dropped} {
		a := w.answerOf(1, sound)
		a.CannotRefuse = cannotRefuse
		if an := w.send(a); an.Outcome != want || an.Reason != ReasonCeiling {
			t.Errorf("over the ceiling: %+v, want %v", an, want)
		}
	}
	w.apply()
	var tokens []string
	for _, r := range d.taken {
		tokens = append(tokens, fmt.Sprintf("%d %s", r.DeviceID, r.Token))
	}
	if want := []string{"2 c-1", "1 c-3", "1 c-5"}; !slices.Equal(tokens, want) {
		t.Errorf("taken %q, want %q", tokens, want)
	}
	if got, want := w.deadReasons(), []string{"unknown-device d7 answer to command c-1: success ", "bad-credential d1 answer to command c-1: success ", "undecodable d1 ",
		"bad-credential d1 answer to command c-4: success "}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
	if n := w.ledger(); n[store.OutcomeStored] != 3 || n[store.OutcomeDuplicate] != 1 || n[store.OutcomeDeadLetter] != 4 || n[store.OutcomeRefused] != 4 || n[store.OutcomeDropped] != 1 {
		t.Errorf("%v", n)
	}
	w.writeHead()
	if v := w.verifyDisk(); len(v.Wrongs) != 0 {
		t.Errorf("%s", wrongsOf(v))
	}
}
