package e2e_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/internal/test/need"
	"weir/internal/test/testweir"
)

// elided fills in what a page leaves to its reader.
var elided = strings.NewReplacer("…", "filled-in")

// onDemand is a mutation inside a sentence that sends one message.
var onDemand = regexp.MustCompile("`(test[A-Z][A-Za-z]+\\(.*?\\))`")

// block is a block of a page, with the heading above it.
type block struct {
	line                    int
	section, language, body string
}

// blocksOf are all blocks of a page, those included that no reader runs.
func blocksOf(t *testing.T, page string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var b *block
	section, n := "", 0
	for l := range strings.Lines(string(text)) {
		n++
		fence, opens := strings.CutPrefix(strings.TrimSpace(l), "```")
		switch {
		case opens && b == nil:
			b = &block{line: n, section: section, language: fence}
		case opens:
			all, b = append(all, *b), nil
		case b != nil:
			b.body += l
		case strings.HasPrefix(l, "#"):
			section = strings.TrimSpace(strings.TrimLeft(l, "#"))
		}
	}
	return all
}

// TestThePagesOfWhatLeavesWeir does what docs/notifications.md and docs/connectors.md show: their mutations, rules, configs, commands and keys on a running instance.
func TestThePagesOfWhatLeavesWeir(t *testing.T) {
	t.Parallel()
	const notifications, connectors = "../../../docs/notifications.md", "../../../docs/connectors.md"
	notices, outside := blocksOf(t, notifications), blocksOf(t, connectors)
	var config strings.Builder
	config.WriteString(generous)
	for _, s := range outside {
		if s.language == "yaml" {
			config.WriteString(s.body + "\n")
		}
	}
	w := start(t, testweir.Options{Config: config.String()})
	if shown := w.Run("", "config", "show"); !strings.Contains(shown, "10.1.2.3/32:8883@acme") {
		t.Errorf("the configuration does not hold what the page allows:\n%s", shown)
	}
	tn := w.tenant(t, "acme")
	done := map[string]int{}
	do := func(page, area string, s block) {
		where := fmt.Sprintf("%s:%d", page, s.line)
		done[s.language]++
		switch s.language {
		case "graphql":
			if a := tn.ask(t, area, tn.token, elided.Replace(s.body), nil); len(a.Errors) > 0 {
				t.Errorf("%s: %s", where, a.raw)
			}
		case "json":
			var one struct{ Type string }
			if err := json.Unmarshal([]byte(s.body), &one); err != nil {
				t.Errorf("%s: %v", where, err)
				return
			}
			if one.Type != "" {
				if v, raw := tn.validate(draft{Token: "shown", Definition: s.body}); !v.Valid {
					t.Errorf("%s: %s", where, raw)
				}
				return
			}
			token := map[bool]string{true: "plant", false: s.section}[s.section == "mqtt"] // the commands name that one
			token = strings.ReplaceAll(token, "_", "-")
			if a := tn.ask(t, area, tn.token, `mutation($r:ConnectorCreateRequest!,$t:String!){createConnector(request:$r){id} publishConnector(token:$t){version}}`, map[string]any{
				"t": token, "r": map[string]any{"token": token, "type": s.section, "config": s.body, "secret": "filled-in"}}); len(a.Errors) > 0 {
				t.Errorf("%s: %s", where, a.raw)
			}
		case "python":
			t.Run("python", func(t *testing.T) { genuine(t, where, s.body) })
		case "yaml", "text", "console": // the configuration of the instance; a form; what needs all of the page
		default:
			t.Errorf("%s: nothing is known of %s", where, s.language)
		}
	}
	for _, s := range notices {
		do(notifications, "notification-management", s)
	}
	for _, s := range outside {
		do(connectors, "outbound-connectors", s)
	}
	for _, s := range outside {
		if s.language != "console" {
			continue
		}
		for command := range strings.Lines(s.body) {
			args := strings.Fields(command)[1:]
			out, err := w.TryRun("", args...)
			if args[1] == "test" { // which nobody answers
				if err == nil {
					t.Errorf("%s:%d: %s: %s", connectors, s.line, command, out)
				}
			} else if err != nil || !strings.Contains(out, "plant") {
				t.Errorf("%s:%d: %s: %v\n%s", connectors, s.line, command, err, out)
			}
		}
	}
	text, err := os.ReadFile(notifications)
	if err != nil {
		t.Fatal(err)
	}
	calls := onDemand.FindAllStringSubmatch(string(text), -1)
	for _, m := range calls {
		a := tn.must(t, "notification-management", tn.token, "mutation{x:"+m[1]+"{ok outcome detail}}", nil)
		if !strings.Contains(a.raw, `"ok":false`) { // nobody has that host
			t.Errorf("%s: %s", m[1], a.raw)
		}
	}
	if len(calls) == 0 || done["graphql"] != 4 || done["json"] != 5 || done["yaml"] != 1 || done["python"] != 1 || done["console"] != 1 {
		t.Errorf("the pages have %v and %d calls", done, len(calls))
	}
}

// genuine runs the receiver of a page on a signature that is right, and on some that are not.
func genuine(t *testing.T, where, program string) {
	t.Helper()
	python := need.Program(t, "python3")
	now := time.Now().Unix()
	sign := func(seconds int64, key string) string {
		mac := hmac.New(sha256.New, []byte(key))
		fmt.Fprintf(mac, "%d.body", seconds)
		return fmt.Sprintf("t=%d,v1=%s", seconds, hex.EncodeToString(mac.Sum(nil)))
	}
	for _, c := range []struct {
		header, want string
	}{{sign(now, "key"), "True"}, {sign(now, "other"), "False"}, {sign(now-3600, "key"), "False"}} {
		out, err := exec.CommandContext(t.Context(), python, "-c", program+fmt.Sprintf("\nprint(genuine(%q, b'body', b'key'))\n", c.header)).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != c.want {
			t.Errorf("%s: %s: %v %s, want %s", where, c.header, err, out, c.want)
		}
	}
}
