package connectors

import (
	"errors"
	"strings"

	"weir/internal/guard"
	"weir/rules/strict"
)

// The mechanisms of SASL.
const (
	saslPlain = "PLAIN"
	scram256  = "SCRAM-SHA-256"
	scram512  = "SCRAM-SHA-512"
)

// kafkaType writes records to a Kafka topic.
func kafkaType() *Type {
	return inFull(&Type{Name: "kafka", Summary: "Writes records to a topic of a Kafka cluster.",
		Fields: []Field{
			{Name: "addresses", Kind: strict.ListField, Required: true, Max: 300, Check: checkBrokerAddress,
				Doc: "Addresses of brokers, each a host and a port. One that answers is enough: it names the others, which Weir must be allowed to connect to as well."},
			{Name: "topic", Kind: strict.TextField, Required: true, Max: 249, Check: checkKafkaTopic, Doc: "Topic of every record. It is never created. Nothing is put into it."},
			{Name: "clientId", Kind: strict.TextField, Default: `"weir"`, Max: 64, Check: checkClientID, Doc: "Client identifier, which brokers show in their logs and quotas."},
			{Name: "tls", Kind: strict.FlagField, Default: "false", Doc: "Whether connections are made over TLS. The certificate of each broker is checked against its host, and the certificate authorities of the system and of `egress.ca_file`."},
			{Name: "sasl", Kind: strict.ObjectField, Doc: "Authentication.", Fields: []Field{
				{Name: "mechanism", Kind: strict.TextField, Required: true, Max: 32, OneOf: []string{saslPlain, scram256, scram512}, Doc: "With `PLAIN` the password is sent to the broker: use it over TLS."},
				{Name: "username", Kind: strict.TextField, Required: true, Max: 256, Check: noControls, Doc: "User name at the cluster."},
			}},
		},
		Secret:    "the password that belongs to `sasl.username`",
		NeedsWith: "sasl",
		Example:   `{"addresses": ["kafka-1.example.com:9093", "kafka-2.example.com:9093"], "topic": "plant.alerts", "tls": true, "sasl": {"mechanism": "SCRAM-SHA-512", "username": "weir"}}`,
		open:      openKafka,
	})
}

func checkBrokerAddress(text string) error {
	_, _, err := guard.CheckHostPort(text)
	return err
}

// checkKafkaTopic refuses what Kafka takes for no name of a topic.
func checkKafkaTopic(text string) error {
	if text == "." || text == ".." || strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	}) {
		return errors.New("must be a name of letters, digits, points, underscores and hyphens")
	}
	return nil
}
