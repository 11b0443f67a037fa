package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/auth"
	"weir/broker"
	"weir/config"
	"weir/govern"
	"weir/ingest"
	"weir/internal/certs"
	"weir/model"
	"weir/presence"
	"weir/registry"
	"weir/rules"
	"weir/site"
	"weir/store"
)

// rooms are the parts that need a store and no log; the command line uses them on a directory where nothing runs.
type rooms struct {
	cfg      config.Config
	addrs    *Addresses      // what the instance listens on; empty when none runs
	served   *certs.Reloader // the certificate of those that speak TLS; nil for none
	hasher   *auth.Hasher
	govern   *govern.Govern
	auth     *auth.Auth
	verifier *auth.Verifier
	registry *registry.Registry
	compiler *rules.Compiler
	life     lives
	site     *site.Site
}

type roomDeps struct {
	store      store.Store
	writer     store.Writer
	vault      *store.Vault
	logger     *slog.Logger
	registerer prometheus.Registerer
	limits     rules.Limits
	addrs      *Addresses
	certs      *certs.Reloader
}

// newRooms builds the parts that know who there is.
func newRooms(ctx context.Context, cfg config.Config, d roomDeps) (rooms, error) {
	r := rooms{cfg: cfg, addrs: d.addrs, served: d.certs, hasher: auth.NewHasher(auth.Params{}, d.registerer)}
	var err error
	if r.compiler, err = rules.NewCompiler(d.limits); err != nil {
		return r, err
	}
	if r.govern, err = govern.New(ctx, governConfig(cfg), govern.Deps{Store: d.store, Writer: d.writer, Registerer: d.registerer,
		OnSwitch: func(tenant string, _ bool) { r.verifier.Invalidate(auth.Invalidation{Tenant: tenant}) }}); err != nil {
		return r, err
	}
	r.registry = registry.New(registry.Config{DevicesPerTenant: int64(cfg.Limits.DevicesPerTenant),
		RulesPerTenant: int64(cfg.Detection.MaxRulesPerTenant)}, registry.Deps{Store: d.store, Writer: d.writer,
		Sealer: d.vault, Hasher: r.hasher, Validator: validator{r.compiler}, Registerer: d.registerer,
		Removals: []registry.Removal{ingest.RemoveDeviceRows},
		Invalidate: func(device, credential int64) {
			r.verifier.Invalidate(auth.Invalidation{DeviceID: device, CredentialID: credential})
		}})
	r.verifier = auth.NewVerifier(auth.VerifierConfig{Credentials: finder{r.registry}, Tenants: r.govern, Hasher: r.hasher, Registerer: d.registerer})
	r.auth, err = auth.New(ctx, authConfig(cfg), auth.Deps{Store: d.store, Writer: d.writer, Vault: d.vault, Tenants: r.govern,
		Hasher: r.hasher, Logger: d.logger, Registerer: d.registerer})
	if err != nil {
		return r, err
	}
	r.site = site.New(site.Parts{Store: d.store, Writer: d.writer, Govern: r.govern, Auth: r.auth, Registry: r.registry, Hasher: r.hasher, Vault: d.vault,
		Progress: func(done, all int) {
			if all >= 2*passwordsTold && done%passwordsTold == 0 {
				d.logger.Info("comparing the passwords of the site", "done", done, "of", all)
			}
		}})
	return r, nil
}

// passwordsTold is after how many passwords of a site it is said how far they are: each takes a good part of a second on a
// small machine.
const passwordsTold = 20

func authConfig(cfg config.Config) auth.Config {
	a := cfg.Auth
	return auth.Config{InstanceID: cfg.Instance.ID, AccessTokenTTL: a.AccessTokenTTL, RefreshTokenTTL: a.RefreshTokenTTL,
		SigningKeyMaxAge: a.SigningKeyMaxAge, ServiceSecret: a.ServiceSecret.Reveal(), SuperuserEmail: a.SuperuserEmail,
		SuperuserPassword: a.SuperuserPassword.Reveal()}
}

func governConfig(cfg config.Config) govern.Config {
	g := govern.DefaultConfig()
	g.IngestMessagesPerSecond, g.IngestBurst = cfg.Governance.IngestMessagesPerSecond, int64(cfg.Governance.IngestBurst)
	g.ShedPriority, g.ManualFloor = int64(cfg.Governance.ShedPriority), cfg.Governance.ManualFloor
	return g
}

// finder lets auth look up the credential rows that registry holds.
type finder struct{ r *registry.Registry }

func (f finder) FindCredentials(ctx context.Context, tenantID int64, kind string, idHash [32]byte) ([]auth.CredentialRow, error) {
	rows, err := f.r.FindCredentials(ctx, tenantID, kind, idHash)
	out := make([]auth.CredentialRow, len(rows))
	for i, r := range rows {
		out[i] = auth.CredentialRow(r)
	}
	return out, err
}

// validator lets registry ask the rule compiler at publish.
type validator struct{ c *rules.Compiler }

func (v validator) Validate(_ context.Context, _ *model.Principal, candidates []registry.Candidate) ([]registry.Refusal, error) {
	in := make([]rules.Candidate, len(candidates))
	for i, c := range candidates {
		in[i] = rules.Candidate(c)
	}
	var out []registry.Refusal
	errs, _ := v.c.Validate(in)
	for _, e := range errs {
		out = append(out, registry.Refusal{Token: e.Token, Message: e.Message})
	}
	return out, nil
}

// doorVerifier lets the broker ask auth about a connection.
type doorVerifier struct{ v *auth.Verifier }

func (d doorVerifier) Verify(ctx context.Context, c broker.Claim) (broker.Proof, error) {
	p, err := d.v.Verify(ctx, auth.Claim{Tenant: c.Tenant, Type: c.Type, ID: c.ID, Secret: c.Secret, Door: true,
		Presented: c.Type == broker.X509Certificate})
	if err != nil {
		return broker.Proof{}, err
	}
	return broker.Proof{Binding: model.Binding{Tenant: p.Tenant, TenantID: p.TenantID, Device: p.Device, DeviceID: p.DeviceID, Credential: p.CredentialID},
		Expires: p.Expires}, nil
}

// verifyBody lets the gate ask auth about the credential in a body.
func (in *Instance) verifyBody(ctx context.Context, tenant string, c ingest.Credential) (ingest.Proof, model.Verdict, error) {
	p, err := in.verifier.Verify(ctx, auth.Claim{Tenant: tenant, Type: c.Type, ID: c.ID, Secret: c.Secret, Door: true})
	if err != nil {
		verdict, refused := auth.VerdictOf(err)
		if !refused {
			return ingest.Proof{}, model.VerdictBad, err
		}
		return ingest.Proof{}, verdict, nil
	}
	return ingest.Proof{Credential: p.CredentialID, DeviceID: p.DeviceID, Device: p.Device}, model.VerdictOK, nil
}

// presences lets the broker read what is stored of its devices' presence.
type presences struct{ in *Instance }

func (p presences) PresenceSession(ctx context.Context, device int64) (session uint64, err error) {
	err = p.in.store.Read(ctx, func(tx store.Tx) error {
		d, err := store.GetDeviceState(tx, device)
		if err == nil && d != nil {
			session = d.Session
		}
		return err
	})
	return session, err
}

func (p presences) AssertedPresence(ctx context.Context, source string, after int64, limit int) ([]presence.Asserted, error) {
	var out []presence.Asserted
	err := p.in.store.Read(ctx, func(tx store.Tx) error {
		rows, err := store.AssertedStates(tx, source, after, limit)
		if err != nil {
			return err
		}
		for _, r := range rows {
			out = append(out, presence.Asserted{Binding: model.Binding{Tenant: p.in.govern.TokenOf(r.TenantID), TenantID: r.TenantID, Device: r.Token,
				DeviceID: r.DeviceID}, Session: r.Session, Connected: r.State == model.Connected})
		}
		return nil
	})
	return out, err
}

// errNoTenant is told to a command that names a tenant which does not exist.
func errNoTenant(tenant string) error {
	e := model.NotFound("tenant", tenant)
	e.Hint = fmt.Sprintf("make it with: weir tenant create %s", tenant)
	return e
}

// patience bounds what a command waits for.
const patience = 30 * time.Second
