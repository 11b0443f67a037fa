package sheet

import (
	"fmt"
	"strings"
	"testing"
)

func TestASheetIsReadAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	known := []string{"token", "name", "accessToken"}
	for _, c := range []struct{ text, want string }{
		{"token,name\nd,Tank\n", "[token name] 2:[d Tank]"},
		{"\ufefftoken; Name\r\nd;Tank\r\n;;\r\n", "[token name] 2:[d Tank] blank 1"},
		{" Token \taccesstoken\nd\ts\n", "[token accessToken] 2:[d s]"},
		{"token,name\nd,\"a\nb\"\n\n,\n  ,\t\ne,x\n", "[token name] 2:[d a\nb] 7:[e x] blank 2"},
		{"token,name\n,Only a name\nd,x\n", "[token name] 3:[d x] 2 token is required"},
		{"token,name\nd\ne,x,y\n", "[token name] 2  has 1 values, the header names 2 columns 3  has 3 values, the header names 2 columns"},
		{"token,nmae\nd,x\n", "[token nmae] 1 nmae is no column of a list of devices; the columns are token, name, accessToken (did you mean name?)"},
		{"token,name,Name\n", "[token name name] 1 name is given twice"},
		{"d1,secret\n", "[d1 secret] 1 token the column is missing (the first line names the columns)"},
		{"token,name\nd,x\ne,K\xfchlraum\n", "[] 3  byte 4 of the line (0xfc) is no text in UTF-8 (save the file as CSV UTF-8)"},
		{"token\n\"d\n", "[token] 2  this is not CSV: extraneous or missing \" in quoted-field"},
		{"", "[] 1  the file is empty (the first line names the columns)"},
		{"token\n", "[token] 1  the file names no device"},
	} {
		s := Read([]byte(c.text), known)
		var got strings.Builder
		got.WriteString(fmt.Sprint(s.Columns))
		for _, r := range s.Rows {
			got.WriteString(fmt.Sprintf(" %d:%v", r.Line, r.Cells))
		}
		if s.Blank > 0 {
			got.WriteString(fmt.Sprintf(" blank %d", s.Blank))
		}
		for _, p := range s.Problems {
			if got.WriteString(fmt.Sprintf(" %d %s %s", p.Line, p.Column, p.Reason)); p.Hint != "" {
				got.WriteString(" (" + p.Hint + ")")
			}
		}
		if got.String() != c.want {
			t.Errorf("%q:\ngot  %s\nwant %s", c.text, got.String(), c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{"token,name\nd,Tank\n", "\ufefftoken;name\r\n;\r\n", "token\n\"d\n", "\xff", "token,name\n,x\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := Read(text, []string{"token", "name"})
		for _, r := range s.Rows {
			if len(r.Cells) != len(s.Columns) || !strings.Contains(strings.Join(s.Columns, " "), "token") {
				t.Fatalf("%v of %v", r, s.Columns)
			}
		}
	})
}
