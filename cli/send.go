package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

func newSend(c *command) *cobra.Command {
	s := sending{c: c}
	var at string
	cmd := &cobra.Command{
		Use:   "send TENANT DEVICE METRIC=VALUE...",
		Short: "Send a test reading over a transport and show its outcome",
		Long: "Send a reading as a device over a transport of the running instance, and show\n" +
			"the transport's answer and the outcome of the reading. The command creates an\n" +
			"access token for the device and removes it afterwards; the token expires after\n" +
			"minutes if the removal fails. --token-file uses the device's own token instead.\n" +
			"Over MQTT the command opens a second connection, which does not affect the\n" +
			"device's presence.",
		Example: "  weir send acme boiler-1 temp=21.5\n  weir send acme boiler-1 temp=85 pressure=1.2 --transport mqtt --count 5 --interval 1s\n" +
			"  weir send acme boiler-1 temp=21.5 --at 2026-03-01T12:00:00Z --alt-id test-1",
		Args: atLeast("the tenant's token", "the device's token", "a reading such as temp=21.5"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.tenant, s.device = args[0], args[1]
			var err error
			if s.values, err = parseValues(args[2:]); err != nil {
				return err
			}
			if s.at, err = parseAt(at, time.Now()); err != nil {
				return err
			}
			if err := s.check(); err != nil {
				return err
			}
			return s.run(cmd.Context())
		},
	}
	choiceVar(cmd.Flags(), &s.transport, "transport", "http", []string{"http", "mqtt"}, "transport: http or mqtt")
	cmd.Flags().StringVar(&at, "at", "", "time of the measurement, such as 2026-03-01T12:00:00Z, or -10m for ten minutes ago (default: now); a time too far ahead is stored as ingest.max_future_skew from now, and the answer shows it")
	cmd.Flags().StringVar(&s.altID, "alt-id", "", "identifier that marks a repeat with the same --at as a duplicate")
	cmd.Flags().StringVar(&s.tokenFile, "token-file", "", "read the device's access token from a file; - is stdin")
	cmd.Flags().IntVar(&s.count, "count", 1, fmt.Sprintf("number of readings, up to %d", maxSendCount))
	spanVar(cmd.Flags(), &s.interval, "interval", time.Second, "time between readings")
	return cmd
}

const (
	maxSendCount = 1000
	fateWait     = 10 * time.Second // how long an acknowledged reading may take to end
	sendWait     = 15 * time.Second // how long a transport may take to answer
)

// sending is one run of weir send.
type sending struct {
	c              *command
	tenant, device string
	values         map[string]string
	transport      string
	at             time.Time // zero: when it is sent
	altID          string
	tokenFile      string
	count          int
	interval       time.Duration

	instance string
	token    string
}

// sent is a reading and what became of it.
type sent struct {
	Reading   int             `json:"reading"` // from 1
	Transport string          `json:"transport"`
	Answer    transportAnswer `json:"answer"`
	Message   *operate.Seen   `json:"message,omitempty"` // absent when the transport refused it and nothing more is known
}

// transportAnswer is the answer of a transport.
type transportAnswer struct {
	OK   bool   `json:"ok"` // it promises to keep the reading
	Code int    `json:"code"`
	Text string `json:"text"`
}

func (s *sending) check() error {
	switch {
	case s.count < 1 || s.count > maxSendCount:
		return usageError{fmt.Errorf("--count must lie in 1..%d", maxSendCount)}
	case s.interval < 0:
		return usageError{errors.New("--interval must not be negative")}
	}
	return nil
}

// parseValues reads the arguments metric=value. Values are kept as they are written: that is how they travel.
func parseValues(args []string) (map[string]string, error) {
	values := map[string]string{}
	for _, arg := range args {
		metric, value, ok := strings.Cut(arg, "=")
		f, err := strconv.ParseFloat(value, 64)
		switch {
		case !ok || metric == "":
			return nil, usageError{fmt.Errorf("%q is no reading: write METRIC=VALUE, such as temp=21.5", arg)}
		case err != nil || math.IsInf(f, 0) || math.IsNaN(f):
			return nil, usageError{fmt.Errorf("%q: the value must be a number", arg)}
		case values[metric] != "":
			return nil, usageError{fmt.Errorf("metric %s is given twice", metric)}
		}
		values[metric] = value
	}
	return values, nil
}

// parseAt reads a time, or how long ago it was; "" is the zero time.
func parseAt(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if span, ok := parseSpan(s); ok {
		return now.Add(span), nil
	}
	t, err := model.ParseTime(s)
	if err != nil {
		return t, usageError{fmt.Errorf("--at: %q is neither a time such as 2026-03-01T12:00:00Z nor a span such as -10m or -2d", s)}
	}
	return t, nil
}

func (s *sending) run(ctx context.Context) (err error) {
	client, err := s.c.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	status, err := operate.GetStatus.Ask(ctx, client, operate.None{})
	if err != nil {
		return err
	}
	s.instance = status.Instance
	giveBack, err := s.credential(ctx, client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, giveBack()) }()
	seen, err := s.c.watch(ctx, client, operate.TailQuery{Device: s.device, Transport: s.transport})
	if err != nil {
		return err
	}
	defer seen.stop()
	to, err := s.open(ctx, status.Listeners)
	if err != nil {
		return err
	}
	defer to.close()
	return s.series(ctx, to, seen)
}

// credential sets the access token to send with: the device's own, or one that is lent for the send.
func (s *sending) credential(ctx context.Context, client *operate.Client) (giveBack func() error, err error) {
	if s.tokenFile != "" {
		s.token, err = s.readToken()
		return func() error { return nil }, err
	}
	api := tenantAPI{client, s.tenant}
	lent, err := api.lend(ctx, s.device)
	if err != nil {
		return nil, err
	}
	s.token = lent.AccessToken
	return func() error { // after Ctrl-C, too
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendWait)
		defer cancel()
		return api.takeBack(ctx, lent)
	}, nil
}

func (s *sending) readToken() (string, error) {
	token, err := s.c.secretLine(s.tokenFile)
	if err == nil && token == "" {
		err = fmt.Errorf("--token-file %s: no access token in its first line", s.tokenFile)
	}
	return token, err
}

// series sends the readings one after the other; the first that is not kept decides how the command ends.
func (s *sending) series(ctx context.Context, to sender, seen *watching) error {
	var failed error
	for i := range s.count {
		if i > 0 && !wait(ctx, s.interval) {
			return failed
		}
		r, err := s.one(ctx, to, seen, i)
		if err != nil {
			return errors.Join(failed, err)
		}
		s.show(r)
		if failed == nil {
			failed = s.verdict(r)
		}
	}
	return failed
}

// one sends a reading and waits for its end.
func (s *sending) one(ctx context.Context, to sender, seen *watching, i int) (*sent, error) {
	at := time.Now().Truncate(time.Microsecond) // as precise as times are kept
	if !s.at.IsZero() {
		at = s.at.Add(time.Duration(i) * s.interval).Truncate(time.Microsecond)
	}
	body, err := s.event(at)
	if err != nil {
		return nil, err
	}
	sending, cancel := context.WithTimeout(ctx, sendWait)
	defer cancel()
	answer, err := to.send(sending, body)
	if err != nil {
		return nil, fmt.Errorf("the reading could not be sent over %s: %w", s.transport, err)
	}
	r := &sent{Reading: i + 1, Transport: s.transport, Answer: answer}
	if !answer.OK {
		return r, nil
	}
	r.Message, err = s.outcome(ctx, seen, at, len(body))
	return r, err
}

// event is the body of a reading. Its own time makes it known again among other messages of the device.
func (s *sending) event(at time.Time) ([]byte, error) {
	m := map[string]any{"device": s.device, "eventType": "Measurement", "occurredTime": at.UTC().Format(time.RFC3339Nano),
		"payload": map[string]any{"entries": []any{map[string]any{"measurements": s.values}}}}
	if s.altID != "" {
		m["altId"] = s.altID
	}
	if s.transport == "http" {
		m["credentialType"], m["credentialId"] = "ACCESS_TOKEN", s.token
	}
	return json.Marshal(m)
}

// outcome waits for the end of the reading of this time and size.
func (s *sending) outcome(ctx context.Context, seen *watching, at time.Time, size int) (*operate.Seen, error) {
	over := time.After(fateWait)
	for {
		select {
		case <-ctx.Done():
			return nil, errors.New("the reading was acknowledged; its end was not waited for")
		case <-over:
			return nil, fmt.Errorf("the reading was acknowledged, but did not end within %s: weir status says whether the instance waits for something", fateWait)
		case t, open := <-seen.tails:
			if !open {
				return nil, seen.err
			}
			for i := range t.Messages {
				m := &t.Messages[i]
				if m.Bytes == size && !m.Connection && (m.Occurred == nil || m.Occurred.Equal(at)) {
					return m, nil
				}
			}
		}
	}
}

func (s *sending) show(r *sent) {
	if s.c.json {
		s.c.writeLine(s.c.io.Stdout, r)
		return
	}
	text := fmt.Sprintf("%s answered %s", r.Transport, printable(r.Answer.Text))
	if r.Message != nil {
		text += each("; ", outcomeText(r.Message), valuesText(r.Message))
		if at := r.Message.Stored; at != nil {
			text += fmt.Sprintf("; stored as of %s, since %s is too far ahead (ingest.max_future_skew)", timeText(at), timeText(r.Message.Occurred))
		}
		text += each("; ", outOfRangeText(r.Message), firingsText(r.Message))
		text += "; took " + delayText(r.Message.DelayMS)
	}
	fmt.Fprintln(s.c.io.Stdout, text)
}

// verdict is an error for a reading that was not kept. A duplicate is: it was kept before.
func (s *sending) verdict(r *sent) error {
	switch {
	case !r.Answer.OK:
		return &model.Error{Code: model.CodeInvalidInput, Message: fmt.Sprintf("the transport refused reading %d: %s", r.Reading, r.Answer.Text), Hint: s.hint("")}
	case r.Message.Outcome == "stored" || r.Message.Outcome == "duplicate":
		return nil
	}
	return &model.Error{Code: model.CodeInvalidInput, Message: fmt.Sprintf("reading %d was not stored: %s", r.Reading, outcomeText(r.Message)), Hint: s.hint(r.Message.Reason)}
}

func (s *sending) hint(reason string) string {
	if s.tokenFile != "" && (reason == "" || reason == "bad-credential") {
		return "the access token of --token-file may not be the device's; weir device rotate makes a new one"
	}
	return reasonHint(reason, false)
}
