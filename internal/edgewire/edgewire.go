// Package edgewire is what an edge and a Weir above say to one another besides the messages that the edge relays: the names of the user
// properties, and the documents on the two topics of an edge.
package edgewire

// Names of user properties.
const (
	// PropertyTime is that of a CONNACK with the time of day, as RFC 3339 with fractions: an edge may have a clock that was never set.
	PropertyTime = "weir-time"
	// PropertyNumber is that of a PUBLISH with the number that the edge gives each message, INSTALL:EPOCH:NUMBER.
	PropertyNumber = "weir-edge"
	// PropertyReceived is that of a PUBLISH with the time of the receipt at the edge, as RFC 3339 with fractions.
	PropertyReceived = "weir-received"
)
