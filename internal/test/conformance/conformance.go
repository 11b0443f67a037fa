// Package conformance records which testable statements of the contracts a test run has shown. A test calls Shown after
// the assertion ran; with WEIR_CONFORMANCE_LOG set, the ids are appended to that file with the test's package and name,
// and the checker (internal/test/conformance/check) compares the file with docs/conformance.md.
package conformance

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
)

// LogVariable names the environment variable that holds the path of the log.
const LogVariable = "WEIR_CONFORMANCE_LOG"

var idPattern = regexp.MustCompile(`^S[123]-\d{3}$`)

// T is the part of testing.TB that Shown needs.
type T interface {
	Helper()
	Name() string
	Failed() bool
	Fatalf(format string, args ...any)
}

// Shown says that the running test has asserted the statements with these ids. It says nothing for a test that has
// already failed. A line of the log is: id, package below the module, test; each behind a tab. A test is named with its
// subtest but no deeper. Parallel tests and processes may write at once: a line is one write at the file's end.
func Shown(t T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if !idPattern.MatchString(id) {
			t.Fatalf("conformance: %q is no statement id", id)
		}
	}
	path := os.Getenv(LogVariable)
	if path == "" || t.Failed() {
		return
	}
	test := nameOf(t.Name())
	where := callersPackage()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatalf("conformance: %v", err)
	}
	defer f.Close()
	for _, id := range ids {
		if _, err := fmt.Fprintf(f, "%s\t%s\t%s\n", id, where, test); err != nil {
			t.Fatalf("conformance: %v", err)
		}
	}
}

// unfit is what a name may hold that a table in Markdown may not.
var unfit = regexp.MustCompile(`[^\w/#+.-]`)

// nameOf is the test with its subtest, if it is one.
func nameOf(name string) string {
	parts := strings.SplitN(name, "/", 3)
	return unfit.ReplaceAllString(strings.Join(parts[:min(len(parts), 2)], "/"), "_")
}

// callersPackage is the package of whoever called Shown, without the module and without _test.
func callersPackage() string {
	var pcs [1]uintptr
	n := runtime.Callers(3, pcs[:])
	frame, _ := runtime.CallersFrames(pcs[:n]).Next()
	return packageOf(frame.Function)
}

// packageOf takes the package out of a function's name, such as weir/gql_test.TestX.func1.
func packageOf(function string) string {
	dir, base := "", function
	if i := strings.LastIndexByte(function, '/'); i >= 0 {
		dir, base = function[:i+1], function[i+1:]
	}
	name, _, _ := strings.Cut(base, ".")
	return strings.TrimPrefix(dir+strings.TrimSuffix(name, "_test"), "weir/")
}
