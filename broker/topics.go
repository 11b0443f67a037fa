package broker

// topics are the four topics of a device. A connection may publish on the first three and subscribe to the last.
type topics struct {
	events, responses, reports, commands string
}

func topicsOf(instance, tenant, device string) topics {
	base := instance + "/" + tenant + "/"
	return topics{
		events:    base + "devices/" + device + "/events",
		responses: base + "command-responses/" + device,
		reports:   base + "device-reports/" + device,
		commands:  base + "device-commands/" + device,
	}
}

// purpose is what a topic that a device publishes on is for.
type purpose uint8

const (
	forbidden  purpose = iota
	forEvents          // to the gate
	noConsumer         // the device's own, but nothing reads it yet
)

func (t *topics) purpose(topic string) purpose {
	switch topic {
	case t.events:
		return forEvents
	case t.responses, t.reports:
		return noConsumer
	}
	return forbidden
}
