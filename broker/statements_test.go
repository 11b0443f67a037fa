package broker

// stand is how Weir stands to a statement of the standard.
type stand string

const (
	conforming stand = "conforms"
	refused    stand = "refused by policy" // with the code that the row names
	off        stand = "not offered"       // stated in the CONNACK if it has a field for it
	ofClients  stand = "of clients"        // binds the client only; the row says what follows from a violation
	departs    stand = "departs"           // deliberate; the row gives the reason
)

// statement is one normative statement, or several of one matter, of MQTT 5.0 and of 3.1.1, in our words.
type statement struct {
	v5, v3 string // numbers, as "3.1.0-1 3.1.0-2"
	says   string
	stand  stand
	how    string
	also   string // tests that show it besides the cases that name the number
}

// chapter is a subject of the list.
type chapter struct {
	title string
	list  []statement
}

// normative is every numbered statement of both standards: section and the last number in it, which begin with 1. Only
// 2.2.1-1 of 5.0 was never given.
var normative = map[string]map[string]int{
	"5.0": {
		"1.5.4": 3, "1.5.5": 1, "1.5.7": 1, "2.1.3": 1, "2.2.1": 6, "2.2.2": 1, "3.1.0": 2, "3.1.2": 30, "3.1.3": 12, "3.1.4": 6, "3.2.0": 2,
		"3.2.2": 22, "3.3.1": 13, "3.3.2": 20, "3.3.4": 10, "3.4.2": 3, "3.5.2": 3, "3.6.1": 1, "3.6.2": 3, "3.7.2": 3, "3.8.1": 1, "3.8.3": 5,
		"3.8.4": 8, "3.9.2": 2, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2, "3.10.4": 6, "3.11.2": 2, "3.11.3": 2, "3.12.4": 1, "3.14.0": 1,
		"3.14.1": 1, "3.14.2": 4, "3.14.4": 3, "3.15.1": 1, "3.15.2": 3, "4.1.0": 2, "4.2.0": 1, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13,
		"4.4.0": 2, "4.5.0": 2, "4.6.0": 6, "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3, "4.12.0": 7,
		"4.12.1": 2, "4.13.1": 1, "4.13.2": 1, "6.0.0": 4,
	},
	"3.1.1": {
		"1.5.3": 3, "2.2.2": 2, "2.3.1": 7, "3.1.0": 2, "3.1.2": 24, "3.1.3": 11, "3.1.4": 5, "3.2.0": 1, "3.2.2": 6, "3.3.1": 12, "3.3.2": 3,
		"3.3.4": 1, "3.3.5": 2, "3.6.1": 1, "3.8.1": 1, "3.8.3": 4, "3.8.4": 6, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2, "3.10.4": 6,
		"3.12.4": 1, "3.14.1": 1, "3.14.4": 3, "4.1.0": 2, "4.3.1": 1, "4.3.2": 2, "4.3.3": 2, "4.4.0": 1, "4.5.0": 2, "4.6.0": 6,
		"4.7.1": 3, "4.7.2": 1, "4.7.3": 4, "4.8.0": 2, "6.0.0": 4, "7.0.0": 2, "7.1.1": 1, "7.1.2": 1,
	},
}

// statements are all of them.
var statements = []chapter{
	{"Packets and their fields", []statement{
		{"1.5.4-1 1.5.4-2", "1.5.3-1 1.5.3-2", "strings are well-formed UTF-8 without surrogates and U+0000", conforming, "0x81, closed", ""},
		{"1.5.4-3", "1.5.3-3", "U+FEFF is not skipped or stripped", conforming, "", ""},
		{"1.5.5-1", "", "a variable byte integer takes no more bytes than it needs", conforming, "0x81, closed, in 3.1.1 too", ""},
		{"1.5.7-1", "", "both strings of a user property are well-formed", conforming, "0x81", ""},
		{"2.1.3-1", "2.2.2-1 2.2.2-2", "reserved flags have their values", conforming, "0x81, closed", ""},
		{"2.2.1-2", "2.3.1-5", "a PUBLISH at QoS 0 has no packet identifier", conforming, "the bytes after the topic are payload", ""},
		{"2.2.1-3", "2.3.1-1 2.3.1-2", "a new packet has a packet identifier that is not 0 and not in use", conforming, "0x82, closed after the earlier packets are acknowledged", "TestIdentifierInUseIsAProtocolError"},
		{"", "2.3.1-3", "a resent packet keeps its identifier", ofClients, "a repeat in flight is acknowledged once; on a new connection Weir recognises it by DUP, identifier and content", "TestRepeatInFlightIsAcknowledgedOnce"},
		{"2.2.1-4", "2.3.1-4", "the server sends no packet with an identifier in use", conforming, "", "TestBothDirectionsHaveTheirOwnIdentifiers"},
		{"2.2.1-5 2.2.1-6", "2.3.1-6 2.3.1-7", "an acknowledgement has the identifier of the acknowledged packet", conforming, "", ""},
		{"2.2.2-1", "", "a length precedes the properties, 0 if there are none", conforming, "repeated property 0x82; unknown, misplaced or truncated property 0x81", ""},
		{"4.2.0-1", "7.1.1-1", "the transport is an ordered, lossless stream", conforming, "TCP, TLS, WebSocket, secure WebSocket", "TestEveryPacketSplitAtEveryByte"},
		{"4.13.1-1 4.13.2-1", "4.8.0-1 4.8.0-2", "malformed packets, protocol errors and packets that cannot be processed end the connection", conforming, "5.0 receives a DISCONNECT with the code, 3.1.1 is closed", "TestHostilePacketsEndTheConnectionExactly"},
		{"", "7.0.0-1 7.0.0-2 7.1.2-1", "a server that connects to servers is also a client; nothing beyond the standard is required", conforming, "", "TestPahoAgrees"},
	}},
	{"CONNECT", []statement{
		{"3.1.0-1", "3.1.0-1", "the first packet is a CONNECT", conforming, "closed without an answer", ""},
		{"3.1.0-2", "3.1.0-2", "a second CONNECT is a protocol error", conforming, "0x82, closed", ""},
		{"3.1.2-1", "3.1.2-1", "a CONNECT with another protocol name is not processed", conforming, "closed without an answer", ""},
		{"3.1.2-2", "3.1.2-2", "an unsupported protocol level is refused", conforming, "CONNACK 0x01 of 3.1.1, which clients of every version can read", ""},
		{"3.1.2-3", "3.1.2-3", "the reserved flag is 0", conforming, "0x81; 3.1.1 is closed without an answer", ""},
		{"3.1.2-11 3.1.2-12 3.1.2-13", "3.1.2-11 3.1.2-13 3.1.2-14 3.1.2-15", "the will flags do not contradict each other", conforming, "0x81; 3.1.1 is closed without an answer", ""},
		{"3.1.2-9 3.1.2-16 3.1.2-17 3.1.2-18 3.1.2-19", "3.1.2-9 3.1.2-18 3.1.2-19 3.1.2-20 3.1.2-21", "the fields that the flags announce are present, and no others", conforming, "0x81; 3.1.1 is closed without an answer", ""},
		{"", "3.1.2-22", "no password without a user name", conforming, "closed without an answer", ""},
		{"3.1.3-1 3.1.3-2 3.1.3-3", "3.1.3-1 3.1.3-2 3.1.3-3", "the fields are in order; the client id identifies the session", conforming, "", ""},
		{"3.1.3-4 3.1.3-11 3.1.3-12", "3.1.3-4 3.1.3-10 3.1.3-11", "client id, will topic and user name are well-formed strings", conforming, "0x81; 3.1.1 is closed without an answer", ""},
		{"3.1.3-5", "3.1.3-5", "client ids of 1 to 23 letters and digits are allowed", conforming, "the credential names the device; 1 to 128 bytes of any characters are allowed", ""},
		{"3.1.3-6 3.1.3-7 3.2.2-16", "3.1.3-6 3.1.3-7", "an empty client id may be allowed; then one is assigned", conforming, "5.0 receives the assigned client id", ""},
		{"", "3.1.3-8", "an empty client id without a clean session is refused with 0x02", conforming, "", ""},
		{"3.1.3-8", "3.1.3-9", "a refused client id is answered with its own code", departs, "every identity error has the same answer, so that unauthenticated clients learn nothing: CONNACK 5, 0x87, which 5.0 allows; 3.1.1 requires 0x02", ""},
		{"3.1.4-1", "3.1.4-1", "a malformed CONNECT is refused and the connection closed", conforming, "", "TestHostileConnectsAreRefusedExactly"},
		{"3.1.4-2 3.2.2-7", "", "authentication and limits may refuse a CONNECT, with the matching code", conforming, "identity 0x87, too many 0x89, stopping 0x8B", "TestConnectionLimit TestConnectDuringCloseIsRefused"},
		{"3.1.4-6", "3.1.4-5", "packets after a refused CONNECT are not processed", conforming, "", ""},
		{"3.1.2-30 4.12.0-1", "", "an unsupported authentication method is refused", off, "0x8C, closed", ""},
		{"4.12.0-2 4.12.0-3 4.12.0-4 4.12.0-5 3.15.2-1 3.15.2-2 3.15.2-3", "", "the exchange of enhanced authentication", off, "Weir starts none", "TestAnAuthenticationMethodIsRefused"},
		{"4.12.0-6 4.12.0-7", "", "without an authentication method the CONNACK has none, and no AUTH is sent", conforming, "", ""},
		{"3.15.1-1", "", "the reserved flags of AUTH are checked", conforming, "0x81; with correct flags 0x82", ""},
		{"4.12.1-1 4.12.1-2", "", "re-authentication", off, "0x82; a revoked credential ends the connection with 0x87", "TestDrop"},
	}},
	{"CONNACK and its contents", []statement{
		{"3.2.0-1 3.2.0-2 3.1.4-5", "3.2.0-1 3.1.4-4", "the CONNACK is the first packet, and is sent once", conforming, "", ""},
		{"3.2.2-1", "", "the reserved bits of its flags are 0", conforming, "", ""},
		{"3.2.2-2 3.2.2-3", "3.2.2-1 3.2.2-2 3.2.2-3", "Session Present is correct", conforming, "0 after a restart of Weir: sessions live in memory", "TestSubscriptionOutlivesTheConnection"},
		{"3.2.2-4 3.2.2-5", "", "how a client reacts to Session Present", ofClients, "", ""},
		{"3.2.2-6", "3.2.2-4", "Session Present is 0 in a refusal", conforming, "", ""},
		{"", "3.2.2-5 3.2.2-6", "a refusal closes the connection; a refusal without a code closes it without a CONNACK", conforming, "", "TestHostileConnectsAreRefusedExactly"},
		{"3.2.2-8", "", "the CONNACK has one of the codes", conforming, "", "TestHostileConnectsAreRefusedExactly"},
		{"3.2.2-9 3.2.2-11", "", "the CONNACK states the Maximum QoS; a PUBLISH above it is a protocol error", conforming, "1, unless `broker.allow_qos2`; QoS 2 is answered with 0x9B, 3.1.1 is closed", "TestConnackSaysWhatIsOffered TestConnackWhereQoS2IsAllowed"},
		{"3.2.2-10", "", "a SUBSCRIBE at any QoS is accepted", conforming, "granted at 1", ""},
		{"3.2.2-12", "", "a will above the Maximum QoS is refused", conforming, "0x9B; 5 in 3.1.1", ""},
		{"3.2.2-13", "", "a retained will is refused if Retain Available is 0", conforming, "0x9A", ""},
		{"3.2.2-14", "", "RETAIN where Retain Available is 0 is a protocol error of the client", departs, "the flag is ignored and the message stored, as the platform's contract for devices demands", ""},
		{"3.2.2-15", "", "a packet above the Maximum Packet Size is a protocol error", conforming, "the maximum is 1 MiB; 0x95, 3.1.1 is closed", "TestHostilePacketsEndTheConnectionExactly"},
		{"3.2.2-17 3.2.2-18", "", "without a Topic Alias Maximum clients send no alias", off, "the CONNACK has none, which means 0; an alias is answered with 0x94", ""},
		{"3.2.2-19 3.2.2-20", "", "no reason string or user property that would make the CONNACK too large", conforming, "it has none; a client with a maximum below 31 bytes is refused with 0x95, or closed if that answer exceeds the maximum too", ""},
		{"3.2.2-21 3.2.2-22 3.1.2-21", "", "the Server Keep Alive overrides the client's", conforming, "the client's value, at most 600 s; always sent. In 3.1.1, which cannot announce one, the client's own value holds", "TestKeepAlive"},
	}},
	{"The life of a connection", []statement{
		{"3.1.2-20", "3.1.2-23", "the client sends a packet, or a PINGREQ, within the keep-alive", ofClients, "", ""},
		{"3.1.2-22", "3.1.2-24", "silence for one and a half times the keep-alive ends the connection", conforming, "0x8D; without a client's keep-alive the server's applies in MQTT 5; in 3.1.1 silence has no end then, and TCP's keep-alive ends a dead connection", "TestKeepAlive TestKeepAliveUnderLoad"},
		{"3.12.4-1", "3.12.4-1", "PINGREQ is answered with PINGRESP", conforming, "", ""},
		{"3.1.4-3", "3.1.4-2", "a connection with the same client id ends the earlier one", conforming, "0x8E", "TestTakeover TestManyTakeoversAtOnce"},
		{"3.14.0-1", "", "the server sends no DISCONNECT before its CONNACK", conforming, "", "TestTakeoverWaitsForTheOldConnection"},
		{"3.14.1-1", "3.14.1-1", "the reserved flags of DISCONNECT are checked", conforming, "0x81, closed", ""},
		{"3.14.2-1", "", "a DISCONNECT has one of the defined codes", conforming, "the server's has; from a client every code except 0x00 requests its will", "TestWill"},
		{"3.14.2-2", "", "a server's DISCONNECT has no session expiry; a client may not raise an expiry of 0", conforming, "0x82", "TestDisconnectMayChangeTheSessionsLife"},
		{"3.14.2-3 3.14.2-4", "", "no reason string or user property that would make a DISCONNECT too large", conforming, "it has none", "TestHostilePacketsEndTheConnectionExactly"},
		{"3.14.4-1 3.14.4-2", "3.14.4-1 3.14.4-2", "no packet follows a DISCONNECT", ofClients, "later bytes are not read", ""},
	}},
	{"Sessions", []statement{
		{"3.1.2-4 3.1.4-4", "3.1.2-6 3.1.4-3", "a clean start ends the existing session", conforming, "", "TestSubscriptionOutlivesTheConnection"},
		{"3.1.2-5 3.1.2-6", "3.1.2-4", "without a clean start the session is resumed, or a new one begins", conforming, "for the client id `{instance}:{tenant}:{device}`; one with a suffix, or of another form, leaves no session, and 5.0 receives an expiry of 0", "TestKeptSessionsAreBounded"},
		{"3.1.2-23 4.1.0-1", "4.1.0-1 4.1.0-2", "a session lasts for its expiry interval, and while connected", conforming, "at most 12 hours, stated if lower than requested; at most 10,000 kept sessions, beyond which the oldest is removed", "TestKeptSessionsAreBounded"},
		{"4.1.0-2", "", "a session ends after its expiry interval", conforming, "", ""},
		{"", "3.1.2-5", "messages for a disconnected client belong to its session", off, "the platform holds commands for disconnected devices, the broker holds none", "TestNoCommandWaitsForAClientThatIsAway"},
		{"", "3.1.2-7", "retained messages do not belong to a session", off, "nothing is retained", ""},
		{"4.4.0-1", "4.4.0-1", "unacknowledged messages are resent on the next connection", conforming, "by the client; the server keeps no message in flight beyond a connection", ""},
		{"4.4.0-2", "", "a negative acknowledgement also completes the exchange", conforming, "", ""},
	}},
	{"Wills", []statement{
		{"3.1.2-7", "", "a will is stored with its session", conforming, "", ""},
		{"3.1.2-8", "3.1.2-8", "a will is published when the connection ends, unless a DISCONNECT removed it", conforming, "for every end of a connection, including Weir's own stop; the will is handled like a publish of its device and is counted with its reason if it is not stored: the will of a revoked credential is refused. After a kill or a power cut none is published", "TestWill TestAWillThatCannotBeStoredIsCounted TestAWillWhoseConnectionNeverBegan TestAReaderThatIsTooSlowLeavesItsWill TestWhatIsNotStoredLeavesItsWill"},
		{"3.1.2-10 3.14.4-3", "3.1.2-10 3.14.4-3 3.1.2-12", "a DISCONNECT with 0x00 removes the will; without a will none is published", conforming, "", "TestWill"},
		{"3.1.2-14", "3.1.2-16", "a will without the retain flag is not retained", conforming, "", ""},
		{"3.1.2-15", "3.1.2-17", "a will with the retain flag is retained", off, "5.0: 0x9A at CONNECT; 3.1.1 has no code for it and the will is an ordinary message", "TestCredentialsThatOpenASession"},
		{"3.1.3-9", "", "a will waits for its delay or for the end of the session; a new connection to the session cancels it", conforming, "", "TestDelayedWill"},
		{"3.1.3-10", "", "user properties of a will keep their order", off, "a will becomes an event of its device, as every message does; properties are not kept", ""},
	}},
	{"PUBLISH from a device", []statement{
		{"3.3.1-1 3.3.1-3", "3.3.1-1 3.3.1-3", "DUP is set on a repeat and is not forwarded", conforming, "the intake uses it to recognise a repeat", ""},
		{"3.3.1-2", "3.3.1-2", "DUP is 0 at QoS 0", conforming, "0x82, closed", ""},
		{"3.3.1-4", "3.3.1-4", "the QoS is not 3", conforming, "0x81, closed", ""},
		{"3.3.1-5 3.3.1-6 3.3.1-7 3.3.1-8", "3.3.1-5 3.3.1-7 3.3.1-10 3.3.1-11 3.3.1-12", "retained messages", off, "Retain Available 0", ""},
		{"3.3.2-1", "3.3.2-1", "the topic is a well-formed string", conforming, "0x81, closed", ""},
		{"3.3.2-2 4.7.0-1", "3.3.2-2 4.7.1-1", "a topic name has no wildcard", conforming, "0x90, closed", ""},
		{"4.7.3-1 4.7.3-2 4.7.3-3", "4.7.3-1 4.7.3-2 4.7.3-3", "topics and filters have 1 character to 65,535 bytes, without U+0000", conforming, "0x81, a PUBLISH without topic 0x82", ""},
		{"4.7.3-4", "4.7.3-4", "topics and filters are not normalised", conforming, "", ""},
		{"3.3.4-1", "3.3.4-1", "a PUBLISH is answered as its QoS requires", conforming, "", "TestQoS0IsNeverAnswered TestPublishIsAcknowledgedOnlyWhenTheIntakeHasAnswered"},
		{"", "3.3.5-2", "a PUBLISH that is not allowed is acknowledged, or the connection is closed", conforming, "closed; 5.0 has 0x87 in its PUBACK", "TestForbiddenPublishIsRefusedInItsTurn TestForbiddenQoS0PublishEndsA311Connection"},
		{"3.3.2-4 3.3.2-5 3.3.2-13 3.3.2-19", "", "payload format, expiry, response topic and content type are well-formed", conforming, "0x81; they are accepted and not kept", ""},
		{"3.3.2-14", "", "a response topic has no wildcard", conforming, "0x82, closed", ""},
		{"3.3.2-7 3.3.2-8 3.3.2-9", "", "topic aliases are within the maximum and belong to one connection", off, "0x94, closed", ""},
		{"3.3.2-10 3.3.2-12", "", "every alias up to the receiver's maximum is accepted", off, "the maximum is 0", ""},
		{"3.3.4-6", "", "a client's PUBLISH has no subscription identifier", conforming, "0x82, closed", ""},
		{"3.3.4-7 4.9.0-1 4.9.0-2", "", "at most Receive Maximum messages are in flight", conforming, "the maximum is 256; above it 0x93, after every accepted message is acknowledged; a 3.1.1 connection is not read meanwhile", "TestWindowIsEnforced TestAFloodOverTheWindow"},
		{"3.3.4-8 4.9.0-3", "", "other packets are not delayed by it", conforming, "", ""},
		{"4.3.1-1", "4.3.1-1", "a PUBLISH at QoS 0 has no answer", conforming, "", ""},
		{"4.3.2-1 4.3.2-2", "4.3.2-1", "a new message at QoS 1 has an unused identifier", conforming, "0x82 for an identifier in use", ""},
		{"4.3.2-4 3.4.2-1", "4.3.2-2", "the PUBACK is sent after the receiver accepted ownership", conforming, "after the message is on disk", "TestPublishIsAcknowledgedOnlyWhenTheIntakeHasAnswered"},
		{"4.3.2-5", "", "after the PUBACK the identifier starts a new message", conforming, "on the same connection; on a later one DUP repeats the newest message of that identifier if the payload is equal, since its PUBACK may have been lost, after a clean start too", ""},
		{"3.4.2-2 3.4.2-3", "", "no reason string or user property that would make a PUBACK too large", conforming, "the reason is omitted, also if the client requests none", "TestReasonsRespectTheClientsWishes TestRepliesDoNotEchoUserProperties"},
		{"4.3.3-1 4.3.3-2 4.3.3-3 4.3.3-4 4.3.3-5 4.3.3-6 4.3.3-7", "4.3.3-1", "the sender's duties at QoS 2", ofClients, "0x9B unless `broker.allow_qos2`", ""},
		{"4.3.3-8 4.3.3-10 4.3.3-11 4.3.3-12 4.3.3-13", "4.3.3-2", "the receiver's duties at QoS 2: PUBREC, again for a repeat, PUBCOMP, then a new message", conforming, "with `broker.allow_qos2`", "TestQoS2WhereItIsAllowed"},
		{"4.3.3-9 3.5.2-1 3.5.2-2 3.5.2-3", "", "a negative PUBREC ends the exchange", conforming, "with the codes of a PUBACK", "TestQoS2WhereItIsAllowed"},
		{"3.6.1-1", "3.6.1-1", "the flags of PUBREL are checked", conforming, "0x81, closed", ""},
		{"3.6.2-1 3.6.2-2 3.6.2-3 3.7.2-1 3.7.2-2 3.7.2-3", "", "PUBREL and PUBCOMP have one of the defined codes", conforming, "0x92 for an unknown identifier", "TestQoS2WhereItIsAllowed"},
		{"4.6.0-1 4.6.0-2 4.6.0-3 4.6.0-4", "4.6.0-1 4.6.0-2 4.6.0-3 4.6.0-4", "acknowledgements have the order of the messages", conforming, "the standard binds clients only; the server keeps the order too, refusals included", "TestAnswersOutOfOrderAreAcknowledgedInOrder TestARefusalDoesNotOvertakePubacksThatAreDue"},
		{"4.6.0-5 4.6.0-6", "4.6.0-5 4.6.0-6", "messages of a topic keep their order", conforming, "they reach the log in the order of arrival", ""},
	}},
	{"SUBSCRIBE and UNSUBSCRIBE", []statement{
		{"3.8.1-1 3.10.1-1", "3.8.1-1 3.10.1-1", "the reserved flags are checked", conforming, "0x81, closed", ""},
		{"3.8.3-1 3.10.3-1", "3.8.3-1 3.10.3-1", "filters are well-formed strings", conforming, "0x81, closed", ""},
		{"3.8.3-2 3.10.3-2", "3.8.3-3 3.10.3-2", "there is at least one filter", conforming, "0x82, closed", ""},
		{"3.8.3-5", "3.8.3-4", "reserved bits of the options are 0, the QoS is not 3", conforming, "0x81, closed", ""},
		{"3.8.3-4", "", "No Local on a shared subscription is a protocol error", conforming, "0x82, closed", ""},
		{"3.8.4-1 3.8.4-2 3.8.4-5", "3.8.4-1 3.8.4-2 3.8.4-4", "each SUBSCRIBE has one SUBACK, with its identifier", conforming, "", ""},
		{"3.8.4-3 3.8.4-4", "3.8.4-3", "the same filter again replaces the subscription", conforming, "there are no retained messages to resend", ""},
		{"3.8.4-6 3.8.4-7 3.9.3-1 3.9.3-2", "3.8.4-5 3.9.3-1 3.9.3-2", "a code for each filter, in order: the granted QoS or the reason for the refusal", conforming, "only the device's own commands are granted. 5.0: wildcard 0xA2, shared 0x9E, malformed 0x8F, any other 0x87; 3.1.1: 0x80", "TestSubscribeOnlyToTheOwnCommands"},
		{"3.9.2-1 3.9.2-2 3.11.2-1 3.11.2-2", "", "no reason string or user property that would make SUBACK or UNSUBACK too large", conforming, "they have none", "TestRepliesDoNotEchoUserProperties"},
		{"4.7.1-1 4.7.1-2", "3.8.3-2 4.7.1-2 4.7.1-3", "wildcards are well-formed", refused, "Wildcard Subscription Available 0; a wildcard filter is refused with 0xA2, a malformed one with 0x8F, and the connection stays open", ""},
		{"4.8.2-1 4.8.2-2", "", "shared subscriptions are well-formed", refused, "Shared Subscription Available 0; a shared filter is refused with 0x9E, a malformed one with 0x8F", ""},
		{"4.8.2-3 4.8.2-4 4.8.2-5 4.8.2-6", "", "delivery to shared subscriptions", off, "", ""},
		{"4.7.2-1", "4.7.2-1", "wildcards do not match topics that begin with $", off, "there are no wildcards and no such topics", ""},
		{"3.10.4-1 3.10.4-2", "3.10.4-1 3.10.4-2", "UNSUBSCRIBE removes the filters that are equal character by character", conforming, "", ""},
		{"3.10.4-3", "3.10.4-3", "messages in flight are completed", conforming, "", "TestBothDirectionsHaveTheirOwnIdentifiers"},
		{"3.10.4-4 3.10.4-5 3.10.4-6", "3.10.4-4 3.10.4-5 3.10.4-6", "each UNSUBSCRIBE has one UNSUBACK, with its identifier, even if no filter was removed", conforming, "", ""},
		{"3.11.3-1 3.11.3-2", "", "a code for each filter, in order", conforming, "0x00, 0x11", ""},
	}},
	{"PUBLISH to a device", []statement{
		{"3.3.2-3 4.5.0-1", "3.3.2-3 4.5.0-1", "a message is sent to the subscribers of its topic", conforming, "Weir sends commands only, each to its device", ""},
		{"3.8.4-8 3.3.4-2", "3.8.4-6 3.3.5-1", "a message has the lower of the published and the granted QoS, and is sent once if filters overlap", conforming, "a device has one filter", ""},
		{"3.8.3-3 3.3.1-12 3.3.1-13", "3.3.1-9", "No Local; RETAIN follows the subscription's options", conforming, "a device cannot publish on a topic that it may subscribe to, and nothing is retained: RETAIN is 0", ""},
		{"3.3.1-9 3.3.1-10 3.3.1-11", "3.3.1-6 3.3.1-8", "retained messages for a new subscription follow its options", off, "every value is accepted, nothing is retained", ""},
		{"3.3.4-3 3.3.4-4 3.3.4-5", "", "subscription identifiers in matching messages", off, "Subscription Identifier Available 0; a SUBSCRIBE with one is answered with 0xA1", ""},
		{"3.1.2-24 3.1.2-25", "", "no packet exceeds the client's maximum; a larger message is discarded", conforming, "", "TestReasonsRespectTheClientsWishes"},
		{"3.1.2-26 3.1.2-27 3.3.2-11", "", "topic aliases are within the client's maximum", conforming, "Weir sends none", ""},
		{"3.3.2-6", "", "a message carries its remaining expiry", conforming, "none if none was set", "TestACommandGetsNoExpiry"},
		{"3.3.2-15 3.3.2-16 3.3.2-17 3.3.2-18 3.3.2-20", "", "the properties of a device's message are forwarded to its subscribers", off, "it has no subscribers: it goes to the log", ""},
		{"3.3.4-9 3.3.4-10", "", "at most the client's Receive Maximum messages are in flight; other packets are not delayed by it", conforming, "at most 64 commands are in flight", "TestBothDirectionsHaveTheirOwnIdentifiers TestTheSendQuotaDoesNotLeak"},
		{"4.3.2-3", "", "a message is in flight until its PUBACK", conforming, "a PUBACK for an identifier that is not in flight is no error", "TestBothDirectionsHaveTheirOwnIdentifiers"},
		{"4.5.0-2", "4.5.0-2", "a client acknowledges every message that it receives", ofClients, "", ""},
		{"3.1.2-28", "", "no response information unless the client requested it", conforming, "there is none: a command's response has its own topic", ""},
		{"3.1.2-29", "", "no reason string or user property if the client disabled problem information", conforming, "", "TestReasonsRespectTheClientsWishes"},
	}},
	{"WebSocket", []statement{
		{"6.0.0-1", "6.0.0-1", "packets are sent in binary frames", conforming, "0x81, and WebSocket status 1003", "TestAFrameOfBadFormEndsTheConnectionAndSaysWhy"},
		{"6.0.0-2", "6.0.0-2", "frame and packet boundaries are independent", conforming, "", "TestPacketsMayLieInFramesInAnyWay TestEveryPacketInFramesSplitAtEveryByte"},
		{"6.0.0-3 6.0.0-4", "6.0.0-3 6.0.0-4", "the subprotocol is mqtt", conforming, "otherwise 400", "TestARefusedWebSocketHandshakeGetsTheReason"},
	}},
}
