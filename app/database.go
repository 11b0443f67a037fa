package app

import (
	"context"
	"errors"

	"weir/internal/rootkey"
	"weir/operate"
	"weir/store"
)

// database is the store and the vault of the secrets in it.
type database struct {
	*base
	db    storeDriver
	spare func(bytes int64) error // keeps space of the disk for deletes on a full one
	vault *store.Vault
}

// Start implements component.
func (d *database) Start(ctx, _ context.Context) (err error) {
	// Refuse a wrong directory before anything is made in it.
	if err := refuseEdge(d.cfg.DataDir); err != nil {
		return err
	}
	if err := checkSpoolPath(operate.SpoolPath(d.cfg.DataDir)); err != nil {
		return err
	}
	// A new database beside a log that holds records would lose them.
	if noDatabase(d.cfg.DataDir) {
		if err := orphaned(d.cfg.DataDir); err != nil {
			return err
		}
	}
	db, err := openStore(ctx, d.cfg.DataDir, storeOptions{CacheBytes: d.budget.of(storeCacheShare), Logger: d.log, Registerer: d.metrics})
	if err != nil {
		return err
	}
	d.db, d.spare = db, db.KeepSpare
	d.vault, err = openVault(ctx, d.db, operate.RootKeyPath(d.cfg), d.opt.Getenv("WEIR_ROOT_KEY"), func(warning string) { d.log.Warn(warning) })
	if err != nil {
		return errors.Join(err, d.db.Close())
	}
	return nil
}

// Stop implements component.
func (d *database) Stop(context.Context) error { return d.db.Close() }

// openVault reads the root key, makes it when nothing was ever sealed, and ties the store to it.
func openVault(ctx context.Context, st store.Store, path, env string, warn func(string)) (*store.Vault, error) {
	var sealedUnder string
	if err := st.Read(ctx, func(tx store.Tx) (err error) {
		sealedUnder, err = store.RootKeyID(tx)
		return err
	}); err != nil {
		return nil, err
	}
	// The store knows under which key its secrets were sealed, so a wrong key is noticed here.
	k, err := rootkey.Load(rootkey.Options{File: path, Env: env, SealedUnder: sealedUnder})
	if err != nil {
		return nil, err
	}
	for _, w := range k.Warnings {
		warn(w)
	}
	// Claim writes the id of the key the first time.
	v := store.NewVault(k.Key)
	return v, st.Write(ctx, store.Durable, v.Claim)
}
