package main

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cli"
	"weir/internal/test/follow"
	"weir/internal/test/loopback"
	"weir/internal/test/need"
	"weir/internal/test/testweir"
)

// documentTimeout is how long a page, or the demonstration until its first firing, may take.
const documentTimeout = time.Minute

// TestDocumentsGettingStarted follows the page as a reader would, from a directory with nothing in it but the archive.
func TestDocumentsGettingStarted(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "tar", "curl", "jq", "mosquitto_pub")
	follow.Page(t, "docs/getting-started.md", unpacking(t))
}

// unpacking is a machine on which nothing of Weir is installed, and whose user has downloaded the archive.
func unpacking(t *testing.T) follow.Options {
	t.Helper()
	o := here(t)
	o.Env = append(o.Env, "PATH="+os.Getenv("PATH"))
	archive(t, o.Home)
	return o
}

// archive puts the archive of this machine into dir: that of make check-paths, else one of the same layout with the program of
// the tests. It has the name that the pages print, also on another machine.
func archive(t *testing.T, dir string) {
	t.Helper()
	if made := os.Getenv("PATHS"); made != "" {
		copyInto(t, packaged(t, "tar.gz"), dir)
		return
	}
	tree := t.TempDir()
	name := "weir-" + cli.Version + "-linux-amd64"
	for _, file := range []struct {
		name, from string
		mode       fs.FileMode
	}{{"weir", testweir.Binary(t), 0o755}, {"README.md", "README.md", 0o644}, {"LICENSE", "LICENSE", 0o644}} {
		install(t, tree, filepath.Join(name, file.name), file.from, file.mode)
	}
	if err := os.CopyFS(filepath.Join(tree, name, "examples"), os.DirFS("examples")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-C", tree, "-czf", filepath.Join(dir, name+".tar.gz"), name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestDocumentsTransports sends with every client that the pages of transports and devices show and that is at hand.
func TestDocumentsTransports(t *testing.T) {
	for _, page := range []string{"docs/transports/README.md", "docs/transports/mqtt.md", "docs/transports/http.md", "docs/transports/provisioning.md", "docs/devices/programs.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			needs(t, "sh", "curl", "jq", "mosquitto_pub")
			followHere(t, page)
		})
	}
}

// TestDocumentsExternalMQTT reads a mosquitto, where there is one.
func TestDocumentsExternalMQTT(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "mosquitto_pub", "mosquitto_sub")
	followHere(t, "docs/transports/external-mqtt.md")
}

// TestDocumentsTLS opens mqtts in two commands.
func TestDocumentsTLS(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "grep", "mosquitto_pub")
	o := here(t)
	o.Env = append(o.Env, "WEIR_LISTENERS_MQTTS=127.0.0.1:0")
	follow.Page(t, "docs/tls.md", o)
}

// TestDocumentsReadme does what the first screen says, and ends with a firing seen.
func TestDocumentsReadme(t *testing.T) {
	t.Parallel()
	needs(t, "make")
	steps := follow.Read(t, "README.md")
	if len(steps) == 0 || !strings.HasPrefix(steps[0].Body, "make run ") || !strings.Contains(steps[0].Body, "\nmake test ") {
		t.Fatalf("the first commands of README.md are not make run and make test: %+v", steps)
	}
	// How long the compiler takes is the machine's affair: the time is that of the demonstration.
	if out, err := exec.Command("make", "build").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), documentTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", "run")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C goes to the whole group
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fired, seen := false, ""
	for s := bufio.NewScanner(out); s.Scan(); {
		seen += s.Text() + "\n"
		if !fired && strings.Contains(s.Text(), "raised") {
			fired = true
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); !fired {
		t.Errorf("make run showed no firing (%v):\n%s", err, seen)
	}
}

// TestDocumentsReadmeFirstRun does what the page says of the archive, and TestDocumentsReadmeConfigure what it says of a file.
func TestDocumentsReadmeFirstRun(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "tar")
	o := unpacking(t)
	o.Section = "First run"
	follow.Page(t, "README.md", o)
}

func TestDocumentsReadmeConfigure(t *testing.T) {
	t.Parallel()
	needs(t, "sh")
	o := here(t)
	o.Section = "Configure"
	follow.Page(t, "README.md", o)
}

// TestDocumentsExamples runs the examples of the archive in the home directory of a user.
func TestDocumentsExamples(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "tar")
	o := here(t)
	archive(t, o.Home)
	if out, err := exec.Command("sh", "-c", "cd "+o.Home+" && tar -xzf *.tar.gz && mv weir-*/ unpacked").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o.Dir = filepath.Join(o.Home, "unpacked", "examples")
	follow.Page(t, "examples/README.md", o)
	if _, err := os.Stat(filepath.Join(o.Home, "weir-examples", "gateway", "weir-data", "weir.db")); err != nil {
		t.Errorf("the data is somewhere else: %v", err)
	}
}

// cell is a command in a row of README's table of installations.
var cell = regexp.MustCompile("`(?:[A-Z]+=\\S+ )*([a-z-]+ [^`]*)`")

// TestDocumentsReadmeInstall checks what cannot be run here, and says how; no command of the table or of the container may be
// left without a check.
func TestDocumentsReadmeInstall(t *testing.T) {
	t.Parallel()
	needs(t, "sh")
	_, install, found := strings.Cut(string(read(t, "README.md")), "\n## Install\n")
	install, _, _ = strings.Cut(install, "\n## ")
	table, _, _ := strings.Cut(install, "\nPackages exist")
	checked := 0
	for _, m := range cell.FindAllStringSubmatch(table, -1) {
		for command := range strings.SplitSeq(m[1], " && ") {
			how, err := checkInstall(t, command)
			if err != nil {
				t.Errorf("README.md: %s: %v", command, err)
			}
			t.Logf("README.md: not run: %s: %s", command, how)
			checked++
		}
	}
	if !found || checked < 10 {
		t.Errorf("only %d commands were found in the table", checked)
	}
	for _, s := range follow.Read(t, "README.md") {
		if s.Section == "In a container" {
			how, err := checkContainer(t, s.Body)
			if err != nil {
				t.Errorf("README.md:%d: %v", s.Line, err)
			}
			t.Logf("README.md:%d: not run: %s: %s", s.Line, s.Body, how)
		}
	}
	if _, err := checkContainer(t, "`"+strings.Join(regexp.MustCompile(`-[pe] \S+`).FindAllString(install, -1), "\n")+"`"); err != nil {
		t.Errorf("README.md: %v", err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checkInstall says how a command that installs Weir is checked where it cannot be run.
func checkInstall(t *testing.T, command string) (how string, err error) {
	t.Helper()
	words := strings.Fields(command)
	switch file := words[len(words)-1]; words[0] {
	case "apt", "dnf", "apk", "opkg", "docker", "tar":
		return "its file is one that packaging/dist or packaging/image makes; make check-packages installs or unpacks it", released(t, file)
	case "rc-service":
		return "the tests of internal/service run the start of that script, make check-packages reads it with shellcheck", nil
	case "systemctl", "rc-update":
		if !strings.Contains(string(read(t, "packaging/scripts/postinst")), strings.Join(words[:2], " ")) {
			return "", fmt.Errorf("packaging/scripts/postinst prints another one")
		}
		return "it is what the package prints", nil
	case "weir":
		return "TestDocumentsNameOnlyCommandsThatExist", nil
	case "make":
		out, err := exec.Command("make", "-n", words[1]).CombinedOutput()
		if err == nil && !strings.Contains(string(out), "-X weir/internal/build.commit=") {
			err = fmt.Errorf("the build does not name its commit: %s", out)
		}
		return "make -n knows the target", err
	}
	return "", fmt.Errorf("nothing checks this command")
}

// released reports whether a pattern of a file's name matches what is built here, and not two files.
func released(t *testing.T, pattern string) error {
	t.Helper()
	var names []string
	for _, format := range []string{"", "deb", "rpm", "apk", "ipk"} {
		cmd := exec.Command("packaging/version", format)
		out, err := cmd.Output()
		if err != nil {
			return err
		}
		v := strings.TrimSpace(string(out))
		names = append(names, map[string][]string{"": {"weir-" + v + "-linux-amd64.tar.gz", "weir-" + v + "-linux-amd64.docker.tar.gz"},
			"deb": {"weir_" + v + "_amd64.deb"}, "rpm": {"weir-" + v + "-1.x86_64.rpm"}, "apk": {"weir_" + v + "-r0_x86_64.apk"},
			"ipk": {"weir_" + v + "_x86_64.ipk"}}[format]...)
	}
	matching := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		ok, err := filepath.Match(strings.TrimPrefix(pattern, "./"), name)
		return err != nil || !ok
	})
	if len(matching) != 1 {
		return fmt.Errorf("%s stands for %q of %q", pattern, matching, names)
	}
	return nil
}

// checkContainer holds ports, volume, variables and the name of the image against what the image is made from.
func checkContainer(t *testing.T, commands string) (how string, err error) {
	t.Helper()
	image, pack := string(read(t, "Dockerfile")), string(read(t, "packaging/image"))
	for _, m := range regexp.MustCompile(`-(p|v|e) ([^\s`+"`"+`]+)`).FindAllStringSubmatch(commands, -1) {
		switch parts := strings.Split(m[2], ":"); m[1] {
		case "p":
			if !regexp.MustCompile(`(?m)^EXPOSE .*\b` + parts[len(parts)-1] + `/tcp`).MatchString(image) {
				return "", fmt.Errorf("the image exposes no port %s", m[2])
			}
		case "v":
			if !strings.Contains(image, "\nVOLUME "+parts[len(parts)-1]+"\n") {
				return "", fmt.Errorf("the image has no volume %s", m[2])
			}
		case "e":
			cmd := exec.Command(testweir.Binary(t), "config", "validate")
			cmd.Dir, cmd.Env = t.TempDir(), append(testweir.Environ(), m[2])
			if out, err := cmd.CombinedOutput(); err != nil {
				return "", fmt.Errorf("%s: %v: %s", m[2], err, out)
			}
		}
	}
	if strings.Contains(commands, "docker load") && (!strings.Contains(commands, "^Loaded image: ") || !strings.Contains(pack, "RepoTags: [$t]")) {
		return "", fmt.Errorf("the archive names no image")
	}
	return "ports, volume and variables against Dockerfile; make check-packages runs the image without an engine", nil
}

// reference finds links to files and, between backticks, names that look like files of the tree.
var reference = regexp.MustCompile("\\]\\(([^)#:]+)(?:#[^)]*)?\\)|`((?:\\.ci|[a-z]+)/[a-zA-Z0-9_./-]+)`")

func TestDocumentsNameOnlyFilesThatExist(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range reference.FindAllStringSubmatch(string(b), -1) {
			name := m[2]
			if name == "" {
				name = filepath.Join(filepath.Dir(page), m[1])
			} else if top, err := os.Stat(strings.Split(name, "/")[0]); err != nil || !top.IsDir() {
				continue // no path of the tree
			} else if strings.Contains(name, ".Test") {
				continue // a test
			}
			if found, err := filepath.Glob(name); err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which is not there", page, name)
			}
		}
	}
}

// TestTablesOfPages: a table is one block with a heading, and each of its rows has as many cells. A row too many, too few or apart from
// its heading is shown as text or loses what it says.
func TestTablesOfPages(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range faultsOfTables(string(b)) {
			t.Errorf("%s:%s", page, fault)
		}
	}
	for text, want := range map[string]string{
		"| a | b |\n|---|---|\n| `x|y` \\| z | 1 |":    "3: 3 cells, the heading has 2",
		"| a | b |\n|---|---|\n| 1 | 2 |\n\n| 3 | 4 |": "5: a row without a heading",
		"| a |\n|---|\n| `a \\| b` |":                  "",
		"```\n| a |\n```":                              "",
	} {
		if got := strings.Join(faultsOfTables(text), "; "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// faultsOfTables lists the rows of a page that do not fit their table, each with its line.
func faultsOfTables(text string) []string {
	var faults []string
	lines := strings.Split(text, "\n")
	fenced, columns := false, 0
	for i, line := range lines {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if fenced || !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		row := strings.TrimSpace(strings.ReplaceAll(line, "\\|", ""))
		cells := strings.Count(strings.Trim(row, "|"), "|") + 1
		switch {
		case columns > 0 && cells != columns:
			faults = append(faults, fmt.Sprintf("%d: %d cells, the heading has %d", i+1, cells, columns))
		case columns > 0:
		case i+1 == len(lines) || !strings.HasPrefix(lines[i+1], "|---") && !strings.HasPrefix(lines[i+1], "|:"):
			faults = append(faults, fmt.Sprintf("%d: a row without a heading", i+1))
		default:
			columns = cells
		}
	}
	return faults
}

// needs skips the test where a program is missing, unless DOCUMENTS says that it must run.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if os.Getenv("DOCUMENTS") == "" {
		t.Skip("run by make check-docs")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatal(err)
		}
	}
}

// followHere runs a page's steps in the empty directory of a user.
func followHere(t *testing.T, page string) {
	t.Helper()
	follow.Page(t, page, here(t))
}

// here is the empty home directory of a user who has weir on the path. The ports of a page stand for free ones.
func here(t *testing.T) follow.Options {
	t.Helper()
	home, bin := t.TempDir(), t.TempDir()
	if err := os.Symlink(testweir.Binary(t), filepath.Join(bin, "weir")); err != nil {
		t.Fatal(err)
	}
	have := clients(t, home)
	ports, env := freePorts(t)
	env = append(env, "PATH="+bin+":"+os.Getenv("PATH"), "GOCACHE="+goEnv(t, "GOCACHE"), "GOMODCACHE="+goEnv(t, "GOMODCACHE"))
	return follow.Options{Dir: home, Home: home, Env: append(env, goProxy(t)...), Replace: ports, Have: have}
}

// clients says which of the libraries that the pages' programs use are at hand, by what the pages say is needed, and lets
// node find its own.
func clients(t *testing.T, home string) map[string]bool {
	t.Helper()
	have := map[string]bool{}
	for _, program := range []string{"python3", "node"} {
		_, err := exec.LookPath(program)
		have[program] = err == nil
	}
	have["pip install paho-mqtt"] = exec.Command("python3", "-c", "from paho.mqtt.client import CallbackAPIVersion").Run() == nil
	linked := false
	if modules, err := filepath.Abs("interop/node_modules"); err == nil && have["node"] {
		if _, err := os.Stat(filepath.Join(modules, "mqtt")); err == nil {
			linked = os.Symlink(modules, filepath.Join(home, "node_modules")) == nil
		}
	}
	_, err := exec.LookPath("mosquitto")
	have["mosquitto -p"] = err == nil
	have["npm install mqtt"], have["npm install graphql-ws ws"] = linked, linked
	for what, there := range have {
		if !there && os.Getenv("CLIENTS") == "must" {
			t.Errorf("%s is not at hand", what)
		}
	}
	return have
}

// TestDocumentsProgramsRead checks the programs that the pages show for people to save, where they may not be run.
func TestDocumentsProgramsRead(t *testing.T) {
	t.Parallel()
	needs(t)
	checks := map[string][]string{"python": {"python3", "-m", "py_compile"}, "js": {"node", "--check"}, "go": {"gofmt", "-l", "-e"}}
	for _, page := range pages(t) {
		for _, s := range follow.Read(t, page) {
			check := checks[s.Language]
			if check == nil || s.File == "" {
				continue
			}
			if _, err := exec.LookPath(check[0]); err != nil {
				if need.Must() {
					t.Errorf("%s:%d: %s is not at hand", page, s.Line, check[0])
				}
				continue
			}
			file := filepath.Join(t.TempDir(), s.File)
			if err := os.WriteFile(file, []byte(s.Body), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(check[0], append(check[1:], file)...).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s:%d: %v\n%s", page, s.Line, err, out)
			}
		}
	}
}

// TestDocumentsTroubleshooting runs the checks of the page on an instance that has nothing the matter.
func TestDocumentsTroubleshooting(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "curl", "jq")
	beside(t, "docs/troubleshooting.md", "run")
}

// TestDocumentsGateway runs the commands of the page.
func TestDocumentsGateway(t *testing.T) {
	t.Parallel()
	needs(t, "sh")
	followHere(t, "docs/gateway.md")
}

// TestDocumentsBackup makes a copy, proves it and brings it back.
func TestDocumentsBackup(t *testing.T) {
	t.Parallel()
	needs(t, "sh")
	followHere(t, "docs/backup.md")
}

// TestDocumentsSiteFiles follows the page on a directory where nothing runs.
func TestDocumentsSiteFiles(t *testing.T) {
	t.Parallel()
	needs(t, "sh")
	followHere(t, "docs/site-files.md")
}

// TestDocumentsRules makes the rules of the page fire.
func TestDocumentsRules(t *testing.T) {
	t.Parallel()
	needs(t, "sh")
	followHere(t, "docs/rules.md")
}

// TestDocumentsAPI signs in and queries with every client of the page that is at hand.
func TestDocumentsAPI(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "curl", "jq")
	followHere(t, "docs/api.md")
}

// goProxy lets go get take the modules that this tree uses as well from the cache, which has the layout of a proxy; what the
// cache lacks comes from where this machine gets its modules.
func goProxy(t *testing.T) []string {
	t.Helper()
	cache := filepath.Join(goEnv(t, "GOMODCACHE"), "cache", "download")
	return []string{"GOPROXY=file://" + cache + "," + goEnv(t, "GOPROXY"), "GOSUMDB=off"}
}

// beside follows a page that speaks of an instance that runs already.
func beside(t *testing.T, page string, args ...string) {
	t.Helper()
	o := here(t)
	cmd := exec.Command(testweir.Binary(t), args...)
	cmd.Dir, cmd.Env = o.Dir, o.Env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	for deadline := time.Now().Add(documentTimeout); ; time.Sleep(20 * time.Millisecond) {
		status := exec.Command(testweir.Binary(t), "status")
		status.Dir, status.Env = o.Dir, o.Env
		if status.Run() == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the instance does not start")
		}
	}
	follow.Page(t, page, o)
}

// freePorts maps the default ports to free ones, in texts and in the environment of weir.
func freePorts(t *testing.T) (*strings.Replacer, []string) {
	t.Helper()
	var pairs []string
	env := testweir.Environ()
	for _, l := range []struct{ name, port string }{{"API", "8080"}, {"INGEST", "8081"}, {"MQTT", "1883"}, {"METRICS", "9090"}} {
		address := loopback.Free(t)
		_, port, _ := strings.Cut(address, ":")
		pairs = append(pairs, l.port, port)
		env = append(env, fmt.Sprintf("WEIR_LISTENERS_%s=%s", l.name, address))
	}
	_, broker, _ := strings.Cut(loopback.Free(t), ":") // of pages that need a broker of somebody else
	pairs = append(pairs, "1884", broker)
	return strings.NewReplacer(pairs...), env
}
