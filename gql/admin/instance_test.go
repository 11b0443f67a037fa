package admin_test

import (
	"testing"
	"time"

	"weir/gql/admin"
)

// The gravest finding is first, and a round of checks serves all that look within 10 s.
func TestFindingsAreThoseOfOneRoundForAllThatLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want := `{"findings":[{"id":"space","result":"fail","text":"full","hint":"delete something"},{"id":"backup","result":"warn","text":"none","hint":null},` +
		`{"id":"clock","result":"skip","text":"not asked","hint":null},{"id":"store","result":"ok","text":"fine","hint":null}]}`
	for range 3 {
		w.gives(admin.SettingsArea, `{ findings { id result text hint } }`, want)
	}
	if w.looks != 1 {
		t.Errorf("looked %d times", w.looks)
	}
	w.Step(11 * time.Second)
	w.gives(admin.SettingsArea, `{ findings { id result text hint } }`, want)
	if w.looks != 2 {
		t.Errorf("looked %d times after 11 s", w.looks)
	}
}

func TestTheInstanceTellsItsStatusAndItsConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gives(admin.SettingsArea, `{ instance }`, `{"instance":"{\"ready\":true}"}`)
	w.gives(admin.SettingsArea, `{ configurationValues { key value origin } }`, `{"configurationValues":[{"key":"data_dir","value":"\"d\"","origin":"weir.yaml:1"}]}`)
}
