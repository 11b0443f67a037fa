package connectors

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"weir/internal/guard"
	"weir/rules/strict"
)

// sqsType sends to a queue of Amazon SQS.
func sqsType() *Type {
	return inFull(&Type{Name: "aws_sqs", Summary: "Sends to a queue of Amazon SQS.",
		Fields: []Field{regionField, keyField,
			{Name: "url", Kind: strict.TextField, Required: true, Max: 2048, Check: checkQueueURL,
				Doc: "URL of the queue, of that region unless `endpoint` is set. One that ends with `.fifo` gets the device as message group and the idempotency key as deduplication id."},
			endpointField},
		Secret: awsSecret, Needs: true,
		Example: `{"region": "eu-central-1", "accessKeyId": "AKIAIOSFODNN7EXAMPLE", "url": "https://sqs.eu-central-1.amazonaws.com/123456789012/alerts"}`,
		check:   checkSQS, open: openSQS,
	})
}

func checkQueueURL(text string) error {
	u, err := guard.CheckURL(text, "https", "http")
	if err == nil && (strings.Count(u.Path, "/") < 2 || strings.HasSuffix(u.Path, "/") || u.RawQuery != "" || u.ForceQuery) {
		err = errors.New("must be the URL of a queue, such as https://sqs.eu-central-1.amazonaws.com/123456789012/alerts")
	}
	return err
}

func checkSQS(c *config) error {
	u, err := url.Parse(c.Texts["url"])
	if err != nil {
		return err
	}
	if host := awsHost("sqs", c.Texts["region"]); c.Texts["endpoint"] == "" && (u.Scheme != "https" || u.Host != host) {
		return strict.Refuse("url", "must begin with https://%s/ for that region; for a queue elsewhere set endpoint as well", host)
	}
	return nil
}

func openSQS(_ context.Context, e *egress, c *config, secret string) (session, error) {
	s, queue := newAWS(e, "sqs", c, secret), c.Texts["url"]
	s.body = func(m *outgoing) ([]byte, map[string]string) {
		return sqsBody(queue, m), map[string]string{"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.SendMessage"}
	}
	s.read = readSQS
	return s, nil
}

type sqsAttribute struct {
	DataType    string
	StringValue string
}

// sqsBody is a request of the JSON protocol.
func sqsBody(queue string, m *outgoing) []byte {
	r := struct {
		QueueURL               string `json:"QueueUrl"`
		MessageBody            string
		MessageAttributes      map[string]sqsAttribute
		MessageGroupID         string `json:"MessageGroupId,omitempty"`
		MessageDeduplicationID string `json:"MessageDeduplicationId,omitempty"`
	}{QueueURL: queue, MessageBody: string(m.payload), MessageAttributes: map[string]sqsAttribute{keyProperty: {"String", m.key}}}
	if strings.HasSuffix(queue, ".fifo") {
		r.MessageGroupID, r.MessageDeduplicationID = ordered(m)
	}
	body, _ := json.Marshal(r) // texts alone
	return body
}

func readSQS(reply []byte) (id, code string) {
	var r struct {
		ID   string `json:"MessageId"`
		Type string `json:"__type"`
	}
	if err := json.Unmarshal(reply, &r); err != nil {
		return "", "" // of something else than the service
	}
	_, code, found := strings.Cut(r.Type, "#")
	if !found {
		code = r.Type
	}
	return r.ID, code
}
