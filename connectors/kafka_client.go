//go:build !gateway

package connectors

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"weir/internal/delivery"
	"weir/internal/guard"
)

// Bounds of a client of Kafka. It tries little by itself: the outbox does, and knows for how long.
const (
	kafkaRecords  = 256     // that wait for their acknowledgement
	kafkaBytes    = 8 << 20 // of them
	kafkaReply    = 4 << 20 // bytes
	kafkaTries    = 2       // of a record after the first, and of a request
	kafkaPatience = 2 * time.Second
	kafkaBroken   = 256     // brokers whose last error is kept
	scramRounds   = 100_000 // iterations that a broker may ask for; Kafka itself has at most 16,384
)

// kafkaSession is a client of a cluster. It connects again by itself.
type kafkaSession struct {
	client *kgo.Client
	topic  string

	stale  chan struct{} // closed when the client knows a topic that is another one now, which only a new client finds out
	retire func()        // closes it

	mu     sync.Mutex
	broken map[int32]error // why a broker cannot be used at the moment, by its id; the addresses of the config have ids below 0
}

// openKafka connects to the first broker that answers.
func openKafka(ctx context.Context, e *egress, c *config, secret string) (session, error) {
	// Each address has its share of the time.
	patience := max(openTimeout/time.Duration(len(c.Lists["addresses"])+1), kafkaPatience)
	s := &kafkaSession{topic: c.Texts["topic"], stale: make(chan struct{}), broken: map[int32]error{}}
	s.retire = sync.OnceFunc(func() { close(s.stale) })
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Lists["addresses"]...), kgo.Dialer(brokerDialer(e, c.Flags["tls"], patience)), kgo.ClientID(c.Texts["clientId"]), kgo.WithHooks(s),
		kgo.DisableClientMetrics(), kgo.RequestTimeoutOverhead(patience), kgo.RequestRetries(kafkaTries), kgo.RetryTimeout(openTimeout), kgo.ConnIdleTimeout(idleTime),
		kgo.BrokerMaxReadBytes(kafkaReply), kgo.FetchMaxBytes(kafkaReply), kgo.MetadataMinAge(250 * time.Millisecond),
		// The key decides on the partition as it does for Kafka's own clients.
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(kafkaRecords), kgo.MaxBufferedBytes(kafkaBytes), kgo.RecordRetries(kafkaTries), kgo.UnknownTopicRetries(1),
		kgo.AllowIdempotentProduceCancellation(), // a send ends with its time
	}
	if c.Given["sasl"] {
		options = append(options, kgo.SASL(saslOf(c.Texts["sasl.mechanism"], c.Texts["sasl.username"], secret)))
	}
	var err error
	if s.client, err = kgo.NewClient(options...); err != nil {
		return nil, &Failure{Outcome: Invalid, Text: "the config of the connector is not one of this version of Weir", Cause: err}
	}
	if err := s.client.Ping(ctx); err != nil {
		s.client.Close()
		return nil, s.seedFailure(err)
	}
	return s, nil
}

// brokerDialer connects to the brokers of the config and to those that the cluster names. The library hands it a context that may never end.
func brokerDialer(e *egress, overTLS bool, patience time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		conn, err := e.dial(ctx, network, address)
		if err != nil || !overTLS {
			return conn, err
		}
		config := e.tls()
		if config.ServerName, _, err = net.SplitHostPort(address); err == nil {
			secured := tls.Client(conn, config)
			if err = secured.HandshakeContext(ctx); err == nil {
				return secured, nil
			}
		}
		_ = conn.Close() // nothing was sent
		return nil, err
	}
}

func saslOf(mechanism, username, password string) sasl.Mechanism {
	switch mechanism {
	case scram256:
		return boundedScram{scram.Auth{User: username, Pass: password}.AsSha256Mechanism()}
	case scram512:
		return boundedScram{scram.Auth{User: username, Pass: password}.AsSha512Mechanism()}
	}
	return plain.Auth{User: username, Pass: password}.AsMechanism()
}

// boundedScram refuses a broker that asks for more computing than is due.
type boundedScram struct{ sasl.Mechanism }

func (m boundedScram) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	s, first, err := m.Mechanism.Authenticate(ctx, host)
	return boundedRounds{s}, first, err
}

type boundedRounds struct{ sasl.Session }

func (s boundedRounds) Challenge(reply []byte) (bool, []byte, error) {
	for part := range bytes.SplitSeq(reply, []byte(",")) {
		if rounds, found := bytes.CutPrefix(part, []byte("i=")); found {
			if n, err := strconv.Atoi(string(rounds)); err != nil || n > scramRounds {
				return false, nil, fail(Retry, "the broker asks for more than %d iterations of SCRAM", scramRounds)
			}
		}
	}
	return s.Session.Challenge(reply)
}

// OnBrokerConnect is called by the library whenever it has connected to a broker and authenticated, or has not.
func (s *kafkaSession) OnBrokerConnect(of kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.broken[of.NodeID]
	switch {
	case err == nil:
		delete(s.broken, of.NodeID)
	case known || len(s.broken) < kafkaBroken:
		s.broken[of.NodeID] = err
	}
}

// send implements session: it returns when the cluster has acknowledged this record, others of the client may be under way meanwhile.
func (s *kafkaSession) send(ctx context.Context, m *outgoing) error {
	r := &kgo.Record{Topic: s.topic, Value: m.payload, Headers: []kgo.RecordHeader{{Key: keyProperty, Value: []byte(m.key)}}}
	if m.device != "" {
		r.Key = []byte(m.device)
	}
	done := make(chan error, 1)
	s.client.Produce(ctx, r, func(r *kgo.Record, err error) { done <- s.failure(r.Partition, err) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Done implements session.
func (s *kafkaSession) Done() <-chan struct{} { return s.stale }

// Close implements session. Records that were not acknowledged fail.
func (s *kafkaSession) Close() error {
	s.client.Close()
	return nil
}

// seedFailure is the failure of a client that no broker of the config has answered. One that is not allowed says less than one that did not answer.
func (s *kafkaSession) seedFailure(err error) error {
	f := failureOf(kafkaFailure(err))
	if f.Outcome != Blocked {
		return f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.broken {
		if other := failureOf(kafkaFailure(err)); other.Outcome != Blocked {
			return other
		}
	}
	return f
}

// failure is the failure of a record for a partition, nil for none.
func (s *kafkaSession) failure(partition int32, err error) error {
	if errors.Is(err, kerr.UnknownTopicID) { // it was deleted and made again
		s.retire()
	}
	_, answered := errors.AsType[*kerr.Error](err)
	if err == nil || answered {
		return kafkaFailure(err)
	}
	// The library says that it has given up. What it met with is known of the broker that leads the partition.
	leader, _, unknown := s.client.PartitionLeader(s.topic, partition)
	s.mu.Lock()
	defer s.mu.Unlock()
	if met := s.broken[leader]; met != nil && unknown == nil {
		err = met
	}
	return kafkaFailure(err)
}

// kafkaFailure makes a failure of an error of the library where it means more than a connection that failed.
func kafkaFailure(err error) error {
	if answer, ok := errors.AsType[*kerr.Error](err); ok {
		if answer == kerr.MessageTooLarge || answer == kerr.RecordListTooLarge {
			return fail(Invalid, "the message is larger than the cluster takes")
		}
		f := fail(Retry, "the cluster answered %s", answer.Message)
		if slices.Contains(finalAnswers, answer) {
			f.Tries = fewTries
		}
		return f
	}
	if _, closed := errors.AsType[*kgo.ErrFirstReadEOF](err); closed {
		return &Failure{Outcome: Unreachable, Text: "the broker closed the connection at once: it may expect TLS or none, or SASL or none", Cause: err}
	}
	switch {
	case errors.Is(err, context.Canceled): // of a record before this one
		return delivery.Connection(guard.OutcomeTimeout, err)
	case errors.Is(err, kgo.ErrRecordRetries), errors.Is(err, kgo.ErrClientClosed):
		return delivery.Connection(guard.OutcomeReset, err)
	}
	return err
}

// finalAnswers are those that another attempt will hardly change.
var finalAnswers = []*kerr.Error{kerr.UnknownTopicOrPartition, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed,
	kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.InvalidRecord, kerr.PolicyViolation, kerr.UnsupportedVersion}
