package made

import "testing"

func TestAPartIsFoundBetweenItsMarkers(t *testing.T) {
	t.Parallel()
	const named = "head\n<!-- begin a: made from x by y -->\none\ntwo\n<!-- end a -->\ntail\n"
	const only = "head\n<!-- begin: made from x by y -->\none\n<!-- end -->\n"
	for _, c := range []struct{ page, name, want string }{
		{named, "a", "one\ntwo\n"},
		{named, "b", "lost"},
		{named, "", "lost"},
		{only, "", "one\n"},
		{"<!-- begin a: made from x -->\none\n", "a", "lost"},
		{"<!-- begin a: made from x -->", "a", "lost"},
	} {
		got := "lost"
		if first, last, ok := within(c.page, c.name); ok {
			got = c.page[first:last]
		}
		if got != c.want {
			t.Errorf("part %q of %q is %q, want %q", c.name, c.page, got, c.want)
		}
	}
}
