package ingest

import (
	"maps"
	"slices"
	"testing"

	"weir/ingest/links"
	"weir/store"
)

// The bytes of both formats, as they are on disk.
const (
	metaBytes1 = "\x01\x0e\x12\x01\x02\x04acme\x04mqtt\x90\x4e\x08received\x00\x06\x00" + "\x00\x04http\x90\x4e\x07refused\x09strangers\x02\x04"
	metaBytes2 = "\x02\x0e\x12\x01\x01\x04acme\x04mqtt\x05plant\x90\x4e\x00\x00\x06\x00"
	metaBytes3 = "\x03\x0e\x12\x01\x00" + "\x02\x04acme\xd0\x0f\x00\x04acme\xa0\x1f\x01"
	metaBytes4 = "\x04\x0e\x12\x01\x00" + "\x01\x04acme\xd0\x0f\x00" + "\x02\x05plant\x14\x01\x05plant\x28\x00"
)

// TestMetaWithHoldsAndTurnsIsFrozen: each version is written where its part is needed, and read.
func TestMetaWithHoldsAndTurnsIsFrozen(t *testing.T) {
	t.Parallel()
	span := links.Span{Listening: 7, Mono: 9, Open: true}
	begun, ended := links.Hold{Tenant: "acme", At: 1000}, links.Hold{Tenant: "acme", At: 2000, Ends: true}
	turns := []links.Turn{{Link: "plant", At: 10, Up: true}, {Link: "plant", At: 20}}
	for want, m := range map[string]batchMeta{
		metaBytes3: {Span: span, Moves: links.Moves{Holds: []links.Hold{begun, ended}}},
		metaBytes4: {Span: span, Moves: links.Moves{Holds: []links.Hold{begun}, Turns: turns}},
	} {
		if got := appendMeta(nil, m); string(got) != want {
			t.Errorf("%+v is written as %q, not %q", m, got, want)
		}
		if back, err := decodeMeta([]byte(want)); err != nil || back.Span != span || !slices.Equal(back.Holds, m.Holds) || !slices.Equal(back.Turns, m.Turns) {
			t.Errorf("%q reads as %+v, %v", want, back, err)
		}
	}
	for _, b := range []string{"\x05" + metaBytes4[1:], "\x04" + metaBytes3[1:], "\x03" + metaBytes4[1:], metaBytes3 + "x", metaBytes4[:len(metaBytes4)-1]} {
		if m, err := decodeMeta([]byte(b)); err == nil {
			t.Errorf("%q reads as %+v", b, m)
		}
	}
}

func TestBothMetaFormatsAreFrozen(t *testing.T) {
	t.Parallel()
	old, err := decodeMeta([]byte(metaBytes1))
	want := map[store.LedgerKey]store.LedgerCount{
		{Tenant: "acme", Transport: "mqtt", Source: "mqtt1", Hour: 5000, Outcome: store.OutcomeReceived}:                       {Messages: 3},
		{Transport: "http", Source: "http1", Hour: 5000, Outcome: store.OutcomeRefused, Reason: string(ReasonUnauthenticated)}: {Messages: 1, Readings: 2},
	}
	if err != nil || old.Span != (links.Span{Listening: 7, Mono: 9, Open: true}) || !maps.Equal(old.Counts, want) {
		t.Errorf("format 1: %+v, %v", old, err)
	}
	m := batchMeta{Span: old.Span, Counts: map[store.LedgerKey]store.LedgerCount{
		{Tenant: "acme", Transport: "mqtt", Source: "plant", Hour: 5000, Outcome: store.OutcomeReceived}: {Messages: 3}}}
	if got := appendMeta(nil, m); string(got) != metaBytes2 {
		t.Errorf("format 2 is written as %q", got)
	}
	if back, err := decodeMeta([]byte(metaBytes2)); err != nil || back.Span != m.Span || !maps.Equal(back.Counts, m.Counts) {
		t.Errorf("format 2: %+v, %v", back, err)
	}
	for _, b := range []string{"\x03" + metaBytes2[1:], "\x00" + metaBytes2[1:], metaBytes2 + "x", metaBytes2[:len(metaBytes2)-1]} {
		if m, err := decodeMeta([]byte(b)); err == nil {
			t.Errorf("%q reads as %+v", b, m)
		}
	}
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add([]byte(metaBytes1))
	f.Add([]byte(metaBytes2))
	f.Add([]byte(metaBytes3))
	f.Add([]byte(metaBytes4))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil || len(b) > 0 && b[0] == metaVersion1 {
			return
		}
		back, err := decodeMeta(appendMeta(nil, m))
		if err != nil || back.Span != m.Span || !maps.Equal(back.Counts, m.Counts) || !slices.Equal(back.Holds, m.Holds) || !slices.Equal(back.Turns, m.Turns) {
			t.Errorf("%q reads as %+v, which reads back as %+v, %v", b, m, back, err)
		}
	})
}

// TestTheLedgerBalancesPerSource: sources with names of their own, two of one transport among them, balance one by one, in the
// log and in the store; a message that is lost is missed at its source.
func TestTheLedgerBalancesPerSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(2)
	send := func(source string, n int) {
		for i := range n {
			a := w.arrival(1, temp(float64(i)))
			a.Source = source
			if an := w.send(a); an.Outcome != Stored {
				t.Fatalf("%+v", an)
			}
		}
	}
	send("north", 3)
	send("south", 5)
	w.intake.Refuse(w.intake.Received(TransportMQTT, "south", "acme", 1), ReasonNoConsumer)
	check := func(when string) {
		t.Helper()
		if v := w.verifyDisk(); len(v.Wrongs) != 0 {
			t.Errorf("%s: %s", when, wrongsOf(v))
		}
		lines, err := w.applier.Ledger().Lines(t.Context(), store.LedgerFilter{})
		w.must(err)
		got := map[string]int64{}
		for _, l := range lines {
			if got[l.Source] = l.Received.Messages; l.Missing() != 0 || l.Transport != TransportMQTT {
				t.Errorf("%s: %+v", when, l)
			}
		}
		if !maps.Equal(got, map[string]int64{"north": 3, "south": 6}) {
			t.Errorf("%s: received %v", when, got)
		}
	}
	check("in the log")
	w.apply()
	check("applied")
	w.writeHead()
	check("written")
	w.must(w.db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		_, err := tx.Exec(`UPDATE ledger SET messages = messages + 1 WHERE source = 'north' AND heading = 'received'`)
		return err
	}))
	if v := w.verifyDisk(); len(v.Wrongs) != 1 || v.Wrongs[0].Kind != WrongMessages || v.Wrongs[0].Messages != 1 {
		t.Errorf("one is missing: %s", wrongsOf(v))
	}
}
