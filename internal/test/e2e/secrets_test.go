package e2e_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
	"weir/internal/test/testcerts"
	"weir/internal/test/testweir"
)

// known are secrets that a test has stored, by what they are for.
type known map[string]string

// add makes a secret. It has characters that JSON, URLs and base64 write in a way of their own, and none that a header refuses.
func (k known) add(what string) string {
	k[what] = "kn0wn/+%&" + rand.Text()[:12]
	return k[what]
}

// forms are the ways in which a secret could be written down.
func forms(secret string) map[string]string {
	quoted, _ := json.Marshal(secret)
	f := map[string]string{"as it is": secret, "in JSON": strings.Trim(string(quoted), `"`), "percent": url.QueryEscape(secret), "percent in a path": url.PathEscape(secret),
		"hex": hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(secret)))}
	for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64 of URLs": base64.RawURLEncoding} {
		for before := range 3 { // whatever stands before it, such as a user name
			text := enc.EncodeToString(append(make([]byte, before), secret...))
			from := []int{0, 2, 3}[before]
			f[fmt.Sprintf("%s, %d", name, before)] = text[from : len(text)-1]
		}
	}
	return f
}

// in are the secrets that a text holds, and how.
func (k known) in(text []byte) (found []string) {
	for what, secret := range k {
		for form, needle := range forms(secret) {
			if bytes.Contains(text, []byte(needle)) {
				found = append(found, what+" ("+form+")")
			}
		}
	}
	slices.Sort(found)
	return found
}

// hostile is other systems that take what they are sent, or refuse it and repeat it in their answer.
type hostile struct {
	mu   sync.Mutex
	seen bytes.Buffer // all that was received
	hits map[string]int
}

func (h *hostile) keep(what string, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hits[what]++
	h.seen.Write(text)
}

// ServeHTTP implements http.Handler.
func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all, _ := httputil.DumpRequest(r, true)
	h.keep(r.URL.Path, all)
	if strings.HasPrefix(r.URL.Path, "/ok") {
		return
	}
	w.Header().Set("X-You-Sent", r.Header.Get("Authorization"))
	w.Header().Set("Location", "https://127.0.0.1:1/"+url.PathEscape(r.Header.Get("Authorization")))
	status := http.StatusInternalServerError
	if strings.HasPrefix(r.URL.Path, "/redirect") {
		status = http.StatusFound
	}
	w.WriteHeader(status)
	_, _ = w.Write(all)
}

// mail answers a session of SMTP: the password is wrong, and this is what it was.
func (h *hostile) mail(c net.Conn) {
	defer c.Close()
	say := func(lines ...string) { _, _ = io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n") }
	say("220 mail.example.com ESMTP")
	for s := bufio.NewScanner(c); s.Scan(); {
		switch verb, rest, _ := strings.Cut(s.Text(), " "); strings.ToUpper(verb) {
		case "EHLO":
			say("250-mail.example.com", "250 AUTH PLAIN")
		case "AUTH":
			_, first, _ := strings.Cut(rest, " ")
			password, _ := base64.StdEncoding.DecodeString(first)
			h.keep("mail", password)
			say("535 5.7.8 " + strings.ReplaceAll(string(password), "\x00", ":") + " is wrong, as is " + first)
		case "QUIT":
			say("221 bye")
			return
		default:
			say("503 no")
		}
	}
}

// TestNoSecretLeaves: secrets of every kind are stored, used by deliveries and tests that succeed, and by such whose target refuses them and repeats
// them in its answer. None is found in the data directory of the killed process, in what it printed and logged, in a backup, a bundle, a report, or in
// any answer, in any spelling.
func TestNoSecretLeaves(t *testing.T) {
	t.Parallel()
	k, h := known{}, &hostile{hits: map[string]int{}}
	ca, err := testcerts.NewCA("own")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(time.Now().Add(24 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := ca.WriteCA(caFile); err != nil {
		t.Fatal(err)
	}
	secured := &tls.Config{Certificates: []tls.Certificate{pair.TLS()}}
	web := httptest.NewUnstartedServer(h)
	web.TLS = secured.Clone()
	web.StartTLS()
	t.Cleanup(web.Close)
	mail, err := tls.Listen("tcp", "127.0.0.1:0", secured)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for c, err := mail.Accept(); err == nil; c, err = mail.Accept() {
			running.Go(func() { h.mail(c) })
		}
	})
	t.Cleanup(func() {
		_ = mail.Close()
		running.Wait()
	})
	broker := func(name string, code byte) *mqttpeer.Broker {
		return mqttpeer.Start(t, &mqttpeer.Broker{OnConnect: func(c *packets.Connect) byte {
			h.keep(name, c.Password)
			return code
		}}, nil, false)
	}
	takes, refuses := broker("broker", 0), broker("broker that refuses", 0x86)
	webPort, mailPort := fmt.Sprint(web.Listener.Addr().(*net.TCPAddr).Port), fmt.Sprint(mail.Addr().(*net.TCPAddr).Port)
	var allowed []string
	for _, port := range []string{webPort, mailPort, takes.Port(), refuses.Port()} {
		allowed = append(allowed, fmt.Sprintf("%q", "127.0.0.1/32:"+port))
	}
	w := start(t, testweir.Options{Config: generous + fmt.Sprintf("logging: {level: debug}\nai: {enabled: true}\nconnectors: {attempts: 1}\negress: {ca_file: %s, allowed_destinations: [%s]}\n", caFile, strings.Join(allowed, ", "))})
	tn := w.tenant(t, "discreet")

	shown := map[string]string{} // what anyone could read
	ask := func(area, query string, vars map[string]any) *answer {
		t.Helper()
		a := tn.must(t, area, tn.token, query, vars)
		shown[fmt.Sprintf("answer to %.60s %v", query, len(shown))] = a.raw
		return a
	}
	const out, notify = "outbound-connectors", "notification-management"
	local := "https://127.0.0.1:" + webPort
	for token, use := range map[string]string{"bearer": "BEARER", "signature": "SIGNATURE"} {
		ask(out, `mutation($t:String!,$v:String!,$h:[String!]!,$u:String){setHttpSecret(token:$t,value:$v,hosts:$h,use:$u){token hosts use}}`,
			map[string]any{"t": token, "v": k.add("HTTP secret " + token), "h": []string{"127.0.0.1:" + webPort}, "u": use})
	}
	object := func(fields map[string]any) string {
		text, _ := json.Marshal(fields)
		return string(text)
	}
	for token, c := range map[string]struct {
		kind   string
		config map[string]any
	}{
		"takes":   {"mqtt", map[string]any{"urls": []string{"mqtt://127.0.0.1:" + takes.Port()}, "topic": "t", "username": "weir"}},
		"refuses": {"mqtt", map[string]any{"urls": []string{"mqtt://127.0.0.1:" + refuses.Port()}, "topic": "t", "username": "weir"}},
		"queue":   {"aws_sqs", map[string]any{"region": "eu-central-1", "accessKeyId": "AKIAIOSFODNN7EXAMPLE", "url": local + "/123456789012/alerts", "endpoint": local}},
		"kafka": {"kafka", map[string]any{"addresses": []string{"127.0.0.1:" + webPort}, "topic": "t", "tls": true,
			"sasl": map[string]any{"mechanism": "PLAIN", "username": "weir"}}},
	} {
		ask(out, `mutation($r:ConnectorCreateRequest!){createConnector(request:$r){id token config hasSecret}}`, map[string]any{"r": map[string]any{"token": token, "type": c.kind,
			"config": object(c.config), "secret": k.add("connector " + token)}})
		ask(out, `mutation($t:String!){publishConnector(token:$t){version}}`, map[string]any{"t": token})
	}
	for token, c := range map[string]struct {
		kind   string
		config map[string]any
	}{
		"fine":      {"webhook", map[string]any{"url": local + "/ok/channel"}},
		"bad":       {"webhook", map[string]any{"url": local + "/no/channel"}},
		"own":       {"webhook", map[string]any{"url": local + "/no/own", "authHeader": "X-Key", "authScheme": ""}},
		"elsewhere": {"webhook", map[string]any{"url": local + "/redirect"}},
		"mail":      {"smtp", map[string]any{"host": "127.0.0.1", "port": mail.Addr().(*net.TCPAddr).Port, "security": "tls", "from": "weir@example.com", "username": "weir"}},
	} {
		ask(notify, `mutation($r:NotificationChannelCreateRequest!){createNotificationChannel(request:$r){id token config hasSecret}}`, map[string]any{"r": map[string]any{"token": token,
			"channelType": c.kind, "enabled": true, "config": object(c.config), "secret": k.add("channel " + token)}})
	}
	ask(notify, `mutation{createNotificationPolicy(request:{token:"all",enabled:true,rules:[{severity:"*",channelToken:"fine"},{severity:"*",channelToken:"bad"},{severity:"*",channelToken:"own"},
		{severity:"*",channelToken:"elsewhere"},{severity:"*",channelToken:"mail",recipients:"[\"ann@example.com\"]"}]}){token}}`, nil)
	shown["the AI provider"] = w.Run("", "api", "--tenant", "discreet", "ai-inference-admin", fmt.Sprintf(`mutation{createAiProvider(request:{token:"own",name:"own",kind:"openai-compatible",model:"m",enabled:true,endpoint:%q,secret:%q}){token hasSecret}}`,
		local+"/no/ai", k.add("AI provider")))

	// What is refused is not repeated.
	for query, vars := range map[string]map[string]any{
		`mutation($v:String!){setHttpSecret(token:"x",value:$v,hosts:["example.com"]){token}}`:                                                                             {"v": k.add("HTTP secret that is refused") + " \n"},
		`mutation($v:String!){createConnector(request:{token:"x",type:"mqtt",config:"{\"urls\":1}",secret:$v}){id}}`:                                                       {"v": k.add("connector that is refused")},
		`mutation($v:String!){createNotificationChannel(request:{token:"x",channelType:"webhook",enabled:true,config:"{\"url\":\"https://example.com\"}",secret:$v}){id}}`: {"v": k.add("channel that is refused") + " \n"},
	} {
		area := out
		if strings.Contains(query, "Channel") {
			area = notify
		}
		a := w.ask(t, area, tn.token, query, vars)
		if a.refusal() == "" {
			t.Errorf("%s is taken: %s", query, a.raw)
		}
		shown["refusal of "+query] = a.raw
	}

	// Deliveries. None waits: one attempt ends each.
	call := func(path, secret string) string {
		return fmt.Sprintf(`{"type":"httpCall","httpCall":{"url":"%s%s","secretRef":"http/%s"}}`, local, path, secret)
	}
	publish := func(connector string) string {
		return fmt.Sprintf(`{"type":"publish","publish":{"connectorRef":%q}}`, connector)
	}
	hot := func(actions ...string) string {
		return above("hot", "temp", 80, `,"severity":"critical","actions":[`+strings.Join(actions, ",")+`]`)
	}
	tn.profile("p", map[string]string{"well": hot(call("/ok/bearer", "bearer"), call("/ok/signature", "signature"), publish("takes")),
		"badly":  hot(call("/no/bearer", "bearer"), call("/no/signature", "signature"), call("/redirect/bearer", "bearer")),
		"others": hot(publish("refuses"), publish("queue"), publish("kafka"))})
	tn.device("d1", "p")
	tn.kept(measured("temp", "99", tn.as("d1")))
	for token := range k.of("connector ") {
		ask(out, `mutation($t:String!){testConnector(token:$t){ok outcome detail}}`, map[string]any{"t": token})
	}
	for token := range k.of("channel ") {
		recipients := ""
		if token == "mail" {
			recipients = `,recipients:"[\"ann@example.com\"]"`
		}
		ask(notify, fmt.Sprintf(`mutation{testNotificationChannel(token:%q%s){ok outcome detail}}`, token, recipients), nil)
	}
	shown["the test of the AI provider"], _ = w.TryRun("", "api", "--tenant", "discreet", "ai-inference-admin", `mutation{testAiProvider(token:"own",request:{messages:[{role:"user",content:"hi"}]}){text}}`)

	poll.Until(t, "everything has ended", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, what := range []string{"/ok/bearer", "/ok/signature", "/no/bearer", "/no/signature", "/redirect/bearer", "/ok/channel", "/no/channel", "/no/own", "/redirect", "broker",
			"broker that refuses", "mail"} {
			if h.hits[what] == 0 {
				return fmt.Errorf("nothing came to %s: %v", what, h.hits)
			}
		}
		if raw := ask(out, `{deadLetters(criteria:{pageNumber:1,pageSize:100}){results{id kind reason source summary detail attempts subject sequence correlation reference}}}`, nil).raw; strings.Count(raw, `"reason":"exhausted"`) < 5 {
			return fmt.Errorf("%s", raw)
		}
		return nil
	})
	// The targets have seen what is sent at all, so the search below looks for what was there to be found.
	h.mu.Lock()
	seen := k.in(h.seen.Bytes())
	h.mu.Unlock()
	for _, what := range []string{"HTTP secret bearer", "connector takes", "connector refuses", "channel fine", "channel bad", "channel own", "channel elsewhere", "channel mail"} {
		if !slices.Contains(seen, what+" (as it is)") {
			t.Errorf("the secret of the %s was never sent: %q", what, seen)
		}
	}

	ask(out, `{connectors(criteria:{pageNumber:1,pageSize:100}){results{token config hasSecret}} httpSecrets{token hosts use}}`, nil)
	ask(notify, `{notificationChannels(criteria:{pageNumber:1,pageSize:100}){results{token config hasSecret}} notificationStates(criteria:{pageNumber:1,pageSize:100}){results{alarmKey severity notifyCount}}}`, nil)
	ask("event-processing", `query($i:PreviewRuleInput!){previewRule(input:$i){ok firings{series signal trace{nodeId kind disposition detail}} diagnostics{message}}}`, map[string]any{"i": map[string]any{
		"ruleDefinition": hot(call("/ok/bearer", "bearer")), "profileToken": "p", "trace": true,
		"start": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "end": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}})
	backup, bundle := filepath.Join(t.TempDir(), "copy.backup"), filepath.Join(t.TempDir(), "bundle.tar.gz")
	for _, args := range []string{"config show --origin", "config show --json", "doctor --json", "status --json", "ledger dead-letters --tenant discreet --json --limit 100", "ledger trace discreet d1 --json", "outbox discreet --orders --json",
		"connector list discreet --json", "connector show discreet takes --json", "notify channel list discreet --json", "notify channel show discreet mail --json", "notify states discreet --json",
		"backup create --json " + backup, "backup verify --json " + backup, "bundle -o " + bundle} {
		text, _ := w.TryRun("", strings.Fields(args)...) // doctor has findings
		if text == "" && !strings.HasPrefix(args, "bundle") {
			t.Errorf("weir %s prints nothing", args)
		}
		shown["weir "+args] = text
	}
	metrics, err := http.Get(w.Metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(metrics.Body)
	_ = metrics.Body.Close()
	shown["metrics"] = string(text)
	w.Kill()
	shown["stdout"], shown["stderr"] = w.Stdout(), w.Stderr()
	if !strings.Contains(shown["stderr"], "was not delivered") {
		t.Errorf("the log says nothing of deliveries:\n%s", shown["stderr"])
	}
	for where, text := range shown {
		for _, found := range k.in([]byte(text)) {
			t.Errorf("%s shows the secret of the %s:\n%.500s", where, found, text)
		}
	}
	k.search(t, backup)
	k.search(t, inflated(t, bundle))
	k.search(t, w.Dir)

	// The search finds what is there: tokens of what is stored, and a secret in each of its spellings.
	if n := len((known{"word": "AKIAIOSFODNN7EXAMPLE"}).files(t, w.Dir)); n == 0 {
		t.Error("the search does not find the access key id in the data directory")
	}
	if n := len((known{"word": "AKIAIOSFODNN7EXAMPLE"}).files(t, backup)); n == 0 {
		t.Error("the search does not find the access key id in the backup")
	}
	one := known{"word": k["AI provider"]}
	for form, needle := range forms(one["word"]) {
		if !slices.Contains(one.in([]byte("x"+needle+"x")), "word ("+form+")") {
			t.Errorf("the search does not find a secret written %s", form)
		}
	}
	for _, user := range []string{"u", "us", "use", "weir"} {
		basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + one["word"] + ":more"))
		if len(one.in([]byte(basic))) == 0 {
			t.Errorf("the search does not find a secret in %s", basic)
		}
	}
}

// inflated is a file without its compression.
func inflated(t *testing.T, file string) string {
	t.Helper()
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil || !bytes.Contains(text, []byte("config")) {
		t.Fatalf("%s: %d bytes, %v", file, len(text), err)
	}
	if err := os.WriteFile(file+".plain", text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file + ".plain"
}

// of are the names of those for things of a kind.
func (k known) of(kind string) map[string]string {
	all := map[string]string{}
	for what, secret := range k {
		if name, ok := strings.CutPrefix(what, kind); ok && !strings.Contains(name, " ") {
			all[name] = secret
		}
	}
	return all
}

// files are the files below a path that hold a secret, and which.
func (k known) files(t *testing.T, root string) map[string][]string {
	t.Helper()
	all, n := map[string][]string{}, 0
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		if found := k.in(text); len(found) > 0 {
			all[path] = found
		}
		return nil
	}); err != nil || n == 0 {
		t.Fatalf("%s has %d files: %v", root, n, err)
	}
	return all
}

func (k known) search(t *testing.T, root string) {
	t.Helper()
	found := k.files(t, root)
	for _, path := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%s holds the secrets of %q", path, found[path])
	}
}
