package lwm2m

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/pion/dtls/v3"
	"github.com/pion/dtls/v3/pkg/crypto/ciphersuite"
	"github.com/pion/dtls/v3/pkg/crypto/prf"
	"github.com/pion/dtls/v3/pkg/protocol/recordlayer"
)

// A connection id is no secret: whoever sees one datagram of a device can send others that bear it. So a parked session is woken by a record
// that its device has sent, and by no other: what is left of the session suffices to open one.

// maxProbed is how many records of a datagram are opened in search of one of the device.
const maxProbed = 2

// opener opens a record: the error says that it is forged, or damaged.
type opener interface {
	Decrypt(header recordlayer.Header, record []byte) ([]byte, error)
}

// suite is how the records of a cipher suite are sealed.
type suite struct {
	id          dtls.CipherSuiteID
	certificate bool // for handshakes with certificates; else for those with a pre-shared key
	mac, key    int  // bytes of the keys; mac is 0 for those that need none of their own
	iv          int
	open        func(k *prf.EncryptionKeys) (opener, error)
}

func ccm(tag ciphersuite.CCMTagLen) func(*prf.EncryptionKeys) (opener, error) {
	return func(k *prf.EncryptionKeys) (opener, error) {
		return ciphersuite.NewCCM(tag, k.ServerWriteKey, k.ServerWriteIV, k.ClientWriteKey, k.ClientWriteIV)
	}
}

func gcm(k *prf.EncryptionKeys) (opener, error) {
	return ciphersuite.NewGCM(k.ServerWriteKey, k.ServerWriteIV, k.ClientWriteKey, k.ClientWriteIV)
}

func cbc(mac func() hash.Hash) func(*prf.EncryptionKeys) (opener, error) {
	return func(k *prf.EncryptionKeys) (opener, error) {
		return ciphersuite.NewCBC(k.ServerWriteKey, k.ServerWriteIV, k.ServerMACKey, k.ClientWriteKey, k.ClientWriteIV, k.ClientMACKey, mac)
	}
}

// allSuites are the cipher suites that can be offered, the best first. The keys of all are made with SHA-256 (RFC 5246 section 5).
var allSuites = []suite{
	{id: dtls.TLS_PSK_WITH_AES_128_CCM_8, key: 16, iv: 4, open: ccm(ciphersuite.CCMTagLength8)},
	{id: dtls.TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8, certificate: true, key: 16, iv: 4, open: ccm(ciphersuite.CCMTagLength8)},
	{id: dtls.TLS_PSK_WITH_AES_128_CCM, key: 16, iv: 4, open: ccm(ciphersuite.CCMTagLength)},
	{id: dtls.TLS_ECDHE_ECDSA_WITH_AES_128_CCM, certificate: true, key: 16, iv: 4, open: ccm(ciphersuite.CCMTagLength)},
	{id: dtls.TLS_PSK_WITH_AES_128_GCM_SHA256, key: 16, iv: 4, open: gcm},
	{id: dtls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, certificate: true, key: 16, iv: 4, open: gcm},
	{id: dtls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, certificate: true, key: 16, iv: 4, open: gcm},
	{id: dtls.TLS_PSK_WITH_AES_128_CBC_SHA256, mac: 32, key: 16, iv: 16, open: cbc(sha256.New)},
	{id: dtls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, certificate: true, mac: 20, key: 32, iv: 16, open: cbc(sha1.New)},
}

// suiteOf returns a suite, nil for one that is not offered.
func suiteOf(id dtls.CipherSuiteID) *suite {
	for i := range allSuites {
		if allSuites[i].id == id {
			return &allSuites[i]
		}
	}
	return nil
}

// opener opens the records that the client of a session has sealed.
func (d *dtlsState) opener() (opener, error) {
	suite := suiteOf(dtls.CipherSuiteID(d.CipherSuiteID))
	if suite == nil || d.IsClient || len(d.MasterSecret) == 0 {
		return nil, errNoState
	}
	keys, err := prf.GenerateEncryptionKeys(d.MasterSecret, d.RemoteRandom[:], d.LocalRandom[:], suite.mac, suite.key, suite.iv, sha256.New)
	if err != nil {
		return nil, err
	}
	return suite.open(keys)
}

// authentic reports whether a datagram holds a record of the session's device that the session has not taken before.
func (k *parked) authentic(b []byte) bool {
	open, err := k.state.opener()
	if err != nil {
		return false
	}
	for range maxProbed {
		record, rest := nextRecord(b, len(k.id))
		if record == nil {
			return false
		}
		if k.fresh(record) {
			header := recordlayer.Header{ConnectionID: make([]byte, len(k.id))}
			if _, err := open.Decrypt(header, bytes.Clone(record)); err == nil { // it is opened in its place
				return true
			}
		}
		b = rest
	}
	return false
}

// fresh reports whether a record has keys, and a number that the session has not taken yet.
func (k *parked) fresh(record []byte) bool {
	var number [8]byte
	copy(number[2:], record[5:11])
	switch {
	case k.id != "" && (record[0] != recordWithID || string(record[idOffset:idOffset+len(k.id)]) != k.id):
		return false
	case k.id == "" && record[0] != recordData && record[0] != recordAlert && record[0] != recordHandshake:
		return false
	}
	return binary.BigEndian.Uint16(record[3:]) == k.state.RemoteEpoch && k.state.RemoteEpoch > 0 && binary.BigEndian.Uint64(number[:]) >= k.state.RemoteSequenceNumber
}

// nextRecord returns the first record of a datagram of a peer, nil for none that is whole. Those with a connection id have one of idLength bytes.
func nextRecord(b []byte, idLength int) (record, rest []byte) {
	header := recordHeader
	if len(b) > 0 && b[0] == recordWithID {
		header += idLength
	}
	if len(b) < header {
		return nil, nil
	}
	size := header + int(binary.BigEndian.Uint16(b[header-2:]))
	if len(b) < size {
		return nil, nil
	}
	return b[:size], b[size:]
}
