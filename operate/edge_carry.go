package operate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/config"
	"weir/edge"
	"weir/internal/carry"
	"weir/internal/edgewire"
	"weir/internal/ranges"
	"weir/model"
	"weir/registry"
)

// EdgeExport says what of an edge is exported, EdgeExported what a file holds.
type (
	EdgeExport   = edge.ExportOptions
	EdgeExported = edge.Exported
)

// exportEnd follows an export on its way over the socket: without it the file is not whole.
type exportEnd struct {
	Made  *EdgeExported `json:"made,omitempty"`
	Error *wireError    `json:"error,omitempty"`
}

// ExportEdge writes what waits at an edge into a file that is carried by hand.
var ExportEdge = EdgeExportVerb{Name: "edge-export"}

// EdgeExportVerb sends an export of an edge.
type EdgeExportVerb struct{ Name string }

func (v *EdgeExportVerb) path() string { return v.Name }

func (v *EdgeExportVerb) handler(s *Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q EdgeExport
		if !readCommand(w, r, maxCommandBytes, &q) {
			return
		}
		e := s.edge
		if e == nil {
			var err error
			if e, err = s.o.uplink(); err != nil {
				s.failed(w, r, err)
				return
			}
		}
		ctx, _, done := s.untilStop(w, r)
		defer done()
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Trailer", endTrailer)
		w.Header().Set(aboutHeader, fmt.Sprint(e.deps.Edge.LogStats().Bytes))
		w.WriteHeader(http.StatusOK)
		var end exportEnd
		made, err := e.deps.Edge.Export(ctx, w, q)
		switch {
		case err == nil:
			end.Made = made
		case s.streaming.Err() != nil:
			end.Error = new(wireErrorOf(errStopping))
		default:
			end.Error = new(wireErrorOf(err))
		}
		text, _ := json.Marshal(end) // plain fields
		w.Header().Set(endTrailer, string(text))
	})
}

// Ask writes an export to w: of a running edge, or of the data directory of one that does not run. about is given about how many bytes to expect.
func (v *EdgeExportVerb) Ask(ctx context.Context, to Target, q EdgeExport, w io.Writer, about func(int64)) (*EdgeExported, error) {
	c, running := to.(*Client)
	if !running {
		return to.(*Directory).exportEdge(ctx, q, w, about)
	}
	resp, err := c.post(ctx, v.Name, q)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var bytes int64
	if _, err := fmt.Sscan(resp.Header.Get(aboutHeader), &bytes); err == nil {
		about(bytes)
	}
	_, copied := io.Copy(w, resp.Body)
	var end exportEnd
	if text := resp.Trailer.Get(endTrailer); text != "" {
		if err := json.Unmarshal([]byte(text), &end); err != nil {
			return nil, err
		}
	}
	switch {
	case end.Error != nil:
		return nil, end.Error.err()
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case copied != nil && !errors.Is(copied, io.ErrUnexpectedEOF):
		return nil, copied
	case copied != nil || end.Made == nil:
		return nil, errors.New("the edge broke off: it was stopped or killed")
	}
	return end.Made, nil
}

// exportEdge exports from the data directory of an edge that does not run.
func (d *Directory) exportEdge(ctx context.Context, q EdgeExport, w io.Writer, about func(int64)) (_ *EdgeExported, err error) {
	cfg := d.Config
	if cfg.Role != config.RoleEdge {
		if _, err := os.Stat(UplinkPath(cfg.DataDir)); err == nil {
			return nil, &model.Error{Code: model.CodeUnavailable, Message: "a platform exports what waits for its uplink while it runs", Hint: "start it: the uplink need not be reachable"}
		}
		return nil, errNoUplink
	}
	if _, err := os.Stat(EdgePath(cfg.DataDir)); err != nil {
		return nil, notRunning(cfg.DataDir)
	}
	lock, err := takeOwnDataDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	e, err := d.Wiring.OpenEdge(cfg, d.Getenv, d.Log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	about(e.LogStats().Bytes)
	return e.Export(ctx, w, q)
}

// EdgeImport is what a file holds that was carried from an edge, and what became of it.
type EdgeImport struct {
	Tenant    string    `json:"tenant"`
	Edge      string    `json:"edge"` // the device as which it signs in
	InstallID string    `json:"installId"`
	Version   string    `json:"version"`
	Made      time.Time `json:"madeAt"`
	Sealed    bool      `json:"sealed"`
	Messages  uint64    `json:"messages"`
	First     uint64    `json:"first,omitempty"` // number
	Last      uint64    `json:"last,omitempty"`
	// Known is how many of the messages were here before.
	Known uint64 `json:"known"`
	Sum   string `json:"sha256"`
	// Head identifies the file before it is read to its end.
	Head  string `json:"head"`
	Taken bool   `json:"taken"`
}

// ImportEdge takes in a file that was carried from an edge.
var ImportEdge = EdgeImportVerb{Name: "edge-import"}

// EdgeImportVerb takes a file in. Its bytes are the body of the request. It is read twice: first whole, to look whether it is sound and may be taken in, and then
// to do so.
type EdgeImportVerb struct{ Name string }

func (v *EdgeImportVerb) path() string { return v.Name }

func (v *EdgeImportVerb) handler(s *Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST only", http.StatusMethodNotAllowed)
			return
		}
		ctx, _, done := s.untilStop(w, r)
		defer done()
		q := r.URL.Query()
		found, err := s.o.importEdge(ctx, r.Body, q.Get("head"), q.Get("sum"))
		switch {
		case err != nil && s.streaming.Err() != nil:
			s.failed(w, r, errStopping)
		case err != nil:
			s.failed(w, r, err)
		default:
			reply(w, http.StatusOK, found)
		}
	})
}

// Ask checks a file, and takes it in unless it is only to be checked. through is what the bytes are read through, for progress.
func (v *EdgeImportVerb) Ask(ctx context.Context, to Target, file io.ReadSeeker, check bool, through func(io.Reader) io.Reader) (*EdgeImport, error) {
	c, running := to.(*Client)
	if !running {
		return nil, ErrNotRunning
	}
	found, err := v.send(ctx, c, through(file), url.Values{})
	if err != nil || check {
		return found, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return v.send(ctx, c, through(file), url.Values{"head": {found.Head}, "sum": {found.Sum}})
}

func (v *EdgeImportVerb) send(ctx context.Context, c *Client, file io.Reader, q url.Values) (*EdgeImport, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://weir/v1/"+v.Name+"?"+q.Encode(), io.NopCloser(file))
	if err != nil {
		return nil, err
	}
	resp, err := c.do(ctx, req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	found := &EdgeImport{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(found); err != nil {
		return nil, fmt.Errorf("the answer of the instance does not read: %w", err)
	}
	return found, nil
}

// Outcomes of a file that was carried.
const (
	importTaken   = "taken"
	importRefused = "refused"
)

func newImportMetrics(reg prometheus.Registerer) *prometheus.CounterVec {
	m := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_uplink_imports_total",
		Help: "Files carried by hand from edges, by outcome (taken, refused)."}, []string{"outcome"})
	m.WithLabelValues(importTaken)
	m.WithLabelValues(importRefused)
	reg.MustRegister(m)
	return m
}

// importEdge reads a file that was carried from an edge to its end. With the head and the sum of a file that was read before, its messages are handed to
// the intake on the way.
func (o *Operator) importEdge(ctx context.Context, r io.Reader, head, sum string) (*EdgeImport, error) {
	if !o.importing.TryLock() {
		return nil, &model.Error{Code: model.CodeConflict, Message: "another file of an edge is being read", Hint: "wait for it"}
	}
	defer o.importing.Unlock()
	found, err := o.readCarried(ctx, r, head, sum)
	switch {
	case err != nil && ctx.Err() == nil:
		o.imports.WithLabelValues(importRefused).Inc()
		o.deps.Log.Warn("a file of an edge is not taken in", "error", err)
	case err == nil && found.Taken:
		o.imports.WithLabelValues(importTaken).Inc()
		o.deps.Log.Info("a file of an edge is taken in", "tenant", found.Tenant, "edge", found.Edge, "install", found.InstallID, "messages", found.Messages, "known", found.Known)
	}
	return found, err
}

// Hints about files.
const (
	brokenHint = "nothing of it was taken in: copy it again, or export again"
	againHint  = "what was taken in is kept and a repeat is recognised: import the file again"
)

func (o *Operator) readCarried(ctx context.Context, r io.Reader, head, sum string) (*EdgeImport, error) {
	in, err := carry.NewReader(bufio.NewReaderSize(r, 64<<10), func(id string) (*carry.PrivateKey, error) { return o.deps.Registry.Edges.CarryKey(ctx) })
	if err != nil {
		return nil, carriedError(err)
	}
	h := in.Header()
	edge, err := o.carriedFrom(ctx, &h)
	if err != nil {
		return nil, err
	}
	take := head != ""
	if take && in.Head() != head {
		return nil, carriedError(fmt.Errorf("%w: it is another one than was checked before", carry.ErrFile))
	}
	found := &EdgeImport{Tenant: h.Tenant, Edge: h.Edge, InstallID: h.Install, Version: h.Version, Made: h.Made, Sealed: h.Key != "", Head: in.Head()}
	known, numbers := map[uint32]ranges.Set{}, map[uint32]ranges.Set{}
	for {
		messages, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, carriedError(err)
		}
		for i := range messages {
			m := &messages[i]
			have, asked := known[m.Epoch]
			if !asked {
				if len(known) >= maxCarriedEpochs {
					return nil, carriedError(fmt.Errorf("%w: more than %d epochs", carry.ErrFile, maxCarriedEpochs))
				}
				hello := edgewire.Hello{Install: h.Install, Epoch: m.Epoch}
				have, _ = o.deps.Relayed(ctx, h.Tenant, hello.Link())
				known[m.Epoch] = have
			}
			if have.Has(m.Number) {
				found.Known++
			}
			numbers[m.Epoch] = extended(numbers[m.Epoch], m.Number)
		}
		if found.First == 0 {
			found.First = messages[0].Number
		}
		found.Last = messages[len(messages)-1].Number
		if take {
			if err := o.deps.Carried.Take(ctx, edge, h.Install, messages); err != nil {
				return nil, &model.Error{Code: model.CodeUnavailable, Message: fmt.Sprintf("the file is taken in up to number %d: %v", messages[0].Number-1, err), Hint: againHint, Err: err}
			}
		}
	}
	found.Messages, found.Sum = in.Totals().Messages, in.Totals().Sum
	if !take {
		return found, nil
	}
	if found.Sum != sum {
		return nil, &model.Error{Code: model.CodeInvalidInput, Message: "the file changed while it was taken in", Hint: againHint}
	}
	found.Taken = true
	return found, o.deps.Registry.Edges.Carried(ctx, edge, h.Install, h.Machine, numbers)
}

// maxCarriedEpochs is how many epochs a file may have: a log begins another one when it is lost or damaged.
const maxCarriedEpochs = 64

// extended adds a number that is higher than those of a set. Beyond the bound the lowest range is left out: what is said to be above has to be there.
func extended(s ranges.Set, n uint64) ranges.Set {
	if last := len(s) - 1; last >= 0 && s[last][1]+1 == n {
		s[last][1] = n
		return s
	}
	if s = append(s, [2]uint64{n, n}); len(s) > edgewire.MaxRanges {
		s = s[1:]
	}
	return s
}

// carriedFrom returns the edge from which a file was carried, where it may be taken in.
func (o *Operator) carriedFrom(ctx context.Context, h *carry.Header) (edge model.Binding, err error) {
	switch instance := o.deps.Config.Instance.ID; {
	case h.Instance != instance:
		return edge, &model.Error{Code: model.CodeConflict, Message: fmt.Sprintf("the file is for the instance id %q, this is %s", h.Instance, instance), Hint: "import it there"}
	case h.Tenant == "" || h.Edge == "":
		return edge, &model.Error{Code: model.CodeConflict, Message: "the file is from an edge below a plain broker: it names no device as which the edge signs in here",
			Hint: "set edge.agent_id and edge.uplink.username at the edge, and export again"}
	}
	tenantID, enabled, known := o.deps.Govern.Lookup(h.Tenant)
	if !known || !enabled {
		return edge, &model.Error{Code: model.CodeNotFound, Message: fmt.Sprintf("the tenant %q of the file is not here, or is disabled", h.Tenant), Hint: "weir tenant list"}
	}
	edge, err = o.deps.Registry.Edges.Of(ctx, h.Tenant, tenantID, h.Edge)
	if errors.Is(err, registry.ErrNoEdge) {
		return edge, &model.Error{Code: model.CodeNotFound, Message: fmt.Sprintf("the device %q of tenant %s, as which the edge of the file signs in, is no edge here", h.Edge, h.Tenant),
			Hint: "make an Edge for it, with enabled: true (createEdge, or edges in a site file)", Err: err}
	}
	if err == nil {
		err = o.deps.Registry.Edges.MayCarry(ctx, edge, h.Install, h.Machine)
	}
	return edge, err
}

func carriedError(err error) error {
	switch {
	case errors.Is(err, carry.ErrKey):
		return &model.Error{Code: model.CodeConflict, Message: "the file is sealed to the carry key of another instance, or of this one before it was set up anew", Hint: "let the edge connect once, so that it gets the key, and export again; or export with --plain", Err: err}
	case errors.Is(err, carry.ErrFile):
		return &model.Error{Code: model.CodeInvalidInput, Message: "the file is refused: " + err.Error(), Hint: brokenHint, Err: err}
	}
	return err
}
