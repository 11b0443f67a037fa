// Package artifact keeps files that devices are given, such as firmware. No artifact is ever run, opened or guessed at: it is bytes with a token, a
// SHA-256 and what its owner calls it.
//
// The bytes lie in the database, in parts, so that they are in each backup and go with their tenant. A body is written before the artifact that has
// it; what no artifact has is removed.
package artifact

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/store"
	"weir/store/artifacts"
)

// Bounds.
const (
	partBytes   = 64 << 10
	partsAtOnce = 4                // that a transaction writes or removes
	maxUploads  = 4                // at once
	maxText     = 128              // characters of a name or version
	maxListed   = 10_000           // artifacts of the instance
	dropTimeout = 30 * time.Second // for the parts of a body that no artifact has; the next start goes on
	auditTable  = "artifacts"
	kind        = "artifact"
)

// Deps are the collaborators. Logger and Registerer may be left out.
type Deps struct {
	Store  store.Store
	Writer store.Writer
	// Limits returns how many bytes an artifact may have, and all of the instance together.
	Limits     func() (one, all int64)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Service keeps the artifacts of an instance. It is safe for concurrent use.
type Service struct {
	deps Deps

	mu      sync.Mutex
	writing map[int64]int64 // bytes by body that is being written
	stored  int64           // bytes of all artifacts, as of the newest look
	number  int64
	refused prometheus.Counter
}

// New returns the service of an instance.
func New(d Deps) *Service {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{deps: d, writing: map[int64]int64{},
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_artifacts_refused_total", Help: "Artifacts that were refused since they were too large or too many."})}
	if d.Registerer != nil {
		d.Registerer.MustRegister(s.refused)
		gauge := func(name, help string, value func() int64) {
			d.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_artifacts" + name, Help: help}, func() float64 { return float64(value()) }))
		}
		gauge("", "Artifacts, as of the newest change.", func() int64 { return s.look(&s.number) })
		gauge("_bytes", "Size of all artifacts together, as of the newest change.", func() int64 { return s.look(&s.stored) })
		gauge("_max_bytes", "Maximum size of all artifacts together.", func() int64 { _, all := d.Limits(); return all })
		gauge("_uploads", "Artifacts that are being received.", func() int64 { s.mu.Lock(); defer s.mu.Unlock(); return int64(len(s.writing)) })
	}
	return s
}

func (s *Service) look(v *int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *v
}

// Upload is an artifact that is to be kept.
type Upload struct {
	Token   string
	Name    string
	Version string
	SHA256  string // what the bytes must have; "" for anything
}

func (u *Upload) check() error {
	if err := model.CheckToken("token", u.Token); err != nil {
		return err
	}
	for field, text := range map[string]string{"name": u.Name, "version": u.Version} {
		if utf8.RuneCountInString(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return model.Invalid(field, "must have at most %d characters, none of them a control character", maxText)
		}
	}
	u.SHA256 = strings.ToLower(u.SHA256)
	if b, err := hex.DecodeString(u.SHA256); u.SHA256 != "" && (err != nil || len(b) != sha256.Size) {
		return model.Invalid("sha256", "must be 64 hexadecimal digits")
	}
	return nil
}

// Put keeps the bytes of r as an artifact of the caller's tenant and returns it once that survives a power cut. One with the same bytes gets the name and version of this one
// (made false); one with other bytes is a CONFLICT, since commands may name it. INVALID_INPUT: nothing was sent, or other bytes than the
// SHA-256 says; LIMIT_EXCEEDED: too many; UNAVAILABLE: too many are being received. Errors of r are returned as they are.
func (s *Service) Put(ctx context.Context, by *model.Principal, u Upload, r io.Reader) (a *model.Artifact, made bool, err error) {
	defer func() {
		if code := model.CodeOf(err); code == model.CodeLimitExceeded || code == model.CodeUnavailable {
			s.refused.Inc()
		}
	}()
	if err := u.check(); err != nil {
		return nil, false, err
	}
	body, err := s.begin(ctx)
	if err != nil {
		return nil, false, err
	}
	kept := false
	defer func() {
		s.mu.Lock()
		delete(s.writing, body)
		s.mu.Unlock()
		if !kept {
			s.drop(body)
		}
	}()
	sum, size, err := s.receive(ctx, by.TenantID, body, r)
	switch {
	case err != nil:
		return nil, false, err
	case size == 0:
		return nil, false, model.Invalid("bytes", "must not be empty")
	case u.SHA256 != "" && u.SHA256 != sum:
		return nil, false, model.Invalid("sha256", "is that of other bytes: what was received has %s", sum)
	}
	err = s.deps.Writer.Mutate(ctx, by, func(c *store.Change) (err error) {
		made = false
		if a, err = artifacts.Get(c, by.TenantID, u.Token); err != nil {
			return err
		}
		if a != nil {
			if a.SHA256 != sum {
				return model.Errorf(model.CodeConflict, "conflict: the artifact %q has other bytes, and what an artifact holds never changes: use another token, or delete it first", u.Token)
			}
			a.Name, a.Version, a.UpdatedAt = u.Name, u.Version, c.At
			if err := artifacts.Describe(c, a); err != nil {
				return err
			}
			return audit(c, store.AuditUpdate, a)
		}
		n, stored, err := artifacts.Total(c)
		if err != nil {
			return err
		}
		if _, all := s.deps.Limits(); stored+size > all || n >= maxListed {
			return tooMany(n, stored, all)
		}
		a = &model.Artifact{TenantID: by.TenantID, CreatedAt: c.At, UpdatedAt: c.At, Token: u.Token, Name: u.Name, Version: u.Version, SHA256: sum, Bytes: size, Body: body}
		made = true
		if err := artifacts.Insert(c, a); err != nil {
			return err
		}
		return audit(c, store.AuditCreate, a)
	})
	if err != nil {
		return nil, false, err
	}
	kept = made
	s.count(ctx)
	return a, made, nil
}

func tooMany(n, stored, all int64) error {
	return model.OverLimit("lwm2m.max_artifacts", "is %d bytes for all artifacts of the instance, and %d artifacts: %d have %d bytes; delete one first", all, maxListed, n, stored)
}

func audit(c *store.Change, operation string, a *model.Artifact) error {
	return c.Audit(store.AuditEvent{TenantID: a.TenantID, Category: store.AuditMutation, Operation: operation, Table: auditTable, Key: strconv.FormatInt(a.ID, 10), Label: a.Token, Rows: 1})
}

// begin begins to write a body.
func (s *Service) begin(ctx context.Context) (body int64, err error) {
	s.count(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.writing) >= maxUploads {
		return 0, model.Errorf(model.CodeUnavailable, "unavailable: %d artifacts are being received, try again", maxUploads)
	}
	var b [8]byte
	_, _ = rand.Read(b[:])
	body = int64(binary.BigEndian.Uint64(b[:])>>1) | 1
	s.writing[body] = 0
	return body, nil
}

// grow notes that a body grows, where there is room for it.
func (s *Service) grow(body int64, n int) error {
	one, all := s.deps.Limits()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing[body] += int64(n)
	if s.writing[body] > one {
		return model.OverLimit("lwm2m.max_artifact", "is %d bytes, what is sent has more", one)
	}
	sum := s.stored
	for _, n := range s.writing {
		sum += n
	}
	if sum > all {
		return tooMany(s.number, s.stored, all)
	}
	return nil
}

// receive writes a body as it comes.
func (s *Service) receive(ctx context.Context, tenant, body int64, r io.Reader) (sum string, size int64, err error) {
	hash := sha256.New()
	var parts [][]byte
	at := int64(0)
	flush := func() error {
		write, first := parts, at
		at, parts = at+int64(len(parts)), nil
		return s.deps.Store.Write(ctx, store.Results, func(tx store.Tx) error {
			for i, data := range write {
				if err := artifacts.Write(tx, tenant, body, first+int64(i), data); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for ended := false; !ended; {
		data := make([]byte, partBytes)
		n, err := io.ReadFull(r, data)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			ended = true
		case err != nil:
			return "", 0, err
		}
		if n > 0 {
			if err := s.grow(body, n); err != nil {
				return "", 0, err
			}
			hash.Write(data[:n])
			size += int64(n)
			parts = append(parts, data[:n])
		}
		if len(parts) == partsAtOnce || ended && len(parts) > 0 {
			if err := flush(); err != nil {
				return "", 0, err
			}
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), size, nil
}

// count looks at how much is stored.
func (s *Service) count(ctx context.Context) {
	var n, stored int64
	if err := store.Read(ctx, s.deps.Store, func(tx store.Tx) (err error) {
		n, stored, err = artifacts.Total(tx)
		return err
	}); err != nil {
		return // what is stored is counted again when an artifact is stored
	}
	s.mu.Lock()
	s.number, s.stored = n, stored
	s.mu.Unlock()
}

// drop removes a body that no artifact has. What is left after an error is removed at the next start.
func (s *Service) drop(body int64) {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	if err := s.remove(ctx, body); err != nil {
		s.deps.Logger.Warn("parts of an artifact that is gone could not be removed; the next start removes them", "error", err)
	}
}

func (s *Service) remove(ctx context.Context, body int64) error {
	for {
		var n int64
		if err := s.deps.Store.Write(ctx, store.Results, func(tx store.Tx) (err error) {
			n, err = artifacts.Drop(tx, body, partsAtOnce)
			return err
		}); err != nil || n < partsAtOnce {
			return err
		}
	}
}

// Run removes bodies that no artifact has: what a crash has left. It returns when that is done, or ctx has ended.
func (s *Service) Run(ctx context.Context) error {
	s.count(ctx)
	for after, more := int64(0), true; more && ctx.Err() == nil; {
		var owned bool
		if err := s.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
			after, owned, more, err = artifacts.NextBody(tx, after)
			return err
		}); err != nil {
			return s.unswept(ctx, err)
		}
		s.mu.Lock()
		_, writing := s.writing[after]
		s.mu.Unlock()
		if !more || owned || writing || s.has(ctx, after) {
			continue
		}
		if err := s.remove(ctx, after); err != nil {
			return s.unswept(ctx, err)
		}
	}
	return nil
}

// has reports whether an artifact has a body by now.
func (s *Service) has(ctx context.Context, body int64) (owned bool) {
	err := s.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		_, owned, _, err = artifacts.NextBody(tx, body-1)
		return err
	})
	return owned || err != nil
}

func (s *Service) unswept(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		s.deps.Logger.Warn("parts of artifacts that are gone could not be removed; the next start removes them", "error", err)
	}
	return nil
}

// List returns artifacts of the caller's tenant by token: all, or with tokens those of them that there are.
func (s *Service) List(ctx context.Context, by *model.Principal, tokens []string) (found []*model.Artifact, err error) {
	err = store.Read(ctx, s.deps.Store, func(tx store.Tx) (err error) {
		found, err = artifacts.List(tx, by.TenantID, tokens)
		return err
	})
	return found, err
}

// Find returns an artifact of a tenant, nil when there is none.
func (s *Service) Find(ctx context.Context, tenant int64, token string) (a *model.Artifact, err error) {
	err = store.Read(ctx, s.deps.Store, func(tx store.Tx) (err error) {
		a, err = artifacts.Get(tx, tenant, token)
		return err
	})
	return a, err
}

// Delete removes an artifact of the caller's tenant. CONFLICT while a device is being given it.
func (s *Service) Delete(ctx context.Context, by *model.Principal, token string) error {
	var a *model.Artifact
	if err := s.deps.Writer.Mutate(ctx, by, func(c *store.Change) (err error) {
		if a, err = artifacts.Get(c, by.TenantID, token); err != nil {
			return err
		}
		if a == nil {
			return model.NotFound(kind, token)
		}
		used, err := artifacts.Used(c, a.Body)
		if err != nil {
			return err
		}
		if used {
			return model.Errorf(model.CodeConflict, "conflict: a device is being given the artifact %q: wait for the command, or cancel it", token)
		}
		if err := artifacts.Delete(c, a.ID); err != nil {
			return err
		}
		return audit(c, store.AuditDelete, a)
	}); err != nil {
		return err
	}
	s.count(ctx)
	s.drop(a.Body)
	return nil
}

// ErrGone says that the bytes of an artifact are not there any more.
var ErrGone = errors.New("the artifact is gone")

// ReadAt reads bytes of an artifact, as io.ReaderAt does: fewer than p has room for only at their end, with io.EOF there. ErrGone: it was deleted.
func (s *Service) ReadAt(ctx context.Context, a *model.Artifact, p []byte, off int64) (n int, err error) {
	for n < len(p) && off+int64(n) < a.Bytes {
		at := off + int64(n)
		var part []byte
		if err := s.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
			part, err = artifacts.Part(tx, a.Body, at/partBytes)
			return err
		}); err != nil {
			return n, err
		}
		if int64(len(part)) <= at%partBytes {
			return n, ErrGone
		}
		n += copy(p[n:], part[at%partBytes:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
