package connectors

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/internal/delivery"
	"weir/internal/guard"
	"weir/rules/strict"
)

// What SNS and SQS have in common: a message is one POST, signed with a key that belongs to the connector. Nothing is read of the environment,
// the home directory or a metadata service.

var (
	regionField = Field{Name: "region", Kind: strict.TextField, Required: true, Max: 32, Check: checkRegion, Doc: "Region, such as `eu-central-1`."}
	keyField    = Field{Name: "accessKeyId", Kind: strict.TextField, Required: true, Max: 128, Check: checkAccessKey,
		Doc: "Id of the access key that messages are signed with. No other credentials are used: neither those of the machine nor of the environment."}
	endpointField = Field{Name: "endpoint", Kind: strict.TextField, Max: 2048, Check: checkEndpoint,
		Doc: "URL of another host that offers the service, such as a VPC endpoint, `http://` or `https://` and without a path. Without it that of the region."}
)

const awsSecret = "the secret access key that belongs to `accessKeyId`"

func checkRegion(text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }) {
		return errors.New("must consist of lower-case letters, digits and hyphens")
	}
	return nil
}

func checkAccessKey(text string) error {
	if strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	}) {
		return errors.New("must consist of letters, digits and underscores")
	}
	return nil
}

func checkEndpoint(text string) error {
	u, err := guard.CheckURL(text, "https", "http")
	if err == nil && (u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery) {
		err = errors.New("must end with the host or the port: a path has no meaning")
	}
	return err
}

// awsHost is the host of a service in a region.
func awsHost(service, region string) string {
	host := service + "." + region + ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		host += ".cn"
	}
	return host
}

// awsSession sends messages to one topic or queue.
type awsSession struct {
	*transport
	service  string // sns or sqs
	region   string
	endpoint string // URL
	key      string // id
	secret   string
	now      func() time.Time
	// body is the request that carries a message; its headers are signed, too.
	body func(m *outgoing) (body []byte, header map[string]string)
	// read returns the id that the service has given the message, or the code of its error; "" where the reply has none.
	read func(reply []byte) (id, code string)
}

func newAWS(e *egress, service string, c *config, secret string) *awsSession {
	s := &awsSession{transport: e.transport(), service: service, region: c.Texts["region"], key: c.Texts["accessKeyId"], secret: secret, now: e.now,
		endpoint: strings.TrimSuffix(c.Texts["endpoint"], "/")}
	if s.endpoint == "" {
		s.endpoint = "https://" + awsHost(service, s.region)
	}
	return s
}

// defaultGroup is the group of a message in a FIFO topic or queue that is about no device.
const defaultGroup = "weir"

// ordered returns group and deduplication id of a message: those of a device keep their order, and a message that is sent again is taken once.
func ordered(m *outgoing) (group, once string) {
	if m.device == "" {
		return defaultGroup, m.key
	}
	return m.device, m.key
}

// send implements session.
func (s *awsSession) send(ctx context.Context, m *outgoing) error {
	if len(m.payload) == 0 {
		return fail(Invalid, "the message is empty, which the service does not take")
	}
	body, header := s.body(m)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint+"/", bytes.NewReader(body))
	if err != nil {
		return fail(Invalid, "the request cannot be made of the config")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	s.sign(req, body)
	resp, err := s.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, delivery.MaxReply))
	if err != nil {
		return err
	}
	return s.judge(resp, reply)
}

// judge returns what a reply means.
func (s *awsSession) judge(resp *http.Response, reply []byte) error {
	id, code := s.read(reply)
	if resp.StatusCode == http.StatusOK && id != "" {
		return nil
	}
	if resp.StatusCode == http.StatusOK {
		return fail(Retry, "the answer is none of the service")
	}
	f := delivery.Refused(resp, s.now())
	switch {
	case slices.Contains(awsBusy, code):
		f.Text += " (" + code + ")"
		f.Tries = 0
	case slices.Contains(awsFinal, code):
		f.Text += " (" + code + ")"
		f.Tries = fewTries
	}
	return f
}

// The codes of errors that a tenant reads. Others might be anything that the destination says.
var (
	awsBusy = []string{"Throttling", "ThrottlingException", "Throttled", "ThrottledException", "RequestThrottled", "TooManyRequestsException", "OverLimit",
		"KMSThrottling", "KmsThrottled", "InternalError", "InternalFailure", "ServiceUnavailable"}
	awsFinal = []string{"AccessDenied", "AccessDeniedException", "AuthorizationError", "InvalidClientTokenId", "InvalidAccessKeyId", "UnrecognizedClientException", "SignatureDoesNotMatch",
		"InvalidSignatureException", "IncompleteSignature", "MissingAuthenticationToken", "OptInRequired", "RequestExpired", "RequestTimeTooSkewed", "NotFound", "NotFoundException",
		"QueueDoesNotExist", "InvalidParameter", "InvalidParameterValue", "MissingParameter", "InvalidMessageContents", "InvalidAddress", "InvalidSecurity", "UnsupportedOperation",
		"EndpointDisabled", "PlatformApplicationDisabled", "KMSAccessDenied", "KMSDisabled", "KMSInvalidState", "KMSNotFound", "KMSOptInRequired", "KmsAccessDenied", "KmsDisabled",
		"KmsInvalidKeyUsage", "KmsInvalidState", "KmsNotFound", "KmsOptInRequired"}
)

// sign adds the headers of AWS Signature Version 4 to a request for the path / without a query. All headers that it has are signed.
func (s *awsSession) sign(req *http.Request, body []byte) {
	at := s.now().UTC()
	req.Header.Set("X-Amz-Date", at.Format("20060102T150405Z"))
	req.Header.Set("Authorization", signV4(req.URL, req.Header, body, s.key, s.secret, s.region, s.service, at))
}

// signV4 is the value of the header Authorization for a POST to the path /.
func signV4(u *url.URL, header http.Header, body []byte, key, secret, region, service string, at time.Time) string {
	signed := map[string]string{"host": u.Host}
	for name := range header {
		signed[strings.ToLower(name)] = strings.TrimSpace(header.Get(name))
	}
	names := slices.Sorted(maps.Keys(signed))
	var canonical strings.Builder
	canonical.WriteString("POST\n/\n\n")
	for _, name := range names {
		canonical.WriteString(name + ":" + signed[name] + "\n")
	}
	list := strings.Join(names, ";")
	canonical.WriteString("\n" + list + "\n" + hexHash(body))

	day := at.Format("20060102")
	scope := day + "/" + region + "/" + service + "/aws4_request"
	text := "AWS4-HMAC-SHA256\n" + at.Format("20060102T150405Z") + "\n" + scope + "\n" + hexHash([]byte(canonical.String()))
	derived := []byte("AWS4" + secret)
	for _, part := range []string{day, region, service, "aws4_request"} {
		derived = mac(derived, part)
	}
	return "AWS4-HMAC-SHA256 Credential=" + key + "/" + scope + ", SignedHeaders=" + list + ", Signature=" + hex.EncodeToString(mac(derived, text))
}

func hexHash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}
