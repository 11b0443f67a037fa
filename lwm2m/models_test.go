package lwm2m

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/lwm2m/content"
)

const valve = `<LWM2M><Object><Name>Valve</Name><ObjectID>32769</ObjectID><Resources><Item ID="1"><Name>Position</Name><Type>Float</Type></Item></Resources></Object></LWM2M>`

// TestDefinitionFilesAreRead at the start; a file that is none leaves the others in force, and is named.
func TestDefinitionFilesAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.xml": "<html/>", "valve.xml": valve, "notes.txt": "of no account"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := ReadModels(dir)
	if err != nil || len(files) != 2 || files[0].Fault == "" || files[1].Fault != "" || len(files[1].Objects) != 1 {
		t.Fatalf("%+v %v", files, err)
	}
	if none, err := ReadModels(filepath.Join(dir, "none")); err != nil || none != nil {
		t.Errorf("a directory that is not there: %v %v", none, err)
	}
	s := live(t, &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}, Settings{ModelsDir: dir, MaxObservations: 1, ParkAfter: time.Hour})
	poll.True(t, "it is known", func() bool { return s.known.Load().Len() == 1 })
	o := &operation{s: s.Server, sess: &session{}}
	path := content.Path{32769, 0, 1}
	if v, err := o.value(path, json.RawMessage(`2`)); err != nil || v.Kind != content.Float || v.Float != 2 {
		t.Errorf("a value is written as %+v, %v", v, err)
	}
	if _, err := o.value(path, json.RawMessage(`"open"`)); err == nil {
		t.Error("a text is written to a number")
	}
}
