// Package sheet reads CSV files that people and spreadsheets write: a header line that names the columns, then a row a line. It is the one
// reader of such files, so that all commands understand the same.
package sheet

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/internal/similar"
)

// Problem is what is wrong with a file, at a line and, where it is about one, a column. Cells are never shown: they may be secrets.
type Problem struct {
	Line   int
	Column string
	Reason string
	Hint   string
}

// Row is a row with its line.
type Row struct {
	Line  int
	Cells []string // as many as there are columns
}

// Sheet is a file as it was read.
type Sheet struct {
	Columns  []string // as they are known
	Rows     []Row
	Blank    int // rows without a value, which are left out
	Problems []Problem
}

// Read reads a file whose columns are among those that are known. A byte order mark, blanks around the names of columns and their
// capitals count for nothing; columns may be separated by commas, semicolons or tabs, which the header line decides. Where the header has a
// problem, no row is read.
func Read(text []byte, known []string) *Sheet {
	s := &Sheet{}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if len(bytes.TrimSpace(text)) == 0 {
		s.problem(Problem{Line: 1, Reason: "the file is empty", Hint: "the first line names the columns"})
		return s
	}
	if at := invalid(text); at >= 0 {
		line := 1 + bytes.Count(text[:at], []byte("\n"))
		s.problem(Problem{Line: line, Reason: fmt.Sprintf("byte %d of the line (0x%02x) is no text in UTF-8", at-bytes.LastIndexByte(text[:at], '\n'), text[at]), Hint: "save the file as CSV UTF-8"})
		return s
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = -1
	r.Comma = separator(text)
	header, err := r.Read()
	if err != nil {
		s.problem(problemOf(err))
		return s
	}
	if s.header(header, known); len(s.Problems) > 0 {
		return s
	}
	s.rows(r)
	return s
}

// invalid is the place of the first byte that is no UTF-8, -1 for none.
func invalid(text []byte) int {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

// separator is what stands between the names of the header line.
func separator(text []byte) rune {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	for _, c := range ";\t" {
		if bytes.ContainsRune(line, c) && !bytes.ContainsRune(line, ',') {
			return c
		}
	}
	return ','
}

func (s *Sheet) problem(p Problem) { s.Problems = append(s.Problems, p) }

func problemOf(err error) Problem {
	if e, ok := errors.AsType[*csv.ParseError](err); ok {
		return Problem{Line: e.Line, Reason: "this is not CSV: " + e.Err.Error()}
	}
	return Problem{Line: 1, Reason: "this is not CSV: " + err.Error()}
}

func (s *Sheet) header(names, known []string) {
	for _, name := range names {
		name = strings.TrimSpace(name)
		if i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
			name = known[i]
		}
		s.Columns = append(s.Columns, name)
	}
	if !slices.Contains(s.Columns, "token") { // perhaps the first line is a row: then it is not shown
		s.problem(Problem{Line: 1, Column: "token", Reason: "the column is missing", Hint: "the first line names the columns"})
		return
	}
	for i, name := range s.Columns {
		switch {
		case !slices.Contains(known, name):
			hint := ""
			if meant := similar.Nearest(name, known); meant != "" {
				hint = "did you mean " + meant + "?"
			}
			s.problem(Problem{Line: 1, Column: name, Reason: "is no column of a list of devices; the columns are " + strings.Join(known, ", "), Hint: hint})
		case slices.Index(s.Columns, name) != i:
			s.problem(Problem{Line: 1, Column: name, Reason: "is given twice"})
		}
	}
}

func (s *Sheet) rows(r *csv.Reader) {
	token := slices.Index(s.Columns, "token")
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.problem(problemOf(err))
			continue
		}
		line, _ := r.FieldPos(0)
		switch blank := !slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) != "" }); {
		case blank:
			s.Blank++
		case len(cells) != len(s.Columns):
			s.problem(Problem{Line: line, Reason: fmt.Sprintf("has %d values, the header names %d columns", len(cells), len(s.Columns))})
		case cells[token] == "":
			s.problem(Problem{Line: line, Column: "token", Reason: "is required"})
		default:
			s.Rows = append(s.Rows, Row{line, cells})
		}
	}
	if len(s.Rows) == 0 && len(s.Problems) == 0 {
		s.problem(Problem{Line: 1, Reason: "the file names no device"})
	}
}
