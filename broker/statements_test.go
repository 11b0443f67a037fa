package broker

// stand is how Weir stands to a statement of the standard.
type stand string

const (
	obeyed    stand = "conforms"
	refused   stand = "refused by policy" // with the code that the row names
	off       stand = "not offered"       // and told so in the CONNACK where there is a way
	ofClients stand = "of clients"        // what binds the other side alone; the row says what follows when it is broken
	departs   stand = "departs"           // on purpose; the row says why
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
		{"1.5.4-1 1.5.4-2", "1.5.3-1 1.5.3-2", "texts are well-formed UTF-8, without surrogates and U+0000", obeyed, "0x81, closed", ""},
		{"1.5.4-3", "1.5.3-3", "U+FEFF is never skipped or stripped", obeyed, "", ""},
		{"1.5.5-1", "", "a variable byte integer takes no more bytes than it needs", obeyed, "0x81, closed, in 3.1.1 too", ""},
		{"1.5.7-1", "", "both texts of a pair are texts", obeyed, "0x81", ""},
		{"2.1.3-1", "2.2.2-1 2.2.2-2", "reserved flags have their values", obeyed, "0x81, closed", ""},
		{"2.2.1-2", "2.3.1-5", "no identifier in a PUBLISH at QoS 0", obeyed, "what stands there is payload", ""},
		{"2.2.1-3", "2.3.1-1 2.3.1-2", "a new packet has an identifier that is not 0 and not in use", obeyed, "0x82, closed, after what came before it is acknowledged", "TestIdentifierInUseIsAProtocolError"},
		{"", "2.3.1-3", "a packet that is sent again keeps its identifier", ofClients, "a repeat in flight is acknowledged once; on a new connection it is known by DUP, identifier and content", "TestRepeatInFlightIsAcknowledgedOnce"},
		{"2.2.1-4", "2.3.1-4", "identifiers of what the server sends are not in use", obeyed, "", "TestBothDirectionsHaveTheirOwnIdentifiers"},
		{"2.2.1-5 2.2.1-6", "2.3.1-6 2.3.1-7", "an acknowledgement has the identifier of what it acknowledges", obeyed, "", ""},
		{"2.2.2-1", "", "properties have their length before them, 0 for none", obeyed, "one that is twice 0x82; unknown, misplaced or cut short 0x81", ""},
		{"4.2.0-1", "7.1.1-1", "a transport that is an ordered stream without loss", obeyed, "TCP, TLS, WebSocket, secure WebSocket", "TestEveryPacketSplitAtEveryByte"},
		{"4.13.1-1 4.13.2-1", "4.8.0-1 4.8.0-2", "what is malformed, breaks the protocol or cannot be processed ends the connection", obeyed, "5.0 is told the code in a DISCONNECT, 3.1.1 is closed", "TestHostilePacketsEndTheConnectionExactly"},
		{"", "7.0.0-1 7.0.0-2 7.1.2-1", "a server that connects to servers is a client too; nothing beyond the standard is required", obeyed, "", "TestPahoAgrees"},
	}},
	{"CONNECT", []statement{
		{"3.1.0-1", "3.1.0-1", "the first packet is a CONNECT", obeyed, "closed without an answer", ""},
		{"3.1.0-2", "3.1.0-2", "a second CONNECT is a protocol error", obeyed, "0x82, closed", ""},
		{"3.1.2-1", "3.1.2-1", "a CONNECT of another protocol name is not processed", obeyed, "closed without an answer", ""},
		{"3.1.2-2", "3.1.2-2", "a protocol level that is not spoken is refused", obeyed, "CONNACK 0x01 of 3.1.1, which every version can read", ""},
		{"3.1.2-3", "3.1.2-3", "the reserved flag is 0", obeyed, "0x81; 3.1.1 is closed without a word", ""},
		{"3.1.2-11 3.1.2-12 3.1.2-13", "3.1.2-11 3.1.2-13 3.1.2-14 3.1.2-15", "flags of a will that do not contradict", obeyed, "0x81; 3.1.1 is closed without a word", ""},
		{"3.1.2-9 3.1.2-16 3.1.2-17 3.1.2-18 3.1.2-19", "3.1.2-9 3.1.2-18 3.1.2-19 3.1.2-20 3.1.2-21", "the fields are there that the flags promise, and no others", obeyed, "0x81; 3.1.1 is closed without a word", ""},
		{"", "3.1.2-22", "no password without a user name", obeyed, "closed without a word", ""},
		{"3.1.3-1 3.1.3-2 3.1.3-3", "3.1.3-1 3.1.3-2 3.1.3-3", "the fields in their order; the client id names the session", obeyed, "", ""},
		{"3.1.3-4 3.1.3-11 3.1.3-12", "3.1.3-4 3.1.3-10 3.1.3-11", "client id, will topic and user name are texts", obeyed, "0x81; 3.1.1 is closed without a word", ""},
		{"3.1.3-5", "3.1.3-5", "client ids of 1 to 23 letters and digits are allowed", refused, "a device's client id is `{instance}:{tenant}:{device}`; CONNACK 5, 0x87", ""},
		{"3.1.3-6 3.1.3-7 3.2.2-16", "3.1.3-6 3.1.3-7", "an empty client id may be allowed; then one is assigned", refused, "CONNACK 5, 0x87", "TestHostileConnectsAreRefusedExactly"},
		{"", "3.1.3-8", "an empty client id without a clean session is refused with 0x02", obeyed, "", ""},
		{"3.1.3-8", "3.1.3-9", "a client id that is refused is told so", departs, "one answer for all that has to do with identity, so that a stranger learns nothing: CONNACK 5, 0x87, which 5.0 allows; 3.1.1 wants 0x02", ""},
		{"3.1.4-1", "3.1.4-1", "a CONNECT of bad form is refused and the connection closed", obeyed, "", "TestHostileConnectsAreRefusedExactly"},
		{"3.1.4-2 3.2.2-7", "", "authentication and limits may refuse, with a code that says why", obeyed, "identity 0x87, too many 0x89, stopping 0x8B", "TestConnectionLimit TestConnectDuringCloseIsRefused"},
		{"3.1.4-6", "3.1.4-5", "nothing behind a CONNECT that is refused is processed", obeyed, "", ""},
		{"3.1.2-30 4.12.0-1", "", "an authentication method that is not supported is refused", off, "0x8C, closed", ""},
		{"4.12.0-2 4.12.0-3 4.12.0-4 4.12.0-5 3.15.2-1 3.15.2-2 3.15.2-3", "", "the exchange of an authentication method", off, "none is begun", "TestAnAuthenticationMethodIsRefused"},
		{"4.12.0-6 4.12.0-7", "", "no AUTH and no method in the CONNACK for a client that named none", obeyed, "", ""},
		{"3.15.1-1", "", "reserved flags of AUTH", obeyed, "0x81; with the right ones 0x82", ""},
		{"4.12.1-1 4.12.1-2", "", "an authentication that is repeated", off, "0x82; a credential that is taken away ends the connection with 0x87", "TestDrop"},
	}},
	{"CONNACK and what it tells", []statement{
		{"3.2.0-1 3.2.0-2 3.1.4-5", "3.2.0-1 3.1.4-4", "the CONNACK comes first, and once", obeyed, "", ""},
		{"3.2.2-1", "", "reserved bits of its flags are 0", obeyed, "", ""},
		{"3.2.2-2 3.2.2-3", "3.2.2-1 3.2.2-2 3.2.2-3", "session present, as it is", obeyed, "0 after a restart of Weir: sessions live in memory", "TestSubscriptionOutlivesTheConnection"},
		{"3.2.2-4 3.2.2-5", "", "what a client makes of session present", ofClients, "", ""},
		{"3.2.2-6", "3.2.2-4", "session present is 0 when refused", obeyed, "", ""},
		{"", "3.2.2-5 3.2.2-6", "a refusal closes the connection; one that has no code closes it without a CONNACK", obeyed, "", "TestHostileConnectsAreRefusedExactly"},
		{"3.2.2-8", "", "the CONNACK has one of the codes", obeyed, "", "TestHostileConnectsAreRefusedExactly"},
		{"3.2.2-9 3.2.2-11", "", "a Maximum QoS is told, and what exceeds it is a protocol error", obeyed, "1, unless `broker.allow_qos2`; QoS 2 is answered with 0x9B, 3.1.1 is closed", "TestConnackSaysWhatIsOffered TestConnackWhereQoS2IsAllowed"},
		{"3.2.2-10", "", "a SUBSCRIBE at any QoS is accepted all the same", obeyed, "granted at 1", ""},
		{"3.2.2-12", "", "a will over the Maximum QoS is refused", obeyed, "0x9B; 3.1.1 is told 5", ""},
		{"3.2.2-13", "", "a will to be retained where nothing is retained is refused", obeyed, "0x9A", ""},
		{"3.2.2-14", "", "RETAIN where Retain Available is 0 is a protocol error of the client", departs, "the flag is ignored and the message stored: the contract of the platform for devices", ""},
		{"3.2.2-15", "", "a packet over the Maximum Packet Size is a protocol error", obeyed, "1 MiB is told; 0x95, 3.1.1 is closed", "TestHostilePacketsEndTheConnectionExactly"},
		{"3.2.2-17 3.2.2-18", "", "the Topic Alias Maximum; without one no alias is sent", off, "none is told, which is 0; an alias is answered with 0x94", ""},
		{"3.2.2-19 3.2.2-20", "", "no reason string or user property that would make the CONNACK too large", obeyed, "it has none; a client that takes no 31 bytes is refused with 0x95, or closed where that is too large for it", ""},
		{"3.2.2-21 3.2.2-22 3.1.2-21", "", "the Server Keep Alive is what counts", obeyed, "the client's, at most 600 s; always told", "TestKeepAlive"},
	}},
	{"The life of a connection", []statement{
		{"3.1.2-20", "3.1.2-23", "a packet, or a PINGREQ, within the keep-alive", ofClients, "", ""},
		{"3.1.2-22", "3.1.2-24", "silence of one and a half of the keep-alive ends the connection", obeyed, "0x8D; without a keep-alive that of the server counts", "TestKeepAlive TestKeepAliveUnderLoad"},
		{"3.12.4-1", "3.12.4-1", "PINGREQ is answered with PINGRESP", obeyed, "", ""},
		{"3.1.4-3", "3.1.4-2", "a connection of the same client id ends the one before", obeyed, "0x8E", "TestTakeover TestManyTakeoversAtOnce"},
		{"3.14.0-1", "", "no DISCONNECT from the server before its CONNACK", obeyed, "", "TestTakeoverWaitsForTheOldConnection"},
		{"3.14.1-1", "3.14.1-1", "reserved flags of DISCONNECT", obeyed, "0x81, closed", ""},
		{"3.14.2-1", "", "a DISCONNECT has one of the codes", obeyed, "ours; of a client every code but 0x00 asks for its will", "TestWill"},
		{"3.14.2-2", "", "no session expiry in a DISCONNECT of the server; a client may not make 0 longer", obeyed, "0x82", "TestDisconnectMayChangeTheSessionsLife"},
		{"3.14.2-3 3.14.2-4", "", "no reason string or user property that would make a DISCONNECT too large", obeyed, "it has none", "TestHostilePacketsEndTheConnectionExactly"},
		{"3.14.4-1 3.14.4-2", "3.14.4-1 3.14.4-2", "nothing follows a DISCONNECT", ofClients, "what follows is not read", ""},
	}},
	{"Sessions", []statement{
		{"3.1.2-4 3.1.4-4", "3.1.2-6 3.1.4-3", "a clean start ends the session that there is", obeyed, "", "TestSubscriptionOutlivesTheConnection"},
		{"3.1.2-5 3.1.2-6", "3.1.2-4", "without it the session goes on, or a new one begins", obeyed, "for the device's own client id; one with a suffix leaves none behind, and 5.0 is told an expiry of 0", "TestKeptSessionsAreBounded"},
		{"3.1.2-23 4.1.0-1", "4.1.0-1 4.1.0-2", "a session is kept for its expiry interval, and while connected", obeyed, "at most 12 hours, told where less than asked; 10,000 at a time, then the oldest goes", "TestKeptSessionsAreBounded"},
		{"4.1.0-2", "", "and no longer", obeyed, "", ""},
		{"", "3.1.2-5", "messages for an absent client are part of its session", off, "the platform holds commands for absent devices, the broker none", "TestNoCommandWaitsForAClientThatIsAway"},
		{"", "3.1.2-7", "retained messages are no part of a session", off, "nothing is retained", ""},
		{"4.4.0-1", "4.4.0-1", "what was not acknowledged is sent again on the next connection", obeyed, "by the client; the server has nothing under way beyond a connection", ""},
		{"4.4.0-2", "", "an acknowledgement that refuses is one all the same", obeyed, "", ""},
	}},
	{"Wills", []statement{
		{"3.1.2-7", "", "a will is kept with its session", obeyed, "", ""},
		{"3.1.2-8", "3.1.2-8", "a will is published when the connection ends and no DISCONNECT took it away", obeyed, "however the connection ends, Weir's own stop included; it goes where a publish of its device would, and is counted with its reason where it is not stored: so that of a credential that was taken away is refused. After a kill or a power cut none is published", "TestWill TestAWillThatCannotBeStoredIsCounted TestAWillWhoseConnectionNeverBegan TestAReaderThatIsTooSlowLeavesItsWill TestWhatIsNotStoredLeavesItsWill"},
		{"3.1.2-10 3.14.4-3", "3.1.2-10 3.14.4-3 3.1.2-12", "a DISCONNECT with 0x00 takes it away; without a will none is published", obeyed, "", "TestWill"},
		{"3.1.2-14", "3.1.2-16", "a will that is not to be retained is not", obeyed, "", ""},
		{"3.1.2-15", "3.1.2-17", "a will that is to be retained is", off, "5.0: 0x9A at CONNECT; 3.1.1 cannot be told and it is an ordinary one", "TestCredentialsThatOpenASession"},
		{"3.1.3-9", "", "a will waits for its delay or for the end of the session, and a new connection to the session calls it off", obeyed, "", "TestDelayedWill"},
		{"3.1.3-10", "", "user properties of a will keep their order", off, "a will becomes an event of its device, as every message does; properties are not kept", ""},
	}},
	{"PUBLISH from a device", []statement{
		{"3.3.1-1 3.3.1-3", "3.3.1-1 3.3.1-3", "DUP is set on a repeat and goes no further", obeyed, "the intake gets it, to recognise a repeat", ""},
		{"3.3.1-2", "3.3.1-2", "no DUP at QoS 0", obeyed, "0x82, closed", ""},
		{"3.3.1-4", "3.3.1-4", "not both bits of the QoS", obeyed, "0x81, closed", ""},
		{"3.3.1-5 3.3.1-6 3.3.1-7 3.3.1-8", "3.3.1-5 3.3.1-7 3.3.1-10 3.3.1-11 3.3.1-12", "retained messages", off, "Retain Available 0", ""},
		{"3.3.2-1", "3.3.2-1", "the topic is a text", obeyed, "0x81, closed", ""},
		{"3.3.2-2 4.7.0-1", "3.3.2-2 4.7.1-1", "no wildcard in a topic name", obeyed, "0x90, closed", ""},
		{"4.7.3-1 4.7.3-2 4.7.3-3", "4.7.3-1 4.7.3-2 4.7.3-3", "topics and filters have one character to 65,535 bytes, and no U+0000", obeyed, "0x81, a PUBLISH without topic 0x82", ""},
		{"4.7.3-4", "4.7.3-4", "no normalisation", obeyed, "", ""},
		{"3.3.4-1", "3.3.4-1", "a PUBLISH is answered as its QoS asks", obeyed, "", "TestQoS0IsNeverAnswered TestPublishIsAcknowledgedOnlyWhenTheGateHasAnswered"},
		{"", "3.3.5-2", "a PUBLISH that is not allowed is acknowledged, or the connection closed", obeyed, "closed; 5.0 has 0x87 in its PUBACK", "TestForbiddenPublishIsRefusedInItsTurn TestForbiddenQoS0PublishEndsA311Connection"},
		{"3.3.2-4 3.3.2-5 3.3.2-13 3.3.2-19", "", "payload format, expiry, response topic and content type have their form", obeyed, "0x81; they are accepted and not kept", ""},
		{"3.3.2-14", "", "no wildcard in a response topic", obeyed, "0x82, closed", ""},
		{"3.3.2-7 3.3.2-8 3.3.2-9", "", "topic aliases within the maximum, for one connection", off, "0x94, closed", ""},
		{"3.3.2-10 3.3.2-12", "", "every alias up to one's own maximum is accepted", off, "the maximum is 0", ""},
		{"3.3.4-6", "", "no subscription identifier from a client", obeyed, "0x82, closed", ""},
		{"3.3.4-7 4.9.0-1 4.9.0-2", "", "no more at a time than the Receive Maximum", obeyed, "256 are told; beyond it 0x93, after all that was taken is acknowledged; 3.1.1 is not read on meanwhile", "TestWindowIsEnforced TestAFloodOverTheWindow"},
		{"3.3.4-8 4.9.0-3", "", "other packets do not wait for it", obeyed, "", ""},
		{"4.3.1-1", "4.3.1-1", "QoS 0 is answered by nothing", obeyed, "", ""},
		{"4.3.2-1 4.3.2-2", "4.3.2-1", "a message at QoS 1 begins with an identifier of its own", obeyed, "0x82 for one in use", ""},
		{"4.3.2-4 3.4.2-1", "4.3.2-2", "PUBACK, having taken the message over", obeyed, "only when it is on disk", "TestPublishIsAcknowledgedOnlyWhenTheGateHasAnswered"},
		{"4.3.2-5", "", "after it the identifier begins a new message", obeyed, "", ""},
		{"3.4.2-2 3.4.2-3", "", "no reason string or user property that would make a PUBACK too large", obeyed, "the reason is left out, also where the client wants none", "TestReasonsRespectTheClientsWishes TestRepliesDoNotEchoUserProperties"},
		{"4.3.3-1 4.3.3-2 4.3.3-3 4.3.3-4 4.3.3-5 4.3.3-6 4.3.3-7", "4.3.3-1", "who sends at QoS 2", ofClients, "0x9B unless `broker.allow_qos2`", ""},
		{"4.3.3-8 4.3.3-10 4.3.3-11 4.3.3-12 4.3.3-13", "4.3.3-2", "who receives at QoS 2: PUBREC, once more for a repeat, PUBCOMP, then a new message", obeyed, "where `broker.allow_qos2`", "TestQoS2WhereItIsAllowed"},
		{"4.3.3-9 3.5.2-1 3.5.2-2 3.5.2-3", "", "a PUBREC that refuses ends the exchange", obeyed, "with the codes of a PUBACK", "TestQoS2WhereItIsAllowed"},
		{"3.6.1-1", "3.6.1-1", "flags of PUBREL", obeyed, "0x81, closed", ""},
		{"3.6.2-1 3.6.2-2 3.6.2-3 3.7.2-1 3.7.2-2 3.7.2-3", "", "codes of PUBREL and PUBCOMP", obeyed, "0x92 for an identifier that is not known", "TestQoS2WhereItIsAllowed"},
		{"4.6.0-1 4.6.0-2 4.6.0-3 4.6.0-4", "4.6.0-1 4.6.0-2 4.6.0-3 4.6.0-4", "acknowledgements in the order of what they acknowledge", obeyed, "the standard binds clients alone; the server keeps it too, refusals included", "TestAnswersOutOfOrderAreAcknowledgedInOrder TestARefusalDoesNotOvertakePubacksThatAreDue"},
		{"4.6.0-5 4.6.0-6", "4.6.0-5 4.6.0-6", "messages of a topic stay in order", obeyed, "they reach the log in the order of the connection", ""},
	}},
	{"SUBSCRIBE and UNSUBSCRIBE", []statement{
		{"3.8.1-1 3.10.1-1", "3.8.1-1 3.10.1-1", "reserved flags", obeyed, "0x81, closed", ""},
		{"3.8.3-1 3.10.3-1", "3.8.3-1 3.10.3-1", "filters are texts", obeyed, "0x81, closed", ""},
		{"3.8.3-2 3.10.3-2", "3.8.3-3 3.10.3-2", "one filter at least", obeyed, "0x82, closed", ""},
		{"3.8.3-5", "3.8.3-4", "reserved bits of the options are 0, the QoS is not 3", obeyed, "0x81, closed", ""},
		{"3.8.3-4", "", "no local on a shared subscription is a protocol error", obeyed, "0x82, closed", ""},
		{"3.8.4-1 3.8.4-2 3.8.4-5", "3.8.4-1 3.8.4-2 3.8.4-4", "one SUBACK for a SUBSCRIBE, with its identifier", obeyed, "", ""},
		{"3.8.4-3 3.8.4-4", "3.8.4-3", "the same filter again replaces the subscription", obeyed, "nothing is retained that could be sent again", ""},
		{"3.8.4-6 3.8.4-7 3.9.3-1 3.9.3-2", "3.8.4-5 3.9.3-1 3.9.3-2", "a code for each filter, in order: the QoS granted, or why not", obeyed, "only the device's own commands are granted. 5.0: wildcard 0xA2, shared 0x9E, of bad form 0x8F, any other 0x87; 3.1.1: 0x80", "TestSubscribeOnlyToTheOwnCommands"},
		{"3.9.2-1 3.9.2-2 3.11.2-1 3.11.2-2", "", "no reason string or user property that would make SUBACK or UNSUBACK too large", obeyed, "they have none", "TestRepliesDoNotEchoUserProperties"},
		{"4.7.1-1 4.7.1-2", "3.8.3-2 4.7.1-2 4.7.1-3", "the form of wildcards", refused, "Wildcard Subscription Available 0; each filter is refused with 0xA2, one of bad form with 0x8F, and the connection stays", ""},
		{"4.8.2-1 4.8.2-2", "", "the form of shared subscriptions", refused, "Shared Subscription Available 0; each filter is refused with 0x9E, one of bad form with 0x8F", ""},
		{"4.8.2-3 4.8.2-4 4.8.2-5 4.8.2-6", "", "delivery to shared subscriptions", off, "", ""},
		{"4.7.2-1", "4.7.2-1", "wildcards do not match topics that begin with $", off, "there are no wildcards and no such topics", ""},
		{"3.10.4-1 3.10.4-2", "3.10.4-1 3.10.4-2", "UNSUBSCRIBE ends the filters that are the same by the letter", obeyed, "", ""},
		{"3.10.4-3", "3.10.4-3", "what is under way is completed", obeyed, "", "TestBothDirectionsHaveTheirOwnIdentifiers"},
		{"3.10.4-4 3.10.4-5 3.10.4-6", "3.10.4-4 3.10.4-5 3.10.4-6", "one UNSUBACK, with its identifier, also when nothing was ended", obeyed, "", ""},
		{"3.11.3-1 3.11.3-2", "", "a code for each filter, in order", obeyed, "0x00, 0x11", ""},
	}},
	{"PUBLISH to a device", []statement{
		{"3.3.2-3 4.5.0-1", "3.3.2-3 4.5.0-1", "a message goes to who has subscribed to its topic", obeyed, "only commands are sent, each to its device", ""},
		{"3.8.4-8 3.3.4-2", "3.8.4-6 3.3.5-1", "at the lower of the QoS it was published and granted at; once where filters overlap", obeyed, "there is one filter", ""},
		{"3.8.3-3 3.3.1-12 3.3.1-13", "3.3.1-9", "no local; RETAIN as the subscription asks", obeyed, "a device publishes on no topic it may subscribe to, and nothing is retained: RETAIN is 0", ""},
		{"3.3.1-9 3.3.1-10 3.3.1-11", "3.3.1-6 3.3.1-8", "retained messages for a new subscription, as it asks", off, "every value is accepted, nothing is retained", ""},
		{"3.3.4-3 3.3.4-4 3.3.4-5", "", "subscription identifiers in what matches", off, "Subscription Identifier Available 0; a SUBSCRIBE with one is answered with 0xA1", ""},
		{"3.1.2-24 3.1.2-25", "", "no packet is larger than the client takes; a message that would be is left out", obeyed, "", "TestReasonsRespectTheClientsWishes"},
		{"3.1.2-26 3.1.2-27 3.3.2-11", "", "aliases within the client's maximum", obeyed, "none is sent", ""},
		{"3.3.2-6", "", "the expiry that is left goes with a message", obeyed, "none where none was set", "TestACommandGetsNoExpiry"},
		{"3.3.2-15 3.3.2-16 3.3.2-17 3.3.2-18 3.3.2-20", "", "properties of a device's message go to its subscribers", off, "it has none: it goes to the log", ""},
		{"3.3.4-9 3.3.4-10", "", "no more at a time than the client's Receive Maximum, and other packets do not wait for it", obeyed, "at most 64 commands are in flight", "TestBothDirectionsHaveTheirOwnIdentifiers TestTheSendQuotaDoesNotLeak"},
		{"4.3.2-3", "", "a message is under way until its PUBACK", obeyed, "one for an identifier that is not under way is no error", "TestBothDirectionsHaveTheirOwnIdentifiers"},
		{"4.5.0-2", "4.5.0-2", "a client acknowledges whatever it receives", ofClients, "", ""},
		{"3.1.2-28", "", "no response information unless it is asked for", obeyed, "there is none: a command's answer has a topic of its own", ""},
		{"3.1.2-29", "", "no reason string or user property where problem information is not wanted", obeyed, "", "TestReasonsRespectTheClientsWishes"},
	}},
	{"WebSocket", []statement{
		{"6.0.0-1", "6.0.0-1", "packets come in binary frames", obeyed, "0x81, and status 1003 for the WebSocket", "TestAFrameOfBadFormEndsTheConnectionAndSaysWhy"},
		{"6.0.0-2", "6.0.0-2", "frames hold packets in any way", obeyed, "", "TestPacketsMayLieInFramesInAnyWay TestEveryPacketInFramesSplitAtEveryByte"},
		{"6.0.0-3 6.0.0-4", "6.0.0-3 6.0.0-4", "the subprotocol is mqtt", obeyed, "else 400", "TestWhatOpensNoWebSocketIsToldWhy"},
	}},
}
