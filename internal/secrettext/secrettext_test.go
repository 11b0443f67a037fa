package secrettext

import (
	"errors"
	"testing"
)

func TestASecretIsWhatItsAuthorMeant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, want string
		err        error
	}{
		{"secret", "secret", nil}, {"secret\n", "secret", nil}, {"secret\r\n", "secret", nil}, {"\xef\xbb\xbfsecret\n", "secret", nil}, {"two words", "two words", nil},
		{"-----BEGIN KEY-----\nabc\n", "-----BEGIN KEY-----\nabc", nil}, {"schön", "schön", nil},
		{"", "", ErrEmpty}, {"\n", "", ErrEmpty}, {"\xef\xbb\xbf\n", "", ErrEmpty}, {"secret \n", "", ErrBlank}, {" secret", "", ErrBlank}, {"secret\t", "", ErrBlank},
		{"\xff\xfes\x00e\x00", "", ErrUTF16}, {"\xfe\xff\x00s\x00e", "", ErrUTF16}, {"s\x00e\x00c\x00", "", ErrUTF16}, {"sch\xf6n", "", ErrEncoding}, {"a\x1bb", "", ErrControl}, {"a\x00bcd", "", ErrControl},
	} {
		if got, err := Of([]byte(c.text)); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %v; want %q, %v", c.text, got, err, c.want, c.err)
		}
	}
}

func FuzzOf(f *testing.F) {
	for _, text := range []string{"secret\n", "\xef\xbb\xbfsecret", "\xff\xfes\x00", "sch\xf6n", " s"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Of(text)
		if err == nil && s == "" {
			t.Fatal("an empty secret")
		}
		if again, bad := Of([]byte(s)); err == nil && (bad != nil || again != s) {
			t.Fatalf("%q is read as %q, %v", s, again, bad)
		}
	})
}
