package series

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"weir/internal/pack"
	"weir/model"
	"weir/store"
)

// The first byte of a chunk or a block. Older versions stay readable: version 1 has altIds and values in fewer forms, and
// each form identifies itself; for the other changes of version 3 of a block, see its table. The newest versions have the
// mark of the readings, a byte after the version of a chunk and a byte in each label set of a block. They are written only
// where there is a mark, so that other rows cost nothing more.
const (
	plainChunk    = 2
	chunkVersion  = 3
	plainBlock    = 3
	blockVersion  = 4
	oldestVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealed appends the checksum of what dst holds from start on.
func sealed(dst []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// unsealed checks the version and the checksum of a blob and returns the one and what lies between them.
func unsealed(blob []byte, newest byte) (version byte, body []byte, err error) {
	if len(blob) < 1+4 {
		return 0, nil, pack.ErrForm
	}
	body, sum := blob[:len(blob)-4], binary.LittleEndian.Uint32(blob[len(blob)-4:])
	// The checksum is checked first: a flipped bit in the version must not look like a newer Weir.
	if crc32.Checksum(body, castagnoli) != sum {
		return 0, nil, fmt.Errorf("checksum: %w", pack.ErrForm)
	}
	if body[0] < oldestVersion || body[0] > newest {
		return 0, nil, fmt.Errorf("%w: row format %d, this Weir knows %d", store.ErrVersion, body[0], newest)
	}
	return body[0], body[1:], nil
}

// A chunk's blob is the version, the number of readings, base time and base offset, one run, and a CRC-32C over all of
// it.

// appendChunk appends the blob of readings that are in order of time.
func (e *encoder) appendChunk(dst []byte, c *columns) []byte {
	start := len(dst)
	dst = binary.AppendUvarint(append(dst, plainChunk), uint64(c.len()))
	dst = binary.AppendVarint(dst, c.Times[0])
	dst = binary.AppendVarint(dst, c.Offsets[0])
	dst = e.appendRun(dst, c, c.Times[0], c.Offsets[0])
	return sealed(dst, start)
}

// markedChunk returns the blob of a chunk whose readings all have a mark.
func markedChunk(blob []byte, mark model.RangeMark) []byte {
	if mark == model.InRange {
		return blob
	}
	dst := append(make([]byte, 0, len(blob)+1), chunkVersion, byte(mark))
	return sealed(append(dst, blob[1:len(blob)-4]...), 0)
}

// chunkMark is the mark of a chunk's readings. Decoding the blob finds out whether it is damaged.
func chunkMark(blob []byte) model.RangeMark {
	if len(blob) < 2 || blob[0] != chunkVersion {
		return model.InRange
	}
	return model.RangeMark(blob[1])
}

// takeMark reads a mark. A marked version is written for a mark only, but a label set beside others may have none.
func takeMark(src []byte) (model.RangeMark, []byte, error) {
	if len(src) == 0 || src[0] > byte(model.MaxRangeMark) {
		return 0, nil, pack.ErrForm
	}
	return model.RangeMark(src[0]), src[1:], nil
}

// decodeChunk reads a chunk's blob into c.
func decodeChunk(blob []byte, c *columns, d depth) error {
	version, src, err := unsealed(blob, chunkVersion)
	if err != nil {
		return err
	}
	if version == chunkVersion {
		if _, src, err = takeMark(src); err != nil {
			return err
		}
	}
	n, src, err := pack.Uvarint(src)
	if err != nil || n > maxRun {
		return pack.ErrForm
	}
	baseTime, src, err := pack.Varint(src)
	if err != nil {
		return err
	}
	baseOffset, src, err := pack.Varint(src)
	if err != nil {
		return err
	}
	rest, err := decodeRun(src, int(n), baseTime, baseOffset, c, d)
	if err == nil && d == everything && len(rest) != 0 {
		return pack.ErrForm
	}
	return err
}
