package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"weir/model"
	"weir/spool"
)

// The format of a batch, version 1, numbers big endian. It is frozen: a change is a new version in addition.
//
//	 0  u8   version
//	 1  u8   flags, 0
//	 2  u32  epoch
//	 6  u64  first offset
//	14  u64  weight of all batches before this one since the log began
//	22  u32  weight of this batch
//	26  u32  count of records
//	30  u32  length of meta
//	34       meta, then each record: uvarint length (shortest form), bytes
//	end u32  CRC-32C of everything before it
const (
	batchVersion    = 1
	batchHeaderSize = 34
	checksumSize    = 4
)

// castagnoli is a read-only table.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batchHeader is the fixed part of a stored batch.
type batchHeader struct {
	epoch  uint32
	first  model.Offset
	before uint64 // weight of everything before it
	weight uint32
	count  uint32
	meta   uint32 // length
}

// through is the weight of the log up to and including the batch.
func (h batchHeader) through() int64 { return int64(h.before) + int64(h.weight) }

func (h batchHeader) last() model.Offset { return h.first + model.Offset(h.count) - 1 }

// batchSize returns the length that appendBatch adds.
func batchSize(b *spool.Batch) int {
	n := batchHeaderSize + len(b.Meta) + checksumSize
	for i := range b.Records {
		n += uvarintSize(uint64(len(b.Records[i].Data))) + len(b.Records[i].Data)
	}
	return n
}

// appendBatch adds the stored form of b to dst.
func appendBatch(dst []byte, b *spool.Batch, before int64, weight uint32) []byte {
	start := len(dst)
	dst = append(dst, batchVersion, 0)
	dst = binary.BigEndian.AppendUint32(dst, b.Epoch)
	dst = binary.BigEndian.AppendUint64(dst, uint64(b.First))
	dst = binary.BigEndian.AppendUint64(dst, uint64(before))
	dst = binary.BigEndian.AppendUint32(dst, weight)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b.Records)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b.Meta)))
	dst = append(dst, b.Meta...)
	for i := range b.Records {
		dst = binary.AppendUvarint(dst, uint64(len(b.Records[i].Data)))
		dst = append(dst, b.Records[i].Data...)
	}
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// The reasons why bytes are not a batch. The caller that read them wraps them with file and offset.
var (
	errShort     = errors.New("shorter than its header")
	errChecksum  = errors.New("checksum does not match")
	errForm      = errors.New("lengths do not add up")
	errNoVersion = errors.New("no format version")
)

// peekBatch reads only the fixed part, without the checksum: for statistics, never for records.
func peekBatch(value []byte) (batchHeader, error) {
	if len(value) == 0 {
		return batchHeader{}, errShort
	}
	switch {
	case value[0] == 0:
		return batchHeader{}, errNoVersion
	case value[0] > batchVersion:
		return batchHeader{}, fmt.Errorf("%w: batch of version %d", spool.ErrVersion, value[0])
	case len(value) < batchHeaderSize+checksumSize:
		return batchHeader{}, errShort
	case value[1] != 0:
		return batchHeader{}, fmt.Errorf("%w: batch with flags %#x", spool.ErrVersion, value[1])
	}
	h := batchHeader{
		epoch:  binary.BigEndian.Uint32(value[2:]),
		first:  model.Offset(binary.BigEndian.Uint64(value[6:])),
		before: binary.BigEndian.Uint64(value[14:]),
		weight: binary.BigEndian.Uint32(value[22:]),
		count:  binary.BigEndian.Uint32(value[26:]),
		meta:   binary.BigEndian.Uint32(value[30:]),
	}
	if h.before > math.MaxInt64/2 || uint64(h.first) > math.MaxUint64-uint64(h.count) {
		return batchHeader{}, errForm
	}
	return h, nil
}

// decodeBatch reads a stored batch. Meta and records are slices of value.
func decodeBatch(value []byte) (*spool.Batch, batchHeader, error) {
	h, err := peekBatch(value)
	if err != nil {
		return nil, batchHeader{}, err
	}
	end := len(value) - checksumSize
	if crc32.Checksum(value[:end], castagnoli) != binary.BigEndian.Uint32(value[end:]) {
		return nil, batchHeader{}, errChecksum
	}
	rest := value[batchHeaderSize:end]
	if uint64(h.meta) > uint64(len(rest)) {
		return nil, batchHeader{}, errForm
	}
	b := &spool.Batch{Epoch: h.epoch, First: h.first}
	if h.meta > 0 {
		b.Meta = rest[:h.meta:h.meta]
	}
	b.Records, err = decodeRecords(rest[h.meta:], h.count)
	if err != nil {
		return nil, batchHeader{}, err
	}
	return b, h, nil
}

func decodeRecords(rest []byte, count uint32) ([]spool.Record, error) {
	if uint64(count) > uint64(len(rest)) { // each record takes a byte of length at least
		return nil, errForm
	}
	records := make([]spool.Record, count)
	for i := range records {
		size, n := binary.Uvarint(rest)
		if n <= 0 || n != uvarintSize(size) || size > uint64(len(rest)-n) {
			return nil, errForm
		}
		end := n + int(size)
		records[i].Data = rest[n:end:end]
		rest = rest[end:]
	}
	if len(rest) != 0 {
		return nil, errForm
	}
	return records, nil
}

func uvarintSize(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// The overhead of bbolt around a value, in bytes: see weigh.
const (
	pageSize     = 4096
	inlineLimit  = pageSize / 4      // a bucket up to this size lives inside its parent's leaf
	bucketBytes  = 16 + 16 + 1       // page header, element and key inside the sub-bucket
	elementBytes = 16 + keySize + 16 // element, key and bucket header inside the parent's leaf
	leafFill     = 2                 // appended leaves stay half full
	leafShare    = leafFill * elementBytes
)

// weigh returns the size that a value of size bytes takes in a span's file: whole pages when it is large, its share of a
// half-full leaf when it is small. The budget counts this, so that the log does not take more disk than a count of the
// payload shows: a lone record of 120 bytes takes about 450.
func weigh(size int) uint32 {
	bucket := bucketBytes + size
	if bucket <= inlineLimit {
		return uint32(leafFill*bucket + leafShare)
	}
	return uint32((bucket+pageSize-1)/pageSize*pageSize + leafShare)
}
