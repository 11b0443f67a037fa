package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// consoleFigure is what the script in the browser measures, by its name there.
type consoleFigure struct {
	name, what string
	goal       goal
}

func seconds(v float64) string { return fmt.Sprintf("%.2f s", v/1000) }

func whole(v float64) string { return fmt.Sprintf("%.0f", v) }

// consoleFigures are those of the table, in its order.
var consoleFigures = []consoleFigure{
	{"signIn", "first paint of the sign-in, slowed 6 ×", atMost(1000, 600, seconds)},
	{"overview", "first paint of Overview with numbers and plot, slowed 6 ×", atMost(2000, 1200, seconds)},
	{"overviewLine", "the same over 1.6 Mbit/s and 150 ms", atMost(4000, 3000, seconds)},
	{"firstRows", "DEVICES devices: API requests to the first rows", within(4, whole)},
	{"lastRows", "DEVICES devices: API requests to the last ones", within(6, whole)},
	{"rows", "DEVICES devices: rows in the document", within(60, whole)},
	{"listNodes", "DEVICES devices: nodes", within(3000, whole)},
	{"search", "DEVICES devices: last key of a search to its rows, slowed 6 ×", atMost(500, 300, millis)},
	{"scroll", "DEVICES devices: frame p95 while scrolling 5 s, slowed 6 ×", atMost(50, 34, millis)},
	{"month", "plots of 8 series over 30 days, READINGS readings: asked to drawn, slowed 6 ×", atMost(1500, 600, seconds)},
	{"drag", "canvas of 60 nodes: frame p95 while a node is dragged, slowed 6 ×", atMost(50, 34, millis)},
	{"diagnostic", "canvas of 60 nodes: last key to the diagnostic at its node, slowed 6 ×", atMost(700, 500, millis)},
	{"askedOverview", "API requests of Overview in a minute", within(40, whole)},
	{"askedBoard", "API requests of a dashboard of 50 widgets in a minute", within(40, whole)},
	{"askedHidden", "API requests of hidden tabs in a minute", within(0, whole)},
	{"sockets", "sockets of one tab", within(4, whole)},
	{"socketsHidden", "sockets of hidden tabs after 30 s", within(0, whole)},
	{"toTheRow", "from a message to its row on the screen at 500/s: p99", atMost(500, 300, millis)},
	{"heap", "inspector at 2,000/s: growth of the heap after collection", within(1, megabytes)},
	{"nodes", "inspector at 2,000/s: change of the nodes", within(2, percent)},
	{"uncounted", "inspector at 2,000/s: messages neither shown nor counted", within(0, whole)},
	{"busy", "inspector at 2,000/s: main thread", atMost(40, 20, percent)},
	{"puback", "PUBACK p99 at 2,000/s with one watcher over without", atMost(1.1, 1.02, times)},
}

// consoleBoard is what the dashboard has, by kinds of widgets.
var consoleBoard = []struct {
	kind string
	n    int
}{{"latest-value", 30}, {"table", 10}, {"time-series", 8}, {"alarm-table", 2}}

// consoleSeries is how many series are plotted over 30 days.
const consoleSeries = 8

// console measures the console in a browser, and what it adds to the program.
func (b *bench) console(ctx context.Context) error {
	node, chromium, err := b.consoleTools()
	if err != nil {
		return err
	}
	devices := registryDevices
	if !b.all {
		devices /= 10
	}
	in, err := b.ready(ctx, setup{devices: devices, rules: 1, limit: func(int) float64 { return 1e12 }})
	if err != nil {
		return err
	}
	defer in.drop()
	if err := errors.Join(in.drawRule(ctx), in.makeBoards(ctx)); err != nil {
		return err
	}
	readings, err := b.fillMonth(ctx, in)
	if err != nil {
		return err
	}
	if err := b.quiet(ctx); err != nil {
		return err
	}
	found, err := b.browse(ctx, in, node, chromium, devices, readings)
	if err != nil {
		return err
	}
	for _, f := range consoleFigures {
		x, ok := found[f.name]
		if !ok {
			return fmt.Errorf("the browser has not measured %s", f.name)
		}
		b.judged(f.goal, strings.NewReplacer("DEVICES", count(float64(devices)), "READINGS", count(float64(readings))).Replace(f.what), x.Value, "%s", x.Note)
	}
	in.drop()
	return b.consoleCosts(ctx)
}

// consoleTools are the programs that a browser is driven with.
func (b *bench) consoleTools() (node, chromium string, err error) {
	node, err = exec.LookPath("node")
	if err != nil {
		return "", "", errors.New("the console is measured in a browser, driven by Node: node is not there (20 or later is needed)")
	}
	if chromium, err = exec.LookPath("chromium"); err != nil {
		return "", "", errors.New("the console is measured in a browser: chromium is not there (Debian: apt-get install chromium)")
	}
	if !exists(filepath.Join(b.root, "interop", "node_modules", "playwright-core")) {
		return "", "", errors.New("the modules that drive the browser are not there: run npm ci in interop")
	}
	return node, chromium, nil
}

// drawRule makes a rule that was drawn with 60 nodes: one condition, and to each of eight actions six branches or seven.
func (in *instance) drawRule(ctx context.Context) error {
	type at struct {
		X int `json:"x"`
		Y int `json:"y"`
	}
	type drawn struct {
		ID     string         `json:"id"`
		Type   string         `json:"type"`
		Config map[string]any `json:"config"`
		UI     at             `json:"ui"`
	}
	type edge struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	nodes := []drawn{
		{"in", "source", map[string]any{"scope": map[string]any{"kind": "profile", "profileToken": "p"}}, at{0, 0}},
		{"hot", "threshold", map[string]any{"name": "drawn", "severity": "major", "when": map[string]any{"metric": "temp", "op": "gt", "threshold": map[string]any{"kind": "literal", "value": 1e12}}}, at{1, 0}},
	}
	edges := []edge{{"in:out", "hot:in"}}
	for a := range 8 {
		from := "hot:signal"
		branches := 6
		if a < 2 {
			branches++
		}
		for i := range branches {
			id := fmt.Sprintf("b%d-%d", a, i)
			nodes = append(nodes, drawn{id, "branch", map[string]any{"when": fmt.Sprintf("value > %d.0", 10*a+i)}, at{2 + i, a}})
			edges = append(edges, edge{from, id + ":in"})
			from = id + ":out"
		}
		id := fmt.Sprintf("a%d", a)
		nodes = append(nodes, drawn{id, "action", map[string]any{"action": "raiseAlarm", "alarmKey": "drawn-" + id}, at{2 + branches, a}})
		edges = append(edges, edge{from, id + ":in"})
	}
	graph, err := json.Marshal(map[string]any{"schemaVersion": 1, "nodes": nodes, "edges": edges})
	if err != nil {
		return err
	}
	var compiled struct {
		CompileCanvas struct {
			OK          bool
			Definition  string
			Diagnostics []struct{ Message string }
		}
	}
	if err := in.query(ctx, "event-processing", `query($g:String!){compileCanvas(graph:$g,profileToken:"p"){ok definition diagnostics{message}}}`, map[string]any{"g": string(graph)}, &compiled); err != nil {
		return err
	}
	if c := compiled.CompileCanvas; !c.OK {
		return fmt.Errorf("the canvas does not compile: %v", c.Diagnostics)
	}
	return in.query(ctx, "device-management", `mutation($d:String!,$g:String!){createDetectionRule(request:{token:"drawn",deviceProfileToken:"p",definition:$d,authoringGraph:$g,enabled:false}){token}}`,
		map[string]any{"d": compiled.CompileCanvas.Definition, "g": string(graph)}, nil)
}

// widget is one of a dashboard, with the readings of a device of its own.
func widget(n int, kind string, options map[string]any) map[string]any {
	return map[string]any{
		"id": fmt.Sprintf("w%d", n), "type": kind,
		"layout":     map[string]any{"base": map[string]int{"col": n % 3 * 8, "colSpan": 8, "row": n / 3 * 4, "rowSpan": 4}},
		"datasource": map[string]any{"kind": "device", "deviceToken": deviceToken(n), "measurements": []string{"temp"}},
		"options":    options,
	}
}

// makeBoards makes a dashboard of all kinds of widgets, and one of plots over 30 days.
func (in *instance) makeBoards(ctx context.Context) error {
	var wall, month []map[string]any
	for _, k := range consoleBoard {
		for range k.n {
			wall = append(wall, widget(len(wall), k.kind, map[string]any{}))
		}
	}
	for n := range consoleSeries {
		month = append(month, widget(n, "time-series", map[string]any{"span": "30d"}))
	}
	for token, widgets := range map[string][]map[string]any{"wall": wall, "month": month} {
		board, err := json.Marshal(map[string]any{"schemaVersion": 1, "widgets": widgets})
		if err != nil {
			return err
		}
		if err := in.query(ctx, "dashboard-management", `mutation($t:String!,$d:String!){createDashboard(request:{token:$t,name:$t,definition:$d}){token}}`,
			map[string]any{"t": token, "d": string(board)}, nil); err != nil {
			return err
		}
	}
	return nil
}

// fillMonth spreads the readings of the first devices over the last 30 days, and has them written to the disk.
func (b *bench) fillMonth(ctx context.Context, in *instance) (int64, error) {
	const month, perMsg = 30 * 24 * time.Hour, 250
	messages := max(b.readings/consoleSeries/perMsg, 1)
	base, step := time.Now().UTC().Add(time.Hour-month), (month-2*time.Hour)/time.Duration(messages*perMsg)
	have, took, err := b.fill(ctx, in, consoleSeries, func(d *body) { d.kind, d.base, d.step, d.perMsg = sensor, base, step, perMsg }, int64(messages))
	if err != nil {
		return 0, err
	}
	b.say.Printf("  %s readings over 30 days stored in %s", count(float64(have.readings)), short(took))
	return have.readings, in.settle(ctx)
}

type measuredInBrowser struct {
	Name  string
	Value float64
	Note  string
}

// browse runs the script that measures, and returns its figures by their names.
func (b *bench) browse(ctx context.Context, in *instance, node, chromium string, devices int, readings int64) (map[string]measuredInBrowser, error) {
	host, port, err := net.SplitHostPort(in.mqtt)
	if err != nil {
		return nil, err
	}
	var kinds []string
	widgets := 0
	for _, k := range consoleBoard {
		kinds, widgets = append(kinds, fmt.Sprintf("%d %s", k.n, k.kind)), widgets+k.n
	}
	first := deviceToken(0)
	settings := map[string]any{
		"chromium": chromium, "api": in.api, "email": email, "password": password,
		"mqtt": "mqtt://" + net.JoinHostPort(host, port), "topic": "weir/" + tenant + "/devices/" + first + "/events", "clientId": "weir:" + tenant + ":" + first, "username": tenant + ":" + accessToken(0),
		"devices": devices, "searches": []string{deviceToken(4241), deviceToken(776), deviceToken(9998), deviceToken(3), deviceToken(5554)},
		"rule": "drawn", "nodes": 60, "widgets": widgets, "board": strings.Join(kinds, ", "),
		"plots": consoleSeries, "readings": readings,
		"times": 3, "before": 12, "minute": 60, "live": 20, "alone": 60, "rate": 2000, "settle": 60, "soak": 180,
	}
	if !b.all {
		settings["before"], settings["minute"], settings["live"], settings["alone"], settings["settle"], settings["soak"] = 11, 32, 5, 5, 5, 15
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, node, filepath.Join(b.root, "interop", "console-bench.mjs"), string(text))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	found, failed := readFigures(out, func(f measuredInBrowser) { b.say.Printf("  %s %g %s", f.Name, f.Value, f.Note) })
	if err := errors.Join(failed, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.String())
	}
	return found, nil
}

// readFigures reads what the script writes until it ends: a figure in each line, or, behind FAIL, why there is no further one.
func readFigures(from io.Reader, say func(measuredInBrowser)) (map[string]measuredInBrowser, error) {
	found := map[string]measuredInBrowser{}
	var failed error
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var f measuredInBrowser
		switch err := json.Unmarshal(lines.Bytes(), &f); {
		case failed != nil: // what is said after a failure belongs to it
			failed = fmt.Errorf("%w\n%s", failed, lines.Text())
		case err != nil:
			failed = errors.New(strings.TrimPrefix(lines.Text(), "FAIL "))
		case !slices.ContainsFunc(consoleFigures, func(c consoleFigure) bool { return c.name == f.Name }):
			failed = fmt.Errorf("the browser has measured %s, which has no bound", f.Name)
		default:
			say(f)
			found[f.Name] = f
		}
	}
	return found, errors.Join(failed, lines.Err())
}

// consoleCosts compares the program with one without the console: its size, and its memory while no page is open.
func (b *bench) consoleCosts(ctx context.Context) error {
	var sizes [2]int64
	var memory [2][]float64
	for i, tags := range []string{"", "noconsole"} {
		out := filepath.Join(b.work, "weir-console-"+tags)
		if err := b.goBuild(ctx, out, "-s -w", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-tags="+tags); err != nil {
			return err
		}
		fi, err := os.Stat(out)
		if err != nil {
			return err
		}
		sizes[i] = fi.Size()
	}
	for range 3 { // in turn, since what a start needs varies
		for i, tags := range []string{"", "noconsole"} {
			other := *b
			other.binary = filepath.Join(b.work, "weir-console-"+tags)
			in, err := other.fresh(ctx, setup{})
			if err != nil {
				return err
			}
			n, err := other.rests(ctx, in)
			in.drop()
			if err != nil {
				return err
			}
			memory[i] = append(memory[i], n)
		}
	}
	for i := range memory {
		slices.Sort(memory[i])
	}
	b.judged(within(2, megabytes), "the binary's growth by the console, amd64", float64(sizes[0]-sizes[1])/1e6, "stripped, against one that is built with the tag noconsole")
	b.judged(within(1, mebibytes), "idle memory by the console, no page open", memory[0][1]-memory[1][1], "RSS without file pages, the middle of 3 first starts: %.1f MiB against %.1f MiB without; the starts differ by %.1f MiB",
		memory[0][1], memory[1][1], max(memory[0][2]-memory[0][0], memory[1][2]-memory[1][0]))
	return nil
}
