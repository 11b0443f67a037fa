package bolt

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/model"
	"weir/spool"
)

// golden is the frozen form of batches, by what they hold.
var golden = []struct {
	name   string
	batch  spool.Batch
	before int64
	weight uint32
	hex    string
}{
	{"one empty record",
		spool.Batch{Epoch: 1, First: 1, Records: []spool.Record{{Data: []byte{}}}}, 0, 224,
		"01 00 00000001 0000000000000001 0000000000000000 000000e0 00000001 00000000  00  eab42932"},
	{"meta and three records, one of 200 bytes",
		spool.Batch{Epoch: 0x01020304, First: 0x1122334455667788, Meta: []byte("meta"), Records: []spool.Record{
			{Data: []byte("a")}, {Data: bytes.Repeat([]byte{0xee}, 200)}, {Data: []byte("bc")}}}, 0x0102030405, 0x4050,
		"01 00 01020304 1122334455667788 0000000102030405 00004050 00000003 00000004 6d657461" +
			"01 61  c801 " + strings.Repeat("ee", 200) + " 02 6263  74b1abee"},
	{"no record",
		spool.Batch{Epoch: 7, First: 9, Meta: []byte{0}, Records: []spool.Record{}}, 1, 2,
		"01 00 00000007 0000000000000009 0000000000000001 00000002 00000000 00000001 00  1e1a14aa"},
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStoredFormOfBatchesIsFrozen(t *testing.T) {
	t.Parallel()
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			want := unhex(t, g.hex)
			got := appendBatch(nil, &g.batch, g.before, g.weight)
			if !bytes.Equal(got, want) {
				t.Fatalf("encoded\n%x\nwant\n%x", got, want)
			}
			if len(got) != batchSize(&g.batch) {
				t.Fatalf("batchSize says %d of %d bytes", batchSize(&g.batch), len(got))
			}
			b, h, err := decodeBatch(want)
			if err != nil {
				t.Fatal(err)
			}
			if h.through() != g.before+int64(g.weight) || h.last() != g.batch.Last() {
				t.Fatalf("header %+v", h)
			}
			sameBatch(t, b, &g.batch)
		})
	}
}

type failer interface {
	Helper()
	Fatalf(string, ...any)
}

func sameBatch(t failer, got, want *spool.Batch) {
	t.Helper()
	if got.Epoch != want.Epoch || got.First != want.First || !bytes.Equal(got.Meta, want.Meta) ||
		len(got.Records) != len(want.Records) {
		t.Fatalf("decoded %+v, want %+v", got, want)
	}
	for i := range want.Records {
		if !bytes.Equal(got.Records[i].Data, want.Records[i].Data) {
			t.Fatalf("record %d is %x, want %x", i, got.Records[i].Data, want.Records[i].Data)
		}
	}
}

func TestDecodeGivesBackWhatWasEncoded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := &spool.Batch{
			Epoch: rapid.Uint32().Draw(t, "epoch"),
			First: model.Offset(rapid.Uint64Range(1, 1<<63).Draw(t, "first")),
			Meta:  rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "meta"),
		}
		for _, data := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 0, 20).Draw(t, "records") {
			b.Records = append(b.Records, spool.Record{Data: data})
		}
		got, _, err := decodeBatch(appendBatch(nil, b, 5, 6))
		if err != nil {
			t.Fatalf("%v", err)
		}
		sameBatch(t, got, b)
	})
}

// sealed appends the right checksum to bytes that are otherwise wrong.
func sealed(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func TestDecodeRefusesWhatIsNoBatch(t *testing.T) {
	t.Parallel()
	whole := unhex(t, golden[1].hex)
	body := whole[:len(whole)-checksumSize]
	edit := func(at int, b ...byte) []byte {
		out := bytes.Clone(body)
		copy(out[at:], b)
		return out
	}
	for name, c := range map[string]struct {
		value []byte
		want  error
	}{
		"nothing":                        {nil, errShort},
		"version 0":                      {sealed(edit(0, 0)), errNoVersion},
		"a newer version":                {edit(0, 2), spool.ErrVersion},
		"flags of a newer version":       {sealed(edit(1, 1)), spool.ErrVersion},
		"cut inside the header":          {whole[:20], errShort},
		"cut inside a record":            {whole[:100], errChecksum},
		"one bit flipped":                {append(edit(60, 0xef), whole[len(body):]...), errChecksum},
		"meta longer than all":           {sealed(edit(30, 0xff, 0xff, 0xff, 0xff)), errForm},
		"more records than bytes":        {sealed(edit(26, 0xff, 0xff, 0xff, 0xff)), errForm},
		"one record more than there are": {sealed(edit(26, 0, 0, 0, 4)), errForm},
		"one record less than there are": {sealed(edit(26, 0, 0, 0, 2)), errForm},
		"a length that is not the shortest": {sealed(append(append(bytes.Clone(body[:batchHeaderSize+4]), 0x81, 0), body[batchHeaderSize+5:]...)),
			errForm},
		"a record longer than the rest": {sealed(edit(batchHeaderSize+4, 0x7f)), errForm},
		"offsets beyond the last":       {sealed(edit(6, bytes.Repeat([]byte{0xff}, 8)...)), errForm},
		"a weight beyond all":           {sealed(edit(14, bytes.Repeat([]byte{0xff}, 8)...)), errForm},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _, err := decodeBatch(c.value)
			if !errors.Is(err, c.want) || b != nil {
				t.Fatalf("got %v and error %v, want %v", b, err, c.want)
			}
		})
	}
}

func FuzzDecodeBatch(f *testing.F) {
	for _, g := range golden {
		whole := unhex(f, g.hex)
		f.Add(whole)
		f.Add(whole[:len(whole)-checksumSize])
		f.Add(whole[:len(whole)/2])
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		// As it is, and with its checksum put right, so that the code after the check is reached too.
		for _, v := range [][]byte{value, sealed(bytes.Clone(value))} {
			b, h, err := decodeBatch(v)
			if err != nil {
				continue
			}
			if again := appendBatch(nil, b, int64(h.before), h.weight); !bytes.Equal(again, v) {
				t.Fatalf("decoded and encoded again\n%x\nwas\n%x", again, v)
			}
		}
	})
}

func FuzzDecodeIdentity(f *testing.F) {
	f.Add(identity{epoch: 1, pair: [16]byte{1}}.encode())
	f.Fuzz(func(t *testing.T, value []byte) {
		for _, v := range [][]byte{value, sealed(bytes.Clone(value))} {
			if id, err := decodeIdentity(v); err == nil && !bytes.Equal(id.encode(), v) {
				t.Fatalf("decoded and encoded again %x, was %x", id.encode(), v)
			}
		}
	})
}
