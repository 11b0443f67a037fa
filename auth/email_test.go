package auth

import "testing"

func TestAnEmailThatLooksLikeAnotherOneIsRefused(t *testing.T) {
	for email, good := range map[string]bool{
		"ada@example.org":          true,
		"Ada.Lovelace@example.org": true,
		"jörg@exämple.org":         true,
		"анна@пример.рф":           true,
		"анна@example.org":         true, // each part is of one alphabet
		"李雷@例子.公司":                 true,
		"ad\u0430@example.org":     false, // a Cyrillic a
		"ada@ex\u0430mple.org":     false,
		"\u03bfmar@example.org":    false, // a Greek o
		"a\u200bda@example.org":    false, // a space without width
		"ada@example.org\u2060":    false,
		"a\u00adda@example.org":    false, // a soft hyphen
		"a\u202eda@example.org":    false, // text from right to left
		"a\u00a0da@example.org":    false,
		"ada😀@example.org":         false,
	} {
		if got := len(CheckIdentity(email, nil)) == 0; got != good {
			t.Errorf("%q: allowed %v", email, got)
		}
		if _, err := normEmail("email", email); err != nil {
			t.Errorf("%q: who has it cannot sign in: %v", email, err)
		}
	}
}

func FuzzNewEmail(f *testing.F) {
	for _, seed := range []string{"ada@example.org", "ad\u0430@example.org", "a\u200bda@example.org", "@", "a@b@c", "\xff@x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		email, err := newEmail("email", text)
		if err != nil {
			return
		}
		if again, err := newEmail("email", email); err != nil || again != email {
			t.Errorf("%q is %q, and that %q, %v", text, email, again, err)
		}
	})
}
