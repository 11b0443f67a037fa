package connectors

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"

	"weir/rules/strict"
)

// snsType publishes to a topic of Amazon SNS.
func snsType() *Type {
	return inFull(&Type{Name: "aws_sns", Summary: "Publishes to a topic of Amazon SNS.",
		Fields: []Field{regionField, keyField,
			{Name: "topicArn", Kind: strict.TextField, Required: true, Max: 512, Check: checkTopicARN,
				Doc: "ARN of the topic, of that region unless `endpoint` is set. One that ends with `.fifo` gets the device as message group and the idempotency key as deduplication id."},
			endpointField},
		Secret: awsSecret, Needs: true,
		Example: `{"region": "eu-central-1", "accessKeyId": "AKIAIOSFODNN7EXAMPLE", "topicArn": "arn:aws:sns:eu-central-1:123456789012:alerts"}`,
		check:   checkSNS, open: openSNS,
	})
}

func checkTopicARN(text string) error {
	if arn := strings.Split(text, ":"); len(arn) != 6 || arn[0] != "arn" || !strings.HasPrefix(arn[1], "aws") || arn[2] != "sns" || arn[3] == "" || arn[4] == "" || arn[5] == "" || noControls(text) != nil {
		return errors.New("must be the ARN of a topic, such as arn:aws:sns:eu-central-1:123456789012:alerts")
	}
	return nil
}

func checkSNS(c *config) error {
	if region := strings.Split(c.Texts["topicArn"], ":")[3]; c.Texts["endpoint"] == "" && region != c.Texts["region"] {
		return strict.Refuse("topicArn", "is of the region %s, and region says %s", strict.Quote(region), strict.Quote(c.Texts["region"]))
	}
	return nil
}

func openSNS(_ context.Context, e *egress, c *config, secret string) (session, error) {
	s, topic := newAWS(e, "sns", c, secret), c.Texts["topicArn"]
	s.body = func(m *outgoing) ([]byte, map[string]string) {
		return snsBody(topic, m), map[string]string{"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
	}
	s.read = readSNS
	return s, nil
}

// snsBody is a request of the query protocol.
func snsBody(topic string, m *outgoing) []byte {
	const attribute = "MessageAttributes.entry.1."
	form := url.Values{"Action": {"Publish"}, "Version": {"2010-03-31"}, "TopicArn": {topic}, "Message": {string(m.payload)},
		attribute + "Name": {keyProperty}, attribute + "Value.DataType": {"String"}, attribute + "Value.StringValue": {m.key}}
	if strings.HasSuffix(topic, ".fifo") {
		group, once := ordered(m)
		form.Set("MessageGroupId", group)
		form.Set("MessageDeduplicationId", once)
	}
	return []byte(form.Encode())
}

// readSNS takes two elements out of a reply. What is in them is compared, or only looked for: no more of XML is needed.
func readSNS(reply []byte) (id, code string) {
	return element(reply, "MessageId"), element(reply, "Code")
}

// element is the text of the first element with a name, "" where there is none.
func element(reply []byte, name string) string {
	_, rest, _ := bytes.Cut(reply, []byte("<"+name+">"))
	text, _, found := bytes.Cut(rest, []byte("</"+name+">"))
	if !found {
		return ""
	}
	return string(text)
}
