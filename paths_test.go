package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/test/follow"
	"weir/internal/test/testweir"
)

// pathLimit is how long the commands of a newcomer's path may take, from the first to a firing seen.
const pathLimit = 3 * time.Minute

// inTime follows a path, tells how long it took and fails beyond the limit.
func inTime(t *testing.T, page string, o follow.Options) {
	t.Helper()
	o.Timeout = pathLimit
	began := time.Now()
	follow.Page(t, page, o)
	took := time.Since(began).Round(100 * time.Millisecond)
	fmt.Printf("%s: a reading and a firing seen after %s\n", page, took)
	if took > pathLimit {
		t.Errorf("%s takes %s, more than %s", page, took, pathLimit)
	}
}

// TestPathLaptop begins with the sources.
func TestPathLaptop(t *testing.T) {
	t.Parallel()
	needs(t, "make", "curl", "jq")
	home := t.TempDir()
	ports, env := freePorts(t)
	env = append(env, "GOCACHE="+goEnv(t, "GOCACHE"), "GOMODCACHE="+goEnv(t, "GOMODCACHE"), "GOPATH="+goEnv(t, "GOPATH"))
	inTime(t, "docs/paths/laptop.md", follow.Options{Home: home, Env: env, Replace: ports})
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestPathVM installs the Debian package in a Debian of its own. systemd does not run there; a program in its place starts
// what the unit says, as the user that it names.
func TestPathVM(t *testing.T) {
	root := debian(t)
	install(t, root, "usr/bin/systemctl", "testdata/systemctl", 0o755)
	install(t, root, "usr/bin/journalctl", "testdata/journalctl", 0o755)
	if err := os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	copyInto(t, packaged(t, "deb"), filepath.Join(root, "root"))
	tellLog(t, filepath.Join(root, "var/log/weir.log"))
	inside := func(script string) []string {
		return apart(`mount -t proc proc ` + root + `/proc && exec chroot ` + root + ` /bin/sh -c 'cd /root && ` + script + ` exec sh'`)
	}
	t.Run("from the package to a firing", func(t *testing.T) {
		inTime(t, "docs/paths/vm.md", follow.Options{Home: "/root", Env: plainEnv(), Shell: inside("")})
	})
	t.Run("a restore after damage", func(t *testing.T) {
		follow.Page(t, "docs/troubleshooting.md", follow.Options{Home: "/root", Env: plainEnv(), Console: true, Section: "The database is damaged", Shell: inside(
			"rm -f /run/weir.pid && systemctl start weir && weir health --wait 30s && mkdir -p /mnt/usb && weir backup create /mnt/usb/weir-1.backup &&")})
	})
}

// TestPathGateway puts an image together from the package for OpenWrt and a site file, starts it, and touches it no more.
// The image is a Debian with procd's rc.common in place of a whole OpenWrt.
func TestPathGateway(t *testing.T) {
	image := debian(t)
	install(t, image, "etc/rc.common", "testdata/rc.common", 0o755)
	tellLog(t, filepath.Join(image, "var/log/messages"))
	dir := t.TempDir()
	copyInto(t, packaged(t, "ipk"), dir)
	if err := os.Symlink(testweir.Binary(t), filepath.Join(dir, "weir")); err != nil {
		t.Fatal(err)
	}
	inTime(t, "docs/paths/gateway.md", follow.Options{Dir: dir, Home: dir,
		Env:   append(plainEnv(), "IMAGE="+image, "GATEWAY=127.0.0.1", "PATH="+dir+":"+os.Getenv("PATH")),
		Shell: apart(`mount -t proc proc ` + image + `/proc && exec sh`)})
}

// tellLog shows the log of the instance when the path does not lead to its end.
func tellLog(t *testing.T, path string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			b, err := os.ReadFile(path)
			t.Logf("the log of the instance (%v):\n%s", err, b)
		}
	})
}

// apart is a shell in a machine of its own as far as its network and its processes go: the ports are the usual ones, and
// nothing outlives it.
func apart(script string) []string {
	return []string{"unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", "ip link set lo up && " + script}
}

func plainEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
}

// prepared is where make check-paths has put what the paths begin with.
func prepared(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("PATHS")
	if dir == "" {
		t.Skip("run by make check-paths, as root")
	}
	return dir
}

// debian unpacks a Debian to install into.
func debian(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if out, err := exec.Command("tar", "-xf", filepath.Join(prepared(t), "debian.tar"), "-C", root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return root
}

// packaged is the package of a format for this machine.
func packaged(t *testing.T, format string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(prepared(t), "dist", "*."+format))
	if err != nil || len(found) != 1 {
		t.Fatalf("want one package .%s: %v %v", format, found, err)
	}
	return found[0]
}

func copyInto(t *testing.T, file, dir string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// install puts a file of ours into a root.
func install(t *testing.T, root, path, from string, mode fs.FileMode) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, mode); err != nil {
		t.Fatal(err)
	}
}
