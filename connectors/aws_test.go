//go:build !gateway

package connectors

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/conformance"
)

// TestTheSignature: what is wanted was made of the same requests by botocore, the library of Amazon for Python.
func TestTheSignature(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 12, 30, 45, 0, time.UTC)
	for _, c := range []struct {
		url, body, service string
		header             http.Header
		want               string
	}{
		{"https://sqs.eu-central-1.amazonaws.com/", `{"QueueUrl":"https://sqs.eu-central-1.amazonaws.com/123456789012/alerts","MessageBody":"{\"a\":\"ü\"}"}`, "sqs",
			http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "X-Amz-Target": {"AmazonSQS.SendMessage"}}, "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261123/eu-central-1/sqs/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=3689c2a6559f0892d516d61b661e904cceb0de64fd3c427582cfbfbb5024ab8b"},
		{"http://127.0.0.1:5000/", "Action=Publish&Message=a+b", "sns", http.Header{"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"}}, "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261123/eu-central-1/sns/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=f687ac1a5cbfc617cf160c9d764f254267b9d31b31647acdf8ee3f91e43f60c9"},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		c.header.Set("X-Amz-Date", at.Format("20060102T150405Z"))
		if got := signV4(u, c.header, []byte(c.body), "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-central-1", c.service, at); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.service, got, c.want)
		}
	}
}

// cloud plays SNS and SQS, and remembers the last request.
type cloud struct {
	url    string
	header http.Header
	body   string
	status int
	reply  string // "": of a message that was taken
}

func (w *world) cloud() *cloud {
	c := &cloud{}
	s := w.receiver(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.header, c.body = r.Header, string(body)
		if c.status != 0 {
			rw.WriteHeader(c.status)
		}
		switch {
		case c.reply != "":
			_, _ = io.WriteString(rw, c.reply)
		case r.Header.Get("X-Amz-Target") != "":
			_, _ = io.WriteString(rw, `{"MessageId":"1","MD5OfMessageBody":"x"}`)
		default:
			_, _ = io.WriteString(rw, `<PublishResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishResult><MessageId>1</MessageId></PublishResult></PublishResponse>`)
		}
	})
	c.url = s.URL
	return c
}

const accessKey = "AKIDOFTHETENANT"

func (c *cloud) queue(name string) map[string]any {
	return map[string]any{"region": "eu-central-1", "accessKeyId": accessKey, "url": "https://sqs.eu-central-1.amazonaws.com/123456789012/" + name, "endpoint": c.url}
}

func (c *cloud) topic(name string) map[string]any {
	return map[string]any{"region": "eu-central-1", "accessKeyId": accessKey, "topicArn": "arn:aws:sns:eu-central-1:123456789012:" + name, "endpoint": c.url + "/"}
}

// TestMessagesToTopicsAndQueues: what is sent, also to those that keep an order.
func TestMessagesToTopicsAndQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	c := w.cloud()
	w.connectorOf("aws_sqs", acme, "q", c.queue("alerts"), theSecret)
	w.connectorOf("aws_sqs", acme, "qf", c.queue("alerts.fifo"), theSecret)
	w.connectorOf("aws_sns", acme, "t", c.topic("alerts"), theSecret)
	w.connectorOf("aws_sns", acme, "tf", c.topic("alerts.fifo"), theSecret)
	const payload = `{"text":"ü & <b>+ "}`
	for connector, want := range map[string]map[string]any{
		"q": {"QueueUrl": "https://sqs.eu-central-1.amazonaws.com/123456789012/alerts", "MessageBody": payload,
			"MessageAttributes": map[string]any{"idempotency_key": map[string]any{"DataType": "String", "StringValue": "key-1"}}},
		"qf": {"QueueUrl": "https://sqs.eu-central-1.amazonaws.com/123456789012/alerts.fifo", "MessageBody": payload, "MessageGroupId": "d1", "MessageDeduplicationId": "key-1",
			"MessageAttributes": map[string]any{"idempotency_key": map[string]any{"DataType": "String", "StringValue": "key-1"}}},
		"t": {"Action": "Publish", "Version": "2010-03-31", "TopicArn": "arn:aws:sns:eu-central-1:123456789012:alerts", "Message": payload, "MessageAttributes.entry.1.Name": "idempotency_key",
			"MessageAttributes.entry.1.Value.DataType": "String", "MessageAttributes.entry.1.Value.StringValue": "key-1"},
		"tf": {"Action": "Publish", "Version": "2010-03-31", "TopicArn": "arn:aws:sns:eu-central-1:123456789012:alerts.fifo", "Message": payload, "MessageAttributes.entry.1.Name": "idempotency_key",
			"MessageAttributes.entry.1.Value.DataType": "String", "MessageAttributes.entry.1.Value.StringValue": "key-1", "MessageGroupId": "d1", "MessageDeduplicationId": "key-1"},
	} {
		if o, f := w.publish(connector, payload); o != Sent {
			t.Errorf("%s: %s %v", connector, o, f)
			continue
		}
		got := map[string]any{}
		service := "sqs"
		if strings.HasPrefix(c.header.Get("Content-Type"), "application/x-www-form-urlencoded") {
			service = "sns"
			form, err := url.ParseQuery(c.body)
			w.must(err)
			for name := range form {
				got[name] = form.Get(name)
			}
		} else {
			w.must(json.Unmarshal([]byte(c.body), &got))
		}
		if object(got) != object(want) {
			t.Errorf("%s: %s, want %s", connector, object(got), object(want))
		}
		if signed := c.header.Get("Authorization"); !regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=` + accessKey + `/\d{8}/eu-central-1/` + service + `/aws4_request, SignedHeaders=[a-z0-9;-]+, Signature=[0-9a-f]{64}$`).MatchString(signed) {
			t.Errorf("%s: %s", connector, signed)
		}
	}
	if r, err := w.c.Test(t.Context(), w.by(acme), "tf"); err != nil || !r.OK || !strings.Contains(c.body, "MessageGroupId=weir") {
		t.Errorf("%+v %v: %s", r, err, c.body)
	}
	conformance.Shown(t, "S2-113")
}

// TestNothingAmbientIsUsed: credentials, regions and endpoints of the machine have no say, and a connector without a key sends nothing.
func TestNothingAmbientIsUsed(t *testing.T) {
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".aws"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"credentials", "config"} {
		if err := os.WriteFile(filepath.Join(home, ".aws", name), []byte("[default]\naws_access_key_id = AKIDHOSTILE\naws_secret_access_key = hostile\nregion = hostile-1\nendpoint_url = http://127.0.0.1:1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"HOME": home, "AWS_ACCESS_KEY_ID": "AKIDHOSTILE", "AWS_SECRET_ACCESS_KEY": "hostile", "AWS_SESSION_TOKEN": "hostile", "AWS_REGION": "hostile-1",
		"AWS_DEFAULT_REGION": "hostile-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_SQS": "http://127.0.0.1:1", "AWS_PROFILE": "default", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1",
		"AWS_WEB_IDENTITY_TOKEN_FILE": filepath.Join(home, ".aws", "config"), "HTTP_PROXY": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"} {
		t.Setenv(name, value)
	}
	w := newWorld(t, ConnectorSettings{})
	c := w.cloud()
	for typ, config := range map[string]map[string]any{"aws_sqs": c.queue("alerts"), "aws_sns": c.topic("alerts")} {
		w.connectorOf(typ, acme, typ, config, theSecret)
		if o, f := w.publish(typ, "m"); o != Sent {
			t.Fatal(f)
		}
		if all := fmt.Sprint(c.header, c.body); strings.Contains(strings.ToLower(all), "hostile") || !strings.Contains(all, accessKey) {
			t.Errorf("%s: %s", typ, all)
		}
		delete(config, "accessKeyId")
		_, err := checkConfig(typ, object(config))
		w.refused(err, "INVALID_INPUT", "config.accessKeyId: is required")
		_, err = w.c.Connectors.Update(t.Context(), w.by(acme), typ, map[string]any{"secret": nil})
		w.must(err)
		_, err = w.c.Connectors.Publish(t.Context(), w.by(acme), typ, nil, nil)
		w.refused(err, "INVALID_INPUT", "secret")
		c.header = nil
		if o, f := w.publish(typ, "m"); o != Invalid || c.header != nil || !strings.Contains(f.Text, "the connector has no secret") {
			t.Errorf("%s without its key: %s %v, %v", typ, o, f, c.header)
		}
	}
	conformance.Shown(t, "S2-114")
}

// TestWhatTheCloudAnswers: the codes that are known are shown, and nothing else of a reply.
func TestWhatTheCloudAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	c := w.cloud()
	w.connectorOf("aws_sqs", acme, "q", c.queue("alerts"), theSecret)
	w.connectorOf("aws_sns", acme, "t", c.topic("alerts"), theSecret)
	xml := func(code string) string {
		return `<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Sender</Type><Code>` + code + `</Code><Message>inside</Message></Error></ErrorResponse>`
	}
	for _, x := range []struct {
		connector string
		status    int
		reply     string
		text      string
		tries     int
	}{
		{"q", 400, `{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"inside"}`, "HTTP 400 (QueueDoesNotExist)", 2},
		{"q", 403, `{"__type":"InvalidClientTokenId","message":"inside"}`, "HTTP 403 (InvalidClientTokenId)", 2},
		{"q", 400, `{"__type":"com.amazonaws.sqs#RequestThrottled","message":"inside"}`, "HTTP 400 (RequestThrottled)", 0},
		{"q", 400, `{"__type":"inside"}`, "HTTP 400", 2},
		{"q", 500, `inside`, "HTTP 500", 0},
		{"q", 200, `<html>inside</html>`, "the answer is none of the service", 0},
		{"q", 307, `inside`, "HTTP 307 (redirects are not followed)", 0},
		{"t", 404, xml("NotFound"), "HTTP 404 (NotFound)", 2},
		{"t", 403, xml("SignatureDoesNotMatch"), "HTTP 403 (SignatureDoesNotMatch)", 2},
		{"t", 400, xml("Throttling"), "HTTP 400 (Throttling)", 0},
		{"t", 403, xml("inside"), "HTTP 403", 2},
		{"t", 503, strings.Repeat("inside", 1<<16), "HTTP 503", 0},
		{"t", 200, `{"MessageId":"1"}`, "the answer is none of the service", 0},
		{"t", 200, `<MessageId>`, "the answer is none of the service", 0},
	} {
		c.status, c.reply = x.status, x.reply
		if o, f := w.publish(x.connector, "m"); o != Retry || f.Text != x.text || f.Tries != x.tries {
			t.Errorf("%d %.60s: %s %+v", x.status, x.reply, o, f)
		}
	}
	if o, f := w.publish("q", ""); o != Invalid {
		t.Errorf("an empty message: %s %v", o, f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o, _ := outcome(t, w.c.Publish(ctx, w.id(acme), publish("q", "m"))); o == Sent {
		t.Error("sent after its time")
	}
	if strings.Contains(w.log.String(), theSecret) || strings.Contains(w.log.String(), "inside") {
		t.Error("the log has the secret, or what was found at the destination")
	}
}

// TestConfigsOfEveryType: what each type refuses, and where.
func TestConfigsOfEveryType(t *testing.T) {
	t.Parallel()
	const sns, sqs, kafka = "aws_sns", "aws_sqs", "kafka"
	for _, c := range []struct{ typ, config, part string }{
		{sns, `{"region":"eu-central-1","accessKeyId":"A","topicArn":"arn:aws:sns:eu-west-1:123456789012:t"}`, `config.topicArn: is of the region "eu-west-1", and region says "eu-central-1"`},
		{sns, `{"region":"eu-central-1","accessKeyId":"A","topicArn":"arn:aws:sns:eu-west-1:123456789012:t","endpoint":"http://localstack:4566"}`, ""},
		{sns, `{"region":"eu-central-1","accessKeyId":"A","topicArn":"arn:aws:sqs:eu-central-1:123456789012:t"}`, "config.topicArn: must be the ARN"},
		{sns, `{"region":"eu-central-1","accessKeyId":"A","topicArn":"t"}`, "config.topicArn: must be the ARN"},
		{sns, `{"region":"EU","accessKeyId":"A","topicArn":"arn:aws:sns:EU:123456789012:t"}`, "config.region: must consist"},
		{sns, `{"region":"eu-central-1","accessKeyId":"A/B","topicArn":"arn:aws:sns:eu-central-1:123456789012:t"}`, "config.accessKeyId: must consist"},
		{sns, `{"region":"eu-central-1","accessKeyId":"A","topicArn":"arn:aws:sns:eu-central-1:123456789012:t","endpoint":"https://h/path"}`, "config.endpoint: must end with the host"},
		{sns, `{"region":"eu-central-1","accessKeyId":"A","topicArn":"arn:aws:sns:eu-central-1:123456789012:t","endpoint":"https://u:p@h"}`, "config.endpoint: must not hold a user name"},
		{sns, `{"region":"eu-central-1","accessKeyId":"A","topicArn":"arn:aws:sns:eu-central-1:123456789012:t","sessionToken":"t"}`, "config.sessionToken: unknown field"},
		{sqs, `{"region":"eu-central-1","accessKeyId":"A","url":"https://sqs.eu-central-1.amazonaws.com/123456789012/q"}`, ""},
		{sqs, `{"region":"cn-north-1","accessKeyId":"A","url":"https://sqs.cn-north-1.amazonaws.com.cn/123456789012/q"}`, ""},
		{sqs, `{"region":"eu-central-1","accessKeyId":"A","url":"https://sqs.eu-west-1.amazonaws.com/123456789012/q"}`, "config.url: must begin with https://sqs.eu-central-1.amazonaws.com/"},
		{sqs, `{"region":"eu-central-1","accessKeyId":"A","url":"http://sqs.eu-central-1.amazonaws.com/123456789012/q"}`, "config.url: must begin with"},
		{sqs, `{"region":"eu-central-1","accessKeyId":"A","url":"https://evil.example.com/123456789012/q"}`, "config.url: must begin with"},
		{sqs, `{"region":"eu-central-1","accessKeyId":"A","url":"http://localstack:4566/000000000000/q","endpoint":"http://localstack:4566"}`, ""},
		{sqs, `{"region":"eu-central-1","accessKeyId":"A","url":"https://sqs.eu-central-1.amazonaws.com/"}`, "config.url: must be the URL of a queue"},
		{kafka, `{"addresses":["k:9092"],"topic":"t"}`, ""},
		{kafka, `{"addresses":["k"],"topic":"t"}`, "config.addresses"},
		{kafka, `{"addresses":["kafka://k:9092"],"topic":"t"}`, "config.addresses"},
		{kafka, `{"addresses":["k:9092/path"],"topic":"t"}`, "config.addresses"},
		{kafka, `{"addresses":[],"topic":"t"}`, "config.addresses: must not be empty"},
		{kafka, `{"addresses":["k:9092"],"topic":"a b"}`, "config.topic: must be a name"},
		{kafka, `{"addresses":["k:9092"],"topic":".."}`, "config.topic: must be a name"},
		{kafka, `{"addresses":["k:9092"],"topic":"t","tls":"yes"}`, "config.tls"},
		{kafka, `{"addresses":["k:9092"],"topic":"t","sasl":{}}`, "config.sasl.mechanism: is required"},
		{kafka, `{"addresses":["k:9092"],"topic":"t","sasl":{"mechanism":"PLAIN"}}`, "config.sasl.username: is required"},
		{kafka, `{"addresses":["k:9092"],"topic":"t","sasl":{"mechanism":"OAUTHBEARER","username":"u"}}`, "config.sasl.mechanism"},
		{kafka, `{"addresses":["k:9092"],"topic":"t","sasl":{"mechanism":"PLAIN","username":"u","password":"p"}}`, "config.sasl.password: unknown field"},
		{kafka, `{"addresses":["k:9092"],"topic":"t","sasl":null}`, "config.sasl"},
	} {
		_, err := checkConfig(c.typ, c.config)
		if c.part == "" && err != nil || c.part != "" && (err == nil || !strings.Contains(err.Error(), c.part)) {
			t.Errorf("%s %s: %v, want %q", c.typ, c.config, err, c.part)
		}
	}
	names := TypeNames()
	if !slices.Equal(names, []string{"aws_sns", "aws_sqs", "kafka", "mqtt"}) {
		t.Error(names)
	}
	for _, name := range names {
		if _, err := checkConfig(name, typeNamed(name).Example); err != nil {
			t.Errorf("the example of %s: %v", name, err)
		}
	}
}
