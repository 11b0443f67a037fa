package main

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const benchTopic = "alerts"

// cluster is a Kafka broker in memory, and a consumer of what is sent to it.
type cluster struct {
	broker   *kfake.Cluster
	consumer *kgo.Client
	address  *net.TCPAddr
	done     sync.WaitGroup
}

// newCluster starts a broker with one topic. Each record is told by its key, which is the token of the device.
func newCluster(ctx context.Context, came func(device []byte, at time.Time)) (target, error) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, benchTopic))
	if err != nil {
		return nil, err
	}
	c := &cluster{broker: broker}
	if c.address, err = net.ResolveTCPAddr("tcp", broker.ListenAddrs()[0]); err == nil {
		c.consumer, err = kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.ConsumeTopics(benchTopic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(10*time.Millisecond), kgo.Dialer((&net.Dialer{}).DialContext))
	}
	if err != nil {
		broker.Close()
		return nil, err
	}
	c.done.Go(func() {
		for {
			fetched := c.consumer.PollFetches(ctx)
			if fetched.IsClientClosed() || ctx.Err() != nil {
				return
			}
			at := time.Now()
			fetched.EachRecord(func(r *kgo.Record) { came(r.Key, at) })
		}
	})
	return c, nil
}

func (c *cluster) port() int { return c.address.Port }

// Close implements [io.Closer].
func (c *cluster) Close() error {
	c.consumer.Close()
	c.done.Wait()
	c.broker.Close()
	return nil
}
