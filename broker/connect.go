package broker

import (
	"crypto/rand"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"weir/model"
	"weir/provision"
)

// connect is a decoded CONNECT packet.
type connect struct {
	version   byte // mqtt311 or mqtt5; also set in a refused packet as far as it was read, else 0
	clean     bool
	keepAlive uint16 // seconds, 0 for none
	clientID  string
	user      string
	password  string
	will      *will
	expiry    uint32 // session expiry interval in seconds
	maxPacket uint32 // the largest packet that the client takes, 0 for no limit
	// How many messages may be in flight to the client, 0 where it names no number, and how many topic aliases it takes.
	receiveMaximum, aliasMaximum uint16
	bridge                       bool // marked by the highest bit of the version, as mosquitto does
	problemInfo                  bool // reason strings are welcome
	shown                        certificate
	local                        bool       // the program itself, see DialOpen
	from                         netip.Addr // the zero Addr where the connection has none
}

// will is a will message.
type will struct {
	topic   string
	payload []byte
	qos     byte
	retain  bool
	delay   uint32 // seconds
	props   []byte // what is passed on with it, as it came
	expiry  uint32 // seconds that it may wait for a reader, when expires is set
	expires bool
}

// refusal is a CONNECT turned away. code is for MQTT 5, v3 for 3.1.1; 0 means that the connection is closed without an
// answer, as 3.1.1 wants it for a malformed CONNECT (section 4.8).
type refusal struct {
	code, v3 byte
	why      string // the label of the metric
}

var (
	refuseMalformed  = &refusal{code: codeMalformed, why: "malformed"}
	refuseProtocol   = &refusal{code: codeProtocolError, why: "malformed"}
	refuseName       = &refusal{why: "protocol-name"}
	refuseVersion    = &refusal{code: codeUnsupportedVersion, v3: connackUnsupported, why: "protocol-version"}
	refuseAuthMethod = &refusal{code: codeBadAuthMethod, why: "authentication-method"}
	refuseWillQoS    = &refusal{code: codeQoSNotSupported, v3: connackNotAuthorized, why: "will-qos"}
	refuseWillRetain = &refusal{code: codeRetainNotSupported, why: "will-retain"}
	refuseClientID   = &refusal{code: codeClientIDNotValid, v3: connackIdentifier, why: "client-id"}
	refuseNameless   = &refusal{v3: connackIdentifier, why: "client-id"}
	refusePacketSize = &refusal{code: codePacketTooLarge, why: "packet-size"}
	refuseSmallest   = &refusal{why: "packet-size"} // the client takes not even a refusal
	refuseBusy       = &refusal{code: codeServerBusy, v3: connackUnavailable, why: "busy"}
	refuseStopping   = &refusal{code: codeShuttingDown, v3: connackUnavailable, why: "stopping"}
	// One answer for every identity error, so that it reveals nothing to an unauthenticated client.
	refuseIdentity = &refusal{code: codeNotAuthorized, v3: connackNotAuthorized, why: "not-authorized"}
	// As refuseIdentity to the client, which learns no more; those who watch do.
	refuseCredential = &refusal{code: codeNotAuthorized, v3: connackNotAuthorized, why: "not-authorized"}
	refuseDevice     = &refusal{code: codeNotAuthorized, v3: connackNotAuthorized, why: "not-authorized"}
	refuseWillTopic  = &refusal{code: codeNotAuthorized, v3: connackNotAuthorized, why: "not-authorized"} // a word of its own in reports only
)

// Flags of a CONNECT, section 3.1.2.3.
const (
	flagReserved   = 1 << 0
	flagClean      = 1 << 1
	flagWill       = 1 << 2
	flagWillRetain = 1 << 5
	flagPassword   = 1 << 6
	flagUser       = 1 << 7
)

// decodeConnect decodes what follows the fixed header of a CONNECT (section 3.1 of both versions). It accepts MQTT 3.1.1
// and 5.0 only.
func decodeConnect(body []byte) (connect, *refusal) {
	c := cursor{b: body}
	name, level := string(c.text()), c.byte()
	if c.bad || name != "MQTT" {
		if name == "MQIsdp" && !c.bad {
			return connect{version: mqtt311}, refuseVersion
		}
		return connect{}, refuseName
	}
	bridge := level == mqtt311|bridgeBit
	if bridge {
		level = mqtt311
	}
	p := connect{version: level, problemInfo: true, bridge: bridge}
	if level != mqtt311 && level != mqtt5 {
		return connect{version: mqtt311}, refuseVersion // in the form that the oldest of them can read
	}
	flags := c.byte()
	p.keepAlive = c.uint16()
	p.clean = flags&flagClean != 0
	if !soundFlags(flags, level) {
		return p, refuseMalformed
	}
	if level == mqtt5 {
		if r := p.properties(&c); r != nil {
			return p, r
		}
	} else if !p.clean {
		p.expiry = math.MaxUint32
	}
	p.clientID = string(c.text())
	if flags&flagWill != 0 {
		p.will = &will{qos: flags >> 3 & 3, retain: flags&flagWillRetain != 0}
		if code := p.will.read(&c, level); code != codeSuccess {
			return p, &refusal{code: code, why: refuseMalformed.why}
		}
	}
	if flags&flagUser != 0 {
		p.user = string(c.text())
	}
	if flags&flagPassword != 0 {
		p.password = string(c.binary())
	}
	if c.bad || len(c.b) > 0 {
		return p, refuseMalformed
	}
	return p, nil
}

// bridgeBit is set in the protocol level by bridges.
const bridgeBit = 0x80

// forDevice refuses requests that no device may make: to be a bridge, and a retained will (MQTT-3.2.2-13). 3.1.1 has no code
// for the second, and the flag is ignored there.
func (p *connect) forDevice() *refusal {
	if p.bridge {
		return refuseVersion
	}
	if p.will != nil && p.will.retain && p.version == mqtt5 {
		return refuseWillRetain
	}
	return nil
}

func soundFlags(flags, level byte) bool {
	switch {
	case flags&flagReserved != 0: // MQTT-3.1.2-3
	case flags&flagWill == 0 && flags&(flagWillRetain|3<<3) != 0: // MQTT-3.1.2-11, -13
	case flags>>3&3 == 3: // MQTT-3.1.2-12
	case level == mqtt311 && flags&flagPassword != 0 && flags&flagUser == 0: // MQTT-3.1.2-22 of 3.1.1
	default:
		return true
	}
	return false
}

func (p *connect) properties(c *cursor) *refusal {
	method, data := false, false
	code := properties(c, pktConnect, func(id, v uint32) byte {
		switch id {
		case propSessionExpiry:
			p.expiry = v
		case propAuthMethod:
			method = true
		case propAuthData:
			data = true
		case propRequestProblemInfo:
			p.problemInfo = v == 1
			if v > 1 {
				return codeProtocolError
			}
		case propRequestResponseInfo:
			if v > 1 {
				return codeProtocolError
			}
		case propReceiveMaximum:
			p.receiveMaximum = uint16(v)
			if v == 0 {
				return codeProtocolError
			}
		case propTopicAliasMaximum:
			p.aliasMaximum = uint16(v)
		case propMaximumPacketSize:
			p.maxPacket = v
			if v == 0 {
				return codeProtocolError
			}
		}
		return codeSuccess
	})
	switch {
	case code == codeMalformed:
		return refuseMalformed
	case code != codeSuccess:
		return refuseProtocol
	case method: // no extended authentication is offered, section 4.12
		return refuseAuthMethod
	case data: // MQTT-3.1.2.11.10: data without a method
		return refuseProtocol
	}
	return nil
}

func (w *will) read(c *cursor, level byte) byte {
	if level == mqtt5 {
		whole := *c
		code := properties(c, pktWill, func(id, v uint32) byte {
			switch id {
			case propWillDelay:
				w.delay = v
			case propMessageExpiry:
				w.expiry, w.expires = v, true
			}
			return codeSuccess
		})
		if code != codeSuccess {
			return code
		}
		w.props = passOn(&whole)
	}
	w.topic = string(c.text())
	w.payload = append([]byte(nil), c.binary()...)
	return codeSuccess
}

// minConnack is the size of the largest CONNACK of MQTT 5 for a device, minRefusal of one that refuses.
const (
	minConnack = 31
	minRefusal = 5
)

// serves refuses a client that no session can serve: one of 3.1.1 that wants its session kept without a client id
// (MQTT-3.1.3-8 of 3.1.1), and one that takes no packet of the size of a CONNACK: nothing larger than it takes may be sent
// (MQTT-3.1.2-24).
func (p *connect) serves() *refusal {
	switch {
	case p.version == mqtt311 && p.clientID == "" && !p.clean:
		return refuseNameless
	case p.maxPacket == 0 || p.maxPacket >= minConnack:
		return nil
	case p.maxPacket < minRefusal:
		return refuseSmallest
	}
	return refusePacketSize
}

// assign chooses a client id for a client that has none (MQTT-3.1.3-6).
func (p *connect) assign() (assigned bool, r *refusal) {
	switch {
	case p.clientID != "":
		return false, nil
	case p.maxPacket > 0 && p.maxPacket < minConnack+minForID:
		return false, refusePacketSize
	}
	p.clientID = autoName + rand.Text()
	return true, nil
}

const (
	autoName = "auto-"
	minForID = 34 // bytes more of a CONNACK that holds an assigned client id
)

// identity is who a CONNECT claims to be.
type identity struct {
	tenant, device string
	client         string // the client id by which the session is known: unique in the instance
	free           bool   // the client id has a form of its own: the credential alone names the device
	suffixed       bool   // the client id names the device and has a suffix of the device's choice
	assigned       bool   // the client id is the server's choice
	topics         topics
	claim          Claim
	admitted       *provision.Grant // of a provisioning connection
}

// maxSuffix bounds what the device chooses of its client id, in bytes: it is kept with every record.
const maxSuffix = 128

// identify takes apart user name and client id: user name {tenant}:{credentialId}, or {tenant}: where the certificate of
// the connection is the credential. The client id may name the device, in the form {instanceId}:{tenant}:{deviceToken},
// optionally with : and a suffix; then the credential must be of that device. Any other client id leaves it to the credential.
// mistake says for the operator what is wrong, "" when nothing is; it holds no part of a user name or password, which may be a
// credential. The parts that could be read are set in any case.
func (p *connect) identify(instance string) (id identity, mistake string) {
	tenant, credential, ok := strings.Cut(p.user, ":")
	byCertificate := ok && credential == "" && p.password == "" && p.shown.hash != ""
	const wantUser = "write it as TENANT:ACCESS_TOKEN"
	switch {
	case p.user == "" && p.password == "":
		return id, "there is no user name: " + wantUser
	case p.user == "":
		return id, "there is a password and no user name: the access token belongs into the user name, " + wantUser
	case !ok:
		return id, "the user name has no tenant: " + wantUser
	case !model.ValidToken(tenant):
		return id, "the user name does not begin with the token of a tenant: " + wantUser
	}
	id.tenant = tenant
	if credential == "" && !byCertificate {
		return id, "the user name has no credential after the tenant: " + wantUser
	}
	id.claim = Claim{Tenant: tenant, Type: AccessToken, ID: credential}
	if byCertificate {
		id.claim.Type, id.claim.ID = X509Certificate, p.shown.hash
	}
	if p.password != "" {
		id.claim.Type, id.claim.Secret = MQTTBasic, p.password
	}
	return id, id.readClientID(p.clientID, instance)
}

// readClientID finds out whether the client id names the device, and returns what is wrong with it.
func (id *identity) readClientID(clientID, instance string) (mistake string) {
	parts := strings.SplitN(clientID, ":", 4)
	if parts[0] != instance && (len(parts) < 3 || parts[1] != id.tenant) || len(parts) == 1 {
		if id.free = true; len(clientID) > maxSuffix {
			return fmt.Sprintf("client id %s has more than %d bytes", shownID(clientID), maxSuffix)
		}
		return ""
	}
	switch {
	case len(parts) < 3 || !model.ValidToken(parts[2]):
		return fmt.Sprintf("client id %s is not %s:%s:DEVICE", shownID(clientID), instance, id.tenant)
	case parts[0] != instance:
		return fmt.Sprintf("client id %s does not begin with %s, the id of this instance", shownID(clientID), instance)
	case parts[1] != id.tenant:
		return fmt.Sprintf("client id %s names another tenant than the user name, %s", shownID(clientID), id.tenant)
	}
	id.device, id.suffixed = parts[2], len(parts) == 4
	if id.suffixed && (parts[3] == "" || len(parts[3]) > maxSuffix) {
		return fmt.Sprintf("the suffix of client id %s must have 1 to %d bytes", shownID(clientID), maxSuffix)
	}
	return ""
}

// prove completes the identity with the device that the credential has proven. A client id of a free form counts per device, so
// that those of two devices may be equal.
func (id *identity) prove(clientID, instance, device string) {
	id.device, id.topics, id.client = device, topicsOf(instance, id.tenant, device), clientID
	if id.free {
		id.client = instance + ":" + id.tenant + ":" + device + "/" + clientID
	}
}

// shownID is a client id as a report shows it. It may be long.
func shownID(id string) string {
	const most = 64
	if len(id) > most {
		return fmt.Sprintf("%.*q…", most, id)
	}
	return strconv.Quote(id)
}
