package ingest

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"weir/model"
	"weir/spool"
)

// listLog hands out batches, then an error.
type listLog struct {
	batches []*spool.Batch
	err     error
	closed  bool
}

func (l *listLog) TryNext() (*spool.Batch, error) {
	if len(l.batches) == 0 {
		return nil, l.err
	}
	b := l.batches[0]
	l.batches = l.batches[1:]
	return b, nil
}

func (l *listLog) Next(context.Context) (*spool.Batch, error) { return l.TryNext() }
func (l *listLog) Close()                                     { l.closed = true }

// batchesOf are n batches of records, every third of which cannot be decoded and every fifth of which is decoded already.
func batchesOf(n int) (out []*spool.Batch) {
	r := &model.Record{Kind: model.KindMessage, Transport: TransportMQTT, Source: "mqtt1", Tenant: "acme", Account: "acme", Device: "d1", Message: &model.Message{
		Type: model.MeasurementEvent, Measurements: []model.Reading{{Metric: "temp", Value: 1}}}}
	off := model.Offset(1)
	for i := range n {
		b := &spool.Batch{Epoch: 1, First: off, Meta: []byte{byte(i)}, Weight: int64(i)}
		for j := range 1 + i%4 {
			r.PacketID, r.Message.Measurements[0].Value = uint16(i+1), float64(j)
			e := spool.Record{Data: model.AppendRecord(nil, r)}
			switch {
			case off%3 == 0:
				e.Data = []byte("no record")
			case off%5 == 0:
				e.Value, _ = model.DecodeRecord(e.Data)
			}
			b.Records = append(b.Records, e)
			off++
		}
		out = append(out, b)
	}
	return out
}

func TestReadingAheadGivesTheSameBatchesDecoded(t *testing.T) {
	t.Parallel()
	want := batchesOf(40)
	below := &listLog{batches: batchesOf(40)}
	shared := append([]*spool.Batch(nil), below.batches...)
	a := readAhead(below, want[29].Last()) // the rest is read as it is
	for i, w := range want {
		b, err := a.Next(t.Context())
		if err != nil || b.First != w.First || b.Epoch != w.Epoch || string(b.Meta) != string(w.Meta) || b.Weight != w.Weight || len(b.Records) != len(w.Records) {
			t.Fatalf("batch %d is %+v, %v; want %+v", i, b, err, w)
		}
		for j, e := range b.Records {
			plain, err := model.DecodeRecord(w.Records[j].Data)
			switch got, _ := e.Value.(*model.Record); {
			case string(e.Data) != string(w.Records[j].Data):
				t.Errorf("record %d of batch %d has other bytes", j, i)
			case i > 29 && !reflect.DeepEqual(e, w.Records[j]):
				t.Errorf("record %d of batch %d, behind the start, is %+v", j, i, e)
			case i <= 29 && (err != nil) != (e.Value == nil), i <= 29 && err == nil && !reflect.DeepEqual(got, plain):
				t.Errorf("record %d of batch %d is %+v; want %+v", j, i, got, plain)
			}
		}
	}
	a.Close()
	if !below.closed || !reflect.DeepEqual(shared, want) {
		t.Error("the batches of the log were changed, or it was not closed")
	}
}

func TestReadingAheadTellsAnErrorInItsPlaceAndGoesOnBehindIt(t *testing.T) {
	t.Parallel()
	below := &listLog{batches: batchesOf(3), err: errors.New("no disk")}
	a := readAhead(below, 1000)
	for range 3 {
		if b, err := a.Next(t.Context()); b == nil || err != nil {
			t.Fatalf("got %v, %v before the error", b, err)
		}
	}
	if _, err := a.Next(t.Context()); !errors.Is(err, below.err) {
		t.Errorf("got %v; want the error of the disk", err)
	}
	below.batches = batchesOf(1)
	if b, err := a.Next(t.Context()); b == nil || err != nil {
		t.Errorf("got %v, %v when the disk could be read again", b, err)
	}
	if b, err := a.TryNext(); b != nil || !errors.Is(err, below.err) {
		t.Errorf("got %v, %v behind it", b, err)
	}
	a.Close()
}

func TestReadingAheadEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	for taken := range 7 {
		below := &listLog{batches: batchesOf(100)}
		a := readAhead(below, 1000)
		for range taken {
			if b, err := a.TryNext(); b == nil || err != nil {
				t.Fatalf("got %v, %v", b, err)
			}
		}
		a.Close()
		if left := 100 - len(below.batches); left > taken+2*batchesAhead {
			t.Errorf("%d batches were read for one who took %d", left, taken)
		}
	}
}

func TestOfALargeBatchOnlySoMuchIsDecodedAhead(t *testing.T) {
	t.Parallel()
	one := batchesOf(1)[0]
	large := &spool.Batch{Epoch: 1, First: 1}
	for range recordsAhead + 3 {
		large.Records = append(large.Records, one.Records[0])
	}
	a := readAhead(&listLog{batches: []*spool.Batch{large}}, 1000)
	defer a.Close()
	b, err := a.Next(t.Context())
	if err != nil || len(b.Records) != recordsAhead+3 {
		t.Fatal(err)
	}
	for i, e := range b.Records {
		if (e.Value != nil) != (i < recordsAhead) {
			t.Fatalf("record %d: %v", i, e.Value)
		}
	}
}
