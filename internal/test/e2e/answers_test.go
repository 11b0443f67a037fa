package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// makeAnswers writes the fixture of a commit with the program of this tree:
//
//	go test ./internal/test/e2e -run TestTheAnswersOfAnEarlierProgram -make-answers 793db62
//
// The keys and passwords in it were made for this test.
var makeAnswers = flag.String("make-answers", "", "write testdata/answers/COMMIT")

// Parts of a fixture: a data directory whose process was killed with records acknowledged a moment before, a backup made
// shortly before that, the site file of the instance, and what it answered to answersAsked.
const (
	answersData   = "killed"
	answersBackup = "weir.backup"
	answersSite   = "site.yaml"
	answersFile   = "answers.json.gz"
	// answersConfig makes several checkpoints out of a short history.
	answersConfig = generous + "spool: {replay_bytes: 256KiB}\n"
)

// answersAsked are the queries whose answers must stay, by area. Nothing in them depends on the time of asking.
var answersAsked = []struct{ area, query string }{
	{"device-management", `{deviceTypes(criteria:{pageNumber:1,pageSize:100}){results{id token name profile{token}} pagination{totalRecords}}}`},
	{"device-management", `{deviceProfiles(criteria:{pageNumber:1,pageSize:100}){results{id token name activeVersion createdAt location{expectedAccuracyMeters}
		metricDefinitions{token metricKey dataType unit} detectionRules{token enabled definition}}}}`},
	{"device-management", `{deviceProfileVersions(token:"boiler"){version label publishedAt}}`},
	{"device-management", `{devices(criteria:{pageNumber:1,pageSize:100}){results{id token name externalId createdAt updatedAt deviceType{token}}}}`},
	{"device-management", `{deviceCredentials(criteria:{pageNumber:1,pageSize:100}){results{id token credentialType enabled}}}`},
	{"event-management", `{events(criteria:{pageNumber:1,pageSize:300}){results{id deviceToken eventType occurredTime processedTime source altId anchors{type token}} pagination{totalRecords}}}`},
	{"event-management", `{measurementEvents(criteria:{pageNumber:1,pageSize:1000}){results{id deviceToken occurredTime name value classifier unit dataType} pagination{totalRecords}}}`},
	{"event-management", `{measurementEvents(criteria:{pageNumber:3,pageSize:50,deviceToken:"boiler-2"}){results{id name value} pagination{pageStart pageEnd totalRecords}}}`},
	{"event-management", `{locationEvents(criteria:{pageNumber:1,pageSize:100}){results{id deviceToken occurredTime latitude longitude elevation accuracy speed heading}}}`},
	{"event-management", `{alertEvents(criteria:{pageNumber:1,pageSize:100}){results{id deviceToken occurredTime type level message source}}}`},
	{"event-management", `{bucketedMeasurements(criteria:{intervalSeconds:60}){bucketStart name avg min max sum count}}`},
	{"event-management", `{ingestLedger(criteria:{}){hour transport received stored duplicate deadLetter refused dropped waiting readings reasons{heading:outcome reason count}}}`},
	{"device-state", `{a:latestMeasurements(deviceToken:"boiler-1"){deviceToken name value unit occurredTime} b:latestMeasurements(deviceToken:"boiler-2"){name value classifier dataType occurredTime}}`},
	{"device-state", `{latestLocations(deviceTokens:["boiler-1","boiler-2"]){deviceToken latitude longitude heading occurredTime}}`},
	{"device-state", `{deviceStatesByDeviceToken(deviceTokens:["boiler-2"]){deviceToken lastActivityTime lastConnectTime sessionId}}`},
	{"event-processing", `{ruleHealth(profileToken:"boiler"){ruleToken fireCount}}`},
}

// askedThen are queries of answersAsked as the programs of the fixtures knew them, where a field has another name now.
var askedThen = strings.NewReplacer("reasons{heading:outcome reason count}", "reasons{heading reason count}")

// A directory with its log, a backup and a site file of an earlier program are opened, and answer as that program did.
func TestTheAnswersOfAnEarlierProgram(t *testing.T) {
	t.Parallel()
	if *makeAnswers != "" {
		writeAnswers(t, filepath.Join("testdata/answers", *makeAnswers))
	}
	fixtures, err := filepath.Glob("testdata/answers/*")
	if err != nil || len(fixtures) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, fixture := range fixtures {
		t.Run(filepath.Base(fixture), func(t *testing.T) {
			t.Parallel()
			want := map[string]map[string]json.RawMessage{}
			f, err := os.Open(filepath.Join(fixture, answersFile))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			z, err := gzip.NewReader(f)
			if err := errors.Join(err, json.NewDecoder(z).Decode(&want)); err != nil {
				t.Fatal(err)
			}
			t.Run("directory", func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				unpackArchive(t, filepath.Join(fixture, answersData+".tar.gz"), answersData, filepath.Join(dir, "data"))
				sameAnswers(t, want[answersData], openAnswers(t, dir, fixture))
			})
			t.Run("backup", func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				restoreAnswers(t, filepath.Join(fixture, answersBackup), dir)
				sameAnswers(t, want[answersBackup], openAnswers(t, dir, fixture))
			})
			t.Run("site file", func(t *testing.T) {
				t.Parallel()
				absolute, err := filepath.Abs(filepath.Join(fixture, answersSite))
				if err != nil {
					t.Fatal(err)
				}
				weir(t, "site", "validate", absolute)
			})
		})
	}
}

func sameAnswers(t *testing.T, want, got map[string]json.RawMessage) {
	t.Helper()
	if len(want) != len(answersAsked) {
		t.Errorf("the fixture has %d answers for %d queries", len(want), len(answersAsked))
	}
	for _, q := range answersAsked {
		if w, g := compact(t, want[askedThen.Replace(q.query)]), compact(t, got[q.query]); w != g {
			t.Errorf("%s\n%s\nanswered then %.2000s\nnow           %.2000s", q.area, q.query, w, g)
		}
	}
}

func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatalf("%v: %q", err, raw)
	}
	return b.String()
}

// openAnswers opens the data directory in dir and returns its answers by query. The exported site file changes nothing
// there, and the ledger can be verified.
func openAnswers(t *testing.T, dir, fixture string) map[string]json.RawMessage {
	t.Helper()
	w := &world{Proc: testweir.Start(t, testweir.Options{Dir: dir, Config: answersConfig})}
	w.login()
	tn := w.enter(t, "acme")
	poll.Until(t, "a ledger without waiting messages", func() error {
		var out struct{ IngestLedger []ledgerLine }
		tn.events(`{ingestLedger(criteria:{}){waiting}}`, nil).into(t, &out)
		for _, l := range out.IngestLedger {
			if l.Waiting > 0 {
				return fmt.Errorf("%+v", l)
			}
		}
		return nil
	})
	got := map[string]json.RawMessage{}
	for _, q := range answersAsked {
		got[q.query] = w.must(t, q.area, tn.token, q.query, nil).Data
	}
	w.Run("", "ledger", "verify")
	if fixture != "" {
		if out := w.Run("", "site", "plan", filepath.Join(fixture, answersSite)); !bytes.Contains([]byte(out), []byte("nothing to change")) {
			t.Errorf("site plan: %s", out)
		}
	}
	if err := w.Stop(); err != nil {
		t.Errorf("stop: %v\n%s", err, w.Stderr())
	}
	return got
}

func restoreAnswers(t *testing.T, file, dir string) {
	t.Helper()
	absolute, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	weir(t, "backup", "restore", absolute, "--data", filepath.Join(dir, "data"))
}

// weir runs a command where no instance runs.
func weir(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(testweir.Binary(t), args...)
	cmd.Dir, cmd.Env = t.TempDir(), testweir.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("weir %v: %v\n%s", args, err, out)
	}
}

// writeAnswers makes a fixture.
func writeAnswers(t *testing.T, fixture string) {
	dir := t.TempDir()
	if err := os.MkdirAll(fixture, 0o755); err != nil {
		t.Fatal(err)
	}
	fixture, err := filepath.Abs(fixture)
	if err != nil {
		t.Fatal(err)
	}
	liveAnswers(t, dir, fixture)
	f, err := os.Create(filepath.Join(fixture, answersData+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	z, _ := gzip.NewWriterLevel(f, gzip.BestCompression) // the level is one
	tw := tar.NewWriter(z)
	if err := errors.Join(pack(tw, filepath.Join(dir, "data"), answersData), tw.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	answers := map[string]map[string]json.RawMessage{answersData: openAnswers(t, dir, "")}
	restored := t.TempDir()
	restoreAnswers(t, filepath.Join(fixture, answersBackup), restored)
	answers[answersBackup] = openAnswers(t, restored, "")
	if f, err = os.Create(filepath.Join(fixture, answersFile)); err != nil {
		t.Fatal(err)
	}
	z.Reset(f)
	if err := errors.Join(json.NewEncoder(z).Encode(answers), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// liveAnswers lets an instance live through every kind of event, a stop, a backup and a kill.
func liveAnswers(t *testing.T, dir, fixture string) {
	w := start(t, testweir.Options{Dir: dir, Config: answersConfig})
	tn := w.tenant(t, "acme")
	tn.devices(`mutation{createDeviceProfile(request:{token:"boiler",name:"Boiler",location:{expectedAccuracyMeters:5},inactivityTimeoutSeconds:300}){id}}`, nil)
	tn.devices(`mutation{a:createMetricDefinition(request:{token:"boiler-temp",deviceProfileToken:"boiler",metricKey:"temp",dataType:"DOUBLE",unit:"Cel"}){id}
		b:createMetricDefinition(request:{token:"boiler-on",deviceProfileToken:"boiler",metricKey:"on",dataType:"BOOLEAN"}){id}}`, nil)
	tn.rule("boiler", "too-hot", above("Too hot", "temp", 80, ""), true)
	tn.rule("boiler", "far-too-hot", above("Far too hot", "temp", 95, ""), true)
	tn.devices(`mutation{createDeviceType(request:{token:"boiler",name:"Boiler",profileToken:"boiler"}){id}}`, nil)
	tn.publish("boiler")
	for _, d := range []string{"boiler-1", "boiler-2"} {
		tn.device(d, "boiler")
		tn.devices(fmt.Sprintf(`mutation{updateDevice(token:%q,request:{name:%q,externalId:%q}){id}}`, d, "The "+d, "ext-"+d), nil)
	}
	base := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
	minute := func(i int) string { return at(base.Add(time.Duration(i) * time.Minute)) }
	c := tn.connect("boiler-2")
	fill := func(from, to int) {
		for i := from; i < to; i++ {
			v := fmt.Sprintf("%.2f", 70+float64(i*37%300)/10)
			tn.kept(measured("temp", v, tn.as("boiler-1"), minute(i), fmt.Sprintf(`"altId":"r%d"`, i)))
			c.send(measured("temp", v, minute(i)))
			c.send(many("count", i, 20))
		}
	}
	fill(0, 40)
	tn.kept(measured("temp", "1", tn.as("boiler-1"), minute(1), `"altId":"r1"`))  // a duplicate
	tn.kept(measured("temp", "1", tn.as("boiler-1"), at(base.AddDate(-2, 0, 0)))) // too old
	tn.kept(`{"eventType":"Location","payload":{"entries":[{"latitude":"47.5","longitude":"8.25","elevation":"410","heading":"90"}]},` + tn.as("boiler-1") + "," + minute(2) + "}")
	tn.kept(`{"eventType":"Alert","payload":{"entries":[{"type":"leak","level":3,"message":"a leak","source":"valve"}]},` + tn.as("boiler-1") + "," + minute(3) + "}")
	c.send(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"on":"true"}}]},` + minute(3) + "}")
	tn.post(`{"eventType":"Measurement"`) // does not decode
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	w = &world{Proc: testweir.Start(t, testweir.Options{Dir: dir, Config: answersConfig})}
	w.login()
	tn = w.enter(t, "acme")
	tn.devices(`mutation{updateDetectionRule(token:"far-too-hot",request:{enabled:false}){id}}`, nil)
	tn.publish("boiler") // version 2
	c = tn.connect("boiler-2")
	fill(40, 80)
	tn.applied("boiler-1")
	tn.ledger("http")
	tn.ledger("mqtt")
	w.Run("", "backup", "create", "--gzip", "--with-root-key", filepath.Join(fixture, answersBackup))
	w.Run("", "site", "export", "-o", filepath.Join(fixture, answersSite))
	fill(80, 90)
	w.Kill()
}
