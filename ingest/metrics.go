package ingest

import (
	"maps"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/store"
)

type intakeMetrics struct {
	inbound, decoded, undecoded, limited, backpressured      prometheus.Counter
	failedAppends, rejectedLost, presenceRefused, strayBytes prometheus.Counter
	nulls                                                    prometheus.Counter
	refused                                                  *prometheus.CounterVec
}

func newIntakeMetrics(reg prometheus.Registerer) *intakeMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &intakeMetrics{
		inbound:         counter("weir_eventsources_total_inbound_messages", "Messages received by a transport."),
		decoded:         counter("weir_eventsources_total_msg_decode_successful", "Messages decoded."),
		undecoded:       counter("weir_eventsources_total_msg_failed_decode", "Messages that could not be decoded."),
		limited:         counter("weir_eventsources_total_msg_rate_limited", "Messages refused because of an ingest ceiling."),
		backpressured:   counter("weir_eventsources_total_msg_backpressured", "Messages refused because the log is filling up."),
		failedAppends:   counter("weir_ingest_failed_appends_total", "Messages that could not be appended to the log."),
		rejectedLost:    counter("weir_ingest_refused_copies_dropped_total", "Copies of refused bodies that were not kept: more than 20 a second came, or they could not be stored."),
		presenceRefused: counter("weir_ingest_presence_refused_total", "Presence transitions refused; a later check repairs them."),
		nulls:           counter("weir_ingest_null_values_total", "Members of flat bodies that were null and are left out."),
		strayBytes:      counter("weir_ingest_refused_packet_bytes_total", "Bytes of packets refused before they were decoded into messages."),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_ingest_refused_messages_total",
			Help: "Messages refused or dropped by a transport, by reason."}, []string{"reason"}),
	}
	for _, r := range []Reason{ReasonCeiling, ReasonBackpressure, ReasonUnauthenticated, ReasonThrottled, ReasonBusy, ReasonTooManyReadings, ReasonTooLarge, ReasonUnavailable} {
		m.refused.WithLabelValues(string(r)) // what turns away at a bound is shown from the start
	}
	if reg != nil {
		reg.MustRegister(m.inbound, m.decoded, m.undecoded, m.limited, m.backpressured, m.failedAppends, m.rejectedLost, m.presenceRefused, m.strayBytes, m.nulls, m.refused)
	}
	return m
}

func (m *intakeMetrics) turnedAway(r Reason) { m.refused.WithLabelValues(string(r)).Inc() }

type applyMetrics struct {
	retries      prometheus.Counter
	heads        prometheus.Counter
	late         prometheus.Counter
	lost         prometheus.Counter
	evicted      prometheus.Counter
	uplinks      prometheus.Gauge
	ranges       prometheus.Gauge
	relayed      prometheus.Counter
	relayedAgain prometheus.Counter
	firings      *prometheus.CounterVec
	altIDs       prometheus.Gauge
	altIDSpan    prometheus.Gauge
	clients      prometheus.Gauge
	outcomes     *prometheus.CounterVec
	fired        *firedCounter
	marked       *markCounter
	stored       prometheus.Counter // of outcomes

	deadLettersTrimmed prometheus.Counter
	setAside           prometheus.Counter
}

func newApplyMetrics(reg prometheus.Registerer) *applyMetrics {
	m := &applyMetrics{
		retries: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_store_retries_total",
			Help: "Reads and writes of the applier that the store failed and that were retried."}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_repeat_clients_evicted_total",
			Help: "MQTT clients whose last messages were evicted because the memory of all clients exceeded its maximum."}),
		uplinks:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_uplink_links", Help: "Logs of edges whose numbers are known, as of the last checkpoint."}),
		ranges:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_uplink_ranges", Help: "Ranges of the numbers of edges that are known, as of the last checkpoint."}),
		relayed:      prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_uplink_received_total", Help: "Messages with the number of an edge that were applied."}),
		firings:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_uplink_firings_total", Help: "Edges of rules that sites have judged, by outcome (taken, duplicate, unknown-device, unknown-rule: taken, and the published profile has no such rule)."}, []string{"outcome"}),
		relayedAgain: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_uplink_duplicates_total", Help: "Of them those whose number was known."}),
		altIDs:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_ingest_dedupe_entries", Help: "altIds kept for deduplication, as of the last checkpoint."}),
		altIDSpan: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_ingest_dedupe_span_seconds",
			Help: "Receive time covered by the altIds kept for deduplication, as of the last checkpoint."}),
		clients: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_ingest_repeat_clients", Help: "MQTT clients whose last messages are kept for deduplication, as of the last checkpoint."}),
		heads:   prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_checkpoints_total", Help: "Checkpoints of the applier written to the store."}),
		late: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_eventsources_total_msg_invalid_event_time",
			Help: "Messages whose event time is too far in the past."}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_lost_records_total",
			Help: "Records of the log lost before they were applied."}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_ingest_messages_total",
			Help: "Messages by outcome and reason."}, []string{"outcome", "reason"}),
	}
	m.setAside = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_readings_set_aside_total",
		Help: "Readings that a series limit kept out of a message whose others are stored."})
	m.deadLettersTrimmed = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_dead_letters_trimmed_total",
		Help: "Oldest dead letters removed because a tenant or the rejected-payload buffer had its maximum."})
	m.fired, m.marked = newFiredCounter(), newMarkCounter()
	m.stored = m.outcomes.WithLabelValues(string(store.OutcomeStored), string(ReasonNone))
	if reg != nil {
		reg.MustRegister(m.deadLettersTrimmed, m.setAside, m.retries, m.heads, m.late, m.lost, m.evicted, m.uplinks, m.ranges, m.relayed, m.relayedAgain, m.firings, m.altIDs, m.altIDSpan, m.clients, m.outcomes, m.fired, m.marked)
	}
	return m
}

// dropTenant removes the label sets of a tenant that has ended. The goroutine that counts calls it.
func (m *applyMetrics) dropTenant(tenant string) {
	m.fired.DeletePartialMatch(prometheus.Labels{"tenant": tenant})
	m.marked.DeletePartialMatch(prometheus.Labels{"tenant": tenant})
	maps.DeleteFunc(m.fired.known, func(l [4]string, _ prometheus.Counter) bool { return l[0] == tenant })
	maps.DeleteFunc(m.marked.known, func(l markLabels, _ prometheus.Counter) bool { return l.tenant == tenant })
}

// maxFiredLabels bounds the label sets of weir_eventprocessing_detections_total; what fires beyond them is counted together.
const maxFiredLabels = 1000

// firedCounter counts detections. One goroutine counts.
type firedCounter struct {
	*prometheus.CounterVec
	known map[[4]string]prometheus.Counter
}

func newFiredCounter() *firedCounter {
	c := &firedCounter{prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_eventprocessing_detections_total",
		Help: "Detections stored since the start, by tenant, profile, severity and edge (raised, resolved); with more than " + strconv.Itoa(maxFiredLabels) +
			" combinations the others have the profile (other)."}, []string{"tenant", "profile", "severity", "edge"}), map[[4]string]prometheus.Counter{}}
	for _, s := range []model.EdgeSignal{model.Raised, model.Resolved} {
		c.WithLabelValues(otherFired(s.String())...)
	}
	return c
}

// otherFired are the labels of what is counted together.
func otherFired(edge string) []string { return []string{"", "(other)", "", edge} }

func (c *firedCounter) count(edges []model.Edge) {
	for i := range edges {
		e := &edges[i]
		labels := [4]string{e.Tenant, e.Profile, e.Severity, e.Signal.String()}
		counter, known := c.known[labels]
		if !known {
			if len(c.known) < maxFiredLabels {
				counter = c.WithLabelValues(labels[:]...)
				c.known[labels] = counter
			} else {
				counter = c.WithLabelValues(otherFired(labels[3])...)
			}
		}
		counter.Inc()
	}
}

// maxMarkLabels bounds the label sets of weir_ingest_out_of_range_readings_total; what is beyond them is counted together.
const maxMarkLabels = 1000

// otherTenants is the tenant of what is counted together.
const otherTenants = "(other)"

// markCounter counts stored readings that were outside their range. One goroutine counts.
type markCounter struct {
	*prometheus.CounterVec
	known map[markLabels]prometheus.Counter
}

type markLabels struct{ tenant, mark string }

func newMarkCounter() *markCounter {
	c := &markCounter{prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_ingest_out_of_range_readings_total",
		Help: "Stored readings that were outside the range of their metric, by tenant and mark (flagged, clamped); with more than " + strconv.Itoa(maxMarkLabels) +
			" combinations the others have the tenant (other)."}, []string{"tenant", "mark"}), map[markLabels]prometheus.Counter{}}
	for _, m := range []model.RangeMark{model.Flagged, model.Clamped} {
		c.WithLabelValues(otherTenants, strings.ToLower(m.String()))
	}
	return c
}

// count counts the marked readings of a stored message.
func (c *markCounter) count(e *Event) {
	for _, v := range e.Record.Message.Measurements {
		if v.Mark != model.InRange {
			c.of(e.Record.Account, strings.ToLower(v.Mark.String())).Inc()
		}
	}
}

func (c *markCounter) of(tenant, mark string) prometheus.Counter {
	labels := markLabels{tenant, mark}
	counter, known := c.known[labels]
	switch {
	case known:
	case len(c.known) < maxMarkLabels:
		counter = c.WithLabelValues(tenant, mark)
		c.known[labels] = counter
	default:
		counter = c.WithLabelValues(otherTenants, mark)
	}
	return counter
}
