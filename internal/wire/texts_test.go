package wire

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"
)

func TestNamesThatComeAgainAreMadeOnce(t *testing.T) {
	t.Parallel()
	var names Texts
	read := func(s string) string { return NewReaderWith(AppendString(nil, s), &names).Name() }
	first, again := read("mqtt1"), read("mqtt1")
	if first != "mqtt1" || again != "mqtt1" || unsafe.StringData(first) != unsafe.StringData(again) {
		t.Errorf("%q and %q are two", first, again)
	}
	// More than there is room for, the empty one, a long one: they are what they are.
	for i := range 3 * textSlots {
		if s := fmt.Sprint("d", i); read(s) != s {
			t.Fatalf("%q became another", s)
		}
	}
	for _, s := range []string{"", strings.Repeat("x", longest), strings.Repeat("x", longest+1)} {
		if read(s) != s {
			t.Errorf("%q became another", s)
		}
	}
	if len(names.slots) != textSlots {
		t.Errorf("%d are kept", len(names.slots))
	}
	if got := NewReader(AppendString(nil, "plain")).Name(); got != "plain" {
		t.Errorf("without a place for names: %q", got)
	}
}
