package mqttclient

import (
	"context"
	"errors"
	"net"
)

// Local in place of a URL stands for the open topics of the instance itself.
const Local = "local"

// LocalURL is a URL for connections of DialLocal, which takes no notice of it.
const LocalURL = "mqtt://local:1883"

var errNoOpenTopics = errors.New("the instance has no open topics")

// DialLocal returns what connects to the open topics of the instance with open; nil: there are none, and no connection can be made.
func DialLocal(open func() (net.Conn, error)) Dial {
	return func(context.Context, string, string) (net.Conn, error) {
		if open == nil {
			return nil, errNoOpenTopics
		}
		return open()
	}
}
