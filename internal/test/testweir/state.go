package testweir

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// Scrape reads the metrics. Those with labels are named name{labels}.
func (p *Proc) Scrape(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64)
			if err != nil {
				return nil, err
			}
			all[line[:i]] = v
		}
	}
	return all, nil
}

// Applied reports whether nothing waits for the applier.
func (p *Proc) Applied() (bool, error) {
	out, err := p.TryRun("", "status", "--json")
	if err != nil {
		return false, fmt.Errorf("%w: %s", err, out)
	}
	var s struct{ Log struct{ Last, Applied int64 } }
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return false, err
	}
	return s.Log.Applied >= s.Log.Last, nil
}

// Memory is what the process has of the machine's memory, in bytes: all of it, and the part that the kernel cannot drop.
func (p *Proc) Memory() (resident, anonymous int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		if name != "VmRSS" && name != "RssAnon" {
			continue
		}
		n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		if name == "VmRSS" {
			resident = n << 10
		} else {
			anonymous = n << 10
		}
	}
	if anonymous == 0 {
		return 0, 0, fmt.Errorf("no RssAnon in %q", b)
	}
	return resident, anonymous, nil
}
