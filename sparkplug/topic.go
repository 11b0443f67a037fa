package sparkplug

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// namespace is the only one that is read and written: topics of Sparkplug 3.0 with payloads of the form B.
const namespace = "spBv1.0"

// Kind is the kind of a message, the third level of its topic.
type Kind uint8

// The kinds of messages of edge nodes (N) and of devices behind them (D).
const (
	NBIRTH Kind = iota + 1
	NDATA
	NDEATH
	NCMD
	DBIRTH
	DDATA
	DDEATH
	DCMD
)

var kindNames = [...]string{"", "NBIRTH", "NDATA", "NDEATH", "NCMD", "DBIRTH", "DDATA", "DDEATH", "DCMD"}

// String returns the name of the kind as topics have it.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "Kind(?)"
}

// ofDevice reports whether the topic of a message of this kind names a device.
func (k Kind) ofDevice() bool { return k >= DBIRTH }

// Topic is the topic of a message: spBv1.0/{group}/{kind}/{node} or spBv1.0/{group}/{kind}/{node}/{device}.
type Topic struct {
	Kind
	Group, Node string
	Device      string // "" in messages of the node itself
}

// ErrTopic is returned for a topic that is none of a node, a device or a host.
var ErrTopic = errors.New("sparkplug: not a topic of Sparkplug B")

// maxPart is the largest level of a topic in bytes. The external id of a device is two or three of them.
const maxPart = 128

// ParseTopic reads the topic of a message of a node or device. Group, node and device are of 1 to 128 bytes, UTF-8, without + # NUL.
func ParseTopic(topic string) (t Topic, err error) {
	if len(topic) > len(namespace)+3*maxPart+len("/DDEATH///") {
		return t, fmt.Errorf("%w: it is longer than three ids of %d bytes", ErrTopic, maxPart)
	}
	levels := strings.Split(topic, "/")
	if levels[0] != namespace || len(levels) < 4 || len(levels) > 5 {
		return t, fmt.Errorf("%w: expected %s/<group>/<kind>/<node>, and /<device> for a device", ErrTopic, namespace)
	}
	for k, name := range kindNames {
		if k > 0 && name == levels[2] {
			t.Kind = Kind(k)
		}
	}
	if t.Kind == 0 || t.ofDevice() != (len(levels) == 5) {
		return Topic{}, fmt.Errorf("%w: %d levels with the kind %q", ErrTopic, len(levels), cut(levels[2]))
	}
	t.Group, t.Node = levels[1], levels[3]
	if t.ofDevice() {
		t.Device = levels[4]
	}
	for _, part := range append(levels[1:2:2], levels[3:]...) {
		if why := checkPart(part); why != "" {
			return Topic{}, fmt.Errorf("%w: %s", ErrTopic, why)
		}
	}
	return t, nil
}

// checkPart returns what is wrong with a group, node, device or host id, "" for nothing.
func checkPart(part string) string {
	switch {
	case part == "" || len(part) > maxPart:
		return fmt.Sprintf("an id must have 1 to %d bytes", maxPart)
	case strings.ContainsAny(part, "/+#\x00"):
		return `an id must not contain "/", "+", "#" or NUL`
	case !utf8.ValidString(part):
		return "an id must be UTF-8"
	}
	return ""
}

// cut shortens what a sender wrote, to be shown.
func cut(s string) string {
	if len(s) > 32 {
		return s[:32] + "…"
	}
	return s
}

// node is the id of the edge node within its source.
func (t Topic) node() string { return t.Group + "/" + t.Node }

// ExternalID is the external id of the node, or of the device that the topic names.
func (t Topic) ExternalID() string { return externalID(t.node(), t.Device) }

func externalID(node, device string) string {
	if device == "" {
		return node
	}
	return node + "/" + device
}

// stateTopic is where a host shows that it is online (tck-id-host-topic-phid-birth-topic, -death-topic).
func stateTopic(host string) string { return namespace + "/STATE/" + host }

// filters are what a host subscribes to: the groups, or all of the namespace, and its own STATE
// (tck-id-message-flow-phid-sparkplug-subscription, payloads-state-subscribe).
func filters(host string, groups []string) []string {
	if len(groups) == 0 {
		return []string{namespace + "/#", stateTopic(host)}
	}
	var out []string
	for _, g := range groups {
		out = append(out, namespace+"/"+g+"/#")
	}
	return append(out, stateTopic(host))
}

// commandTopic is where a node reads commands (tck-id-topics-ncmd-topic).
func commandTopic(node string) string {
	group, name, _ := strings.Cut(node, "/")
	return namespace + "/" + group + "/NCMD/" + name
}
