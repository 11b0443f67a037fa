package operate

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/config"
)

func TestRunningInstancesAreFoundByTheirSockets(t *testing.T) {
	t.Parallel()
	const table = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 20893 /var/lib/weir/weir.sock
0000000000000000: 00000003 00000000 00000000 0001 03 20894 /var/lib/weir/weir.sock
0000000000000000: 00000002 00000000 00010000 0001 01     7 /srv/with  two blanks/weir.sock
0000000000000000: 00000002 00000000 00010000 0001 01 20895 @/var/lib/weir/weir.sock
0000000000000000: 00000002 00000000 00010000 0001 01 20896 weir-data/weir.sock
0000000000000000: 00000002 00000000 00010000 0001 01 20897 /run/other.sock
0000000000000000: 00000002 00000000 00010000 0001 01 20898 /gone/weir.sock
0000000000000000: 00000002 00000000 00000000 0002 01 20899
`
	got := socketDirs(strings.NewReader(table), func(path string) bool { return path != "/gone/weir.sock" })
	if want := []string{"/srv/with  two blanks", "/var/lib/weir"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var many strings.Builder
	for range 100 {
		many.WriteString("0: 2 0 00010000 0001 01 1 /" + strings.Repeat("x", many.Len()%50) + "/weir.sock\n")
	}
	if got := socketDirs(strings.NewReader(many.String()), func(string) bool { return true }); len(got) != maxOthers {
		t.Errorf("%d directories, want %d", len(got), maxOthers)
	}
}

// The kernel lists the socket under the absolute path, also when the directory is given as a relative one.
func TestARelativeDirectoryIsFound(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("data", 0o750); err != nil {
		t.Fatal(err)
	}
	l, err := listenAlone(t.Context(), findable(SocketPath("data")))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := filepath.Join(dir, "data")
	if got := socketDirs(bufio.NewReader(f), func(path string) bool { return path == SocketPath(want) }); !slices.Equal(got, []string{want}) {
		t.Errorf("%q, want %q", got, want)
	}
	long := filepath.Join(dir, strings.Repeat("long/", 30))
	if err := os.MkdirAll(long, 0o750); err != nil {
		t.Fatal(err)
	}
	t.Chdir(long)
	if got := findable(SocketPath(".")); got != SocketPath(".") {
		t.Errorf("%q is too long for a socket", got)
	}
}

func TestADirectoryWithoutAnInstanceSaysWhereItLooked(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	_, err := Dial(t.Context(), config.Config{DataDir: dir})
	e, ok := err.(*NotRunningError)
	if !ok || e.Dir != dir || e.Made || e.Error() != "no instance is in "+dir {
		t.Errorf("%v", err)
	}
	if got := e.Hint(nil); !strings.Contains(got, "weir init --data") {
		t.Error(got)
	}
	if got := e.Hint([]string{"/a", "/b"}); got != "an instance runs on /a and on /b: name its directory with --data" {
		t.Error(got)
	}
}
