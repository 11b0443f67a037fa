package channel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/model"
)

// Bounds of what is shown of a text, in characters.
const (
	maxName    = 100   // of a name in a subject
	maxLine    = 500   // of a text in one line
	maxProse   = 4_000 // of a text with line breaks
	maxLink    = 2_000
	unreadable = '\uFFFD'
)

// line makes a text of any origin fit for one line of a message: it cannot begin a line of its own, hide what follows or turn it around.
func line(text string, limit int) string {
	var b strings.Builder
	n, space := 0, false
	for _, r := range text { // what is no UTF-8 becomes U+FFFD
		if unicode.IsSpace(r) || slices.Contains(lineBreaks, r) {
			space = n > 0
			continue
		}
		if n == limit {
			return b.String() + "…"
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(shown(r))
		n++
	}
	return b.String()
}

// shown replaces a character that has no form or changes that of others.
func shown(r rune) rune {
	switch {
	case unicode.IsControl(r), r >= '\u202A' && r <= '\u202E', r >= '\u2066' && r <= '\u2069', r == '\uFEFF', r >= 0xE0000 && r <= 0xE007F:
		return unreadable
	}
	return r
}

// prose does the same for a text of several lines, each of which is indented.
func prose(text, indent string) string {
	var lines []string
	n := 0
	for l := range strings.Lines(strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n", "\u0085", "\n", "\v", "\n", "\f", "\n").Replace(text)) {
		l = line(l, maxProse-n)
		n += utf8.RuneCountInString(l)
		if l != "" {
			lines = append(lines, indent+l)
		}
		if n >= maxProse {
			break
		}
	}
	return strings.Join(lines, "\n")
}

// event is what has happened to an alarm, as a subject has it.
func (a *Alarm) event() string {
	switch a.EventType {
	case Raised:
		return "raised"
	case Escalated:
		return "escalated"
	case Renotified:
		return "still active"
	}
	return strings.ToLower(line(a.EventType, maxName))
}

// where is the originator in one word.
func (a *Alarm) where() string {
	if name := line(a.OriginatorName, maxName); name != "" {
		return name
	}
	return line(a.OriginatorID, maxName)
}

// headline is [SEVERITY] event: key (originator).
func (a *Alarm) headline() string {
	return fmt.Sprintf("[%s] %s: %s (%s)", line(a.Severity, maxName), a.event(), line(a.AlarmKey, maxName), a.where())
}

// subject is the subject of a mail, one line.
func (m *Message) subject() string {
	switch m.Kind {
	case Single:
		return m.Alarms[0].headline()
	case Digest:
		return fmt.Sprintf("[%s] %s", m.gravest(), alarmsOf(m.total()))
	case MuteEnd:
		return fmt.Sprintf("[%s] still active after a mute: %s", m.gravest(), alarmsOf(m.total()))
	}
	return "[TEST] a test message of Weir"
}

func alarmsOf(n int) string {
	if n == 1 {
		return "1 alarm"
	}
	return strconv.Itoa(n) + " alarms"
}

// gravest is the gravest severity that a message of several alarms counts.
func (m *Message) gravest() string {
	for _, s := range model.AlarmSeverities() {
		if m.Counts[s] > 0 {
			return s
		}
	}
	return "NONE"
}

// text is the text of a mail; its lines end with \n.
func (m *Message) text(env *Env) string {
	var b strings.Builder
	if m.Kind == Single {
		m.Alarms[0].tell(&b)
	} else {
		b.WriteString(m.summary() + "\n")
	}
	b.WriteString("\n-- \nSent by Weir")
	if tenant := line(m.tenant(), maxName); tenant != "" {
		b.WriteString(" for " + tenant)
	}
	if env.Instance != "" {
		b.WriteString(", instance " + line(env.Instance, maxName))
	}
	b.WriteString(".\n")
	return b.String()
}

// tell writes what, where, how bad, since when, the value and what to do.
func (a *Alarm) tell(b *strings.Builder) {
	fact := func(name, text string) {
		if text != "" {
			fmt.Fprintf(b, "%-11s%s\n", name+":", text)
		}
	}
	fact("Alarm", line(a.AlarmKey, maxLine))
	severity := line(a.Severity, maxName)
	if before := line(a.PreviousSeverity, maxName); before != "" && before != severity {
		severity += ", before " + before
	}
	fact("Severity", severity)
	fact("Where", a.place())
	fact("Since", shownTime(a.RaisedTime))
	if !a.OccurredTime.Equal(a.RaisedTime) {
		fact("Seen", shownTime(a.OccurredTime))
	}
	fact("Value", a.reading())
	fact("Message", line(a.Message, maxLine))
	fact("Rule", line(a.RuleName, maxLine))
	if a.EventType == Renotified {
		fact("Reminder", a.reminder())
	}
	if todo := prose(a.RuleDescription, "  "); todo != "" {
		b.WriteString("\nWhat to do:\n" + todo + "\n")
	}
	if link := line(a.Link, maxLink); link != "" {
		b.WriteString("\n" + link + "\n")
	}
}

// place is the originator with its name, type and id.
func (a *Alarm) place() string {
	name, id := line(a.OriginatorName, maxLine), line(a.OriginatorID, maxLine)
	id = strings.TrimSpace(strings.ToLower(line(a.OriginatorType, maxName)) + " " + id)
	if name == "" {
		return id
	}
	return name + " (" + id + ")"
}

// reading is the value with its metric, "" without one.
func (a *Alarm) reading() string {
	metric := line(a.MetricKey, maxLine)
	switch {
	case a.Value == nil:
		return metric
	case metric == "":
		return number(*a.Value)
	}
	return metric + " = " + number(*a.Value)
}

func (a *Alarm) reminder() string {
	text := "not acknowledged yet"
	if a.Escalation > 0 {
		text = fmt.Sprintf("level %d, %s", a.Escalation, text)
	}
	if !a.FirstNotifiedTime.IsZero() {
		text += "; first notified " + shownTime(a.FirstNotifiedTime)
	}
	return text
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func shownTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// summary is a message about several alarms or none, in lines.
func (m *Message) summary() string {
	var b strings.Builder
	switch m.Kind {
	case Test:
		b.WriteString("This is a test message of Weir: the channel works.")
	case MuteEnd:
		b.WriteString("A mute has ended, and " + alarmsOf(m.total()) + " that it held back " + isOrAre(m.total()) + " still active: " + m.counted())
	default:
		b.WriteString(alarmsOf(m.total()) + ": " + m.counted())
	}
	if note := line(m.Note, maxLine); note != "" {
		b.WriteString("\n\n" + note)
	}
	if len(m.Alarms) > 0 {
		b.WriteString("\n")
	}
	for i := range m.Alarms {
		a := &m.Alarms[i]
		b.WriteString("\n" + a.headline())
		for _, more := range []string{shownTime(a.OccurredTime), a.reading()} {
			if more != "" {
				b.WriteString(", " + more)
			}
		}
	}
	if more := m.total() - len(m.Alarms); more > 0 && len(m.Alarms) > 0 {
		b.WriteString("\nand " + strconv.Itoa(more) + " more")
	}
	return b.String()
}

func isOrAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// counted is how many alarms of each severity there are, the gravest first.
func (m *Message) counted() string {
	var parts []string
	known := model.AlarmSeverities()
	for _, s := range known {
		if n := m.Counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	other := 0
	for s, n := range m.Counts {
		if !slices.Contains(known, s) {
			other += n
		}
	}
	if other > 0 {
		parts = append(parts, fmt.Sprintf("%d of another severity", other))
	}
	return strings.Join(parts, ", ")
}
