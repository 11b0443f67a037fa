package e2e_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// makeUpgrade writes the archive of a version that is about to be released, with the program of this tree:
//
//	go test ./internal/test/e2e -run TestADirectoryOfEachVersionIsOpened -make-upgrade 0.2.0
//
// What is in it is made for this test, its keys and passwords with it.
var makeUpgrade = flag.String("make-upgrade", "", "write testdata/upgrade/VERSION.tar.gz")

// An archive holds two data directories of one history: one that was stopped, and one that was killed with messages
// acknowledged a moment before.
const stopped, killed = "stopped", "killed"

// What has happened in each: the rule has fired and is resolved; in killed it has fired once more.
var (
	upgradeValues = map[string][]float64{stopped: {20, 91, 30}, killed: {20, 91, 30, 40, 92}}
	upgradeFires  = map[string]int{stopped: 2, killed: 3}
)

// TestADirectoryOfEachVersionIsOpened opens what every released version has left behind: everything is there, and goes on.
func TestADirectoryOfEachVersionIsOpened(t *testing.T) {
	t.Parallel()
	if *makeUpgrade != "" {
		writeUpgrade(t, *makeUpgrade)
	}
	archives, err := filepath.Glob("testdata/upgrade/*.tar.gz")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, archive := range archives {
		for _, end := range []string{stopped, killed} {
			t.Run(filepath.Base(archive)+" "+end, func(t *testing.T) {
				t.Parallel()
				opensUpgrade(t, archive, end)
			})
		}
	}
}

func opensUpgrade(t *testing.T, archive, end string) {
	dir := t.TempDir()
	unpackArchive(t, archive, end, filepath.Join(dir, "data"))
	w := &world{Proc: testweir.Start(t, testweir.Options{Dir: dir})}
	w.login()
	tn := w.enter(t, "acme")
	var out struct {
		DevicesByToken []struct{ Token, Name string }
	}
	tn.devices(`{devicesByToken(tokens:["boiler-1"]){token name}}`, nil).into(t, &out)
	if len(out.DevicesByToken) != 1 || out.DevicesByToken[0].Name != "Boiler 1" {
		t.Errorf("the device: %+v", out)
	}
	want := upgradeValues[end]
	tn.hasReadings(want)
	tn.hasFired(upgradeFires[end])
	if l := tn.ledger("http"); l.Stored != len(want) || l.Duplicate != 1 || l.DeadLetter != 1 {
		t.Errorf("the ledger: %+v", l)
	}
	// It goes on: the device is known by its token, and the rule by its state.
	tn.kept(measured("temp", "12", tn.as("boiler-1")))
	tn.kept(measured("temp", "99", tn.as("boiler-1")))
	tn.hasReadings(append(slices.Clone(want), 12, 99))
	more := 1                     // raised
	if upgradeFires[end]%2 == 1 { // and before that resolved
		more = 2
	}
	tn.hasFired(upgradeFires[end] + more)
	if err := w.Stop(); err != nil {
		t.Errorf("stop: %v\n%s", err, w.Stderr())
	}
}

// hasReadings waits for exactly these values of the tenant, oldest first.
func (tn *tenant) hasReadings(want []float64) {
	tn.t.Helper()
	var got []float64
	for _, m := range slices.Backward(tn.arrived(len(want))) {
		got = append(got, m.Value)
	}
	if !slices.Equal(got, want) {
		tn.t.Errorf("readings %v, want %v", got, want)
	}
}

// hasFired waits until the rule has this many edges.
func (tn *tenant) hasFired(want int) {
	tn.t.Helper()
	poll.Until(tn.t, fmt.Sprintf("%d fires", want), func() error {
		if h := tn.health("boiler"); len(h) != 1 || h[0].FireCount != want || h[0].RuleToken != "too-hot" {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})
}

// writeUpgrade makes the archive of a version.
func writeUpgrade(t *testing.T, version string) {
	if err := os.MkdirAll("testdata/upgrade", 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join("testdata/upgrade", version+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	z, _ := gzip.NewWriterLevel(f, gzip.BestCompression) // the level is one
	tw := tar.NewWriter(z)
	for _, end := range []string{stopped, killed} {
		dir := t.TempDir()
		liveUpgrade(t, dir, end)
		if err := pack(tw, filepath.Join(dir, "data"), end); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// liveUpgrade lets an instance on dir live through what the test looks for.
func liveUpgrade(t *testing.T, dir, end string) {
	w := start(t, testweir.Options{Dir: dir})
	tn := w.tenant(t, "acme")
	tn.profile("boiler", map[string]string{"too-hot": above("Too hot", "temp", 80, "")})
	tn.device("boiler-1", "boiler")
	tn.devices(`mutation{updateDevice(token:"boiler-1",request:{name:"Boiler 1"}){id}}`, nil)
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	send := func(i int, more ...string) {
		more = append(more, tn.as("boiler-1"), at(base.Add(time.Duration(i)*time.Minute)))
		tn.kept(measured("temp", fmt.Sprint(upgradeValues[killed][i]), more...))
	}
	for i := range upgradeValues[stopped] {
		send(i, fmt.Sprintf(`"altId":"r%d"`, i))
	}
	send(1, `"altId":"r1"`) // a duplicate
	tn.kept(measured("temp", "1", tn.as("boiler-1"), at(base.AddDate(-2, 0, 0))))
	tn.arrived(len(upgradeValues[stopped]))
	tn.hasFired(upgradeFires[stopped])
	tn.ledger("http")
	if end == killed {
		send(3)
		send(4)
		w.Kill()
		return
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
}

func pack(tw *tar.Writer, dir, name string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err // directories come with their files; sockets stay
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := tw.WriteHeader(&tar.Header{Name: name + "/" + filepath.ToSlash(rel), Mode: 0o600, Size: int64(len(b)), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = tw.Write(b)
		return err
	})
}

// unpack writes what lies under name in the archive into dir.
func unpackArchive(t *testing.T, archive, name, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		rel, ok := strings.CutPrefix(h.Name, name+"/")
		if !ok {
			continue
		}
		path := filepath.Join(dir, rel)
		b, err := io.ReadAll(r)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}
