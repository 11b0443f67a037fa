package govern

import (
	"context"
	"slices"
	"strings"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Tier is a named set of governance values that tenants share.
type Tier struct {
	store.Row
	Token        string  `store:"token,token" gql:"token"`
	Name         *string `store:"name,clear,max=128" gql:"name"`
	Description  *string `store:"description,clear,max=1024" gql:"description"`
	Config       *string `store:"config,clear,emptyclears,json,max=65536" gql:"config"` // see ParseTierConfig
	DisplayOrder int64   `store:"display_order" gql:"displayOrder"`
	Color        string  `store:"color,clear,oneof=|slate|gray|red|orange|amber|green|teal|sky|blue|violet|fuchsia|rose" gql:"color"`
}

// tierKind describes the tiers. A change of one is effective for its tenants with the commit.
func (g *Govern) tierKind(b entity.Base) *entity.Kind[Tier] {
	return entity.New(b, entity.Desc[Tier]{
		Kind:     "tenant tier",
		Type:     "TenantTier",
		Plural:   "tenantTiers",
		Site:     "tiers",
		Area:     area,
		Table:    "tenant_tiers",
		Instance: true,
		Order:    "display_order, token",
		Read:     mayRead,
		Write:    mayWrite,
		Valid:    (*Tier).valid,
		Check:    func(tx store.Tx, t *Tier, changed store.Changed) error { return t.check(tx, changed) },
		Changed: func(c *store.Change, old, t *Tier) error {
			if old != nil && t != nil {
				c.OnCommit(func() { g.index.setTier(t.ID, t.values()) })
			}
			return nil
		},
	})
}

// Colors are the colors of tiers.
func Colors() []string {
	return strings.Fields("slate gray red orange amber green teal sky blue violet fuchsia rose")
}

func (t *Tier) check(tx store.Tx, changed store.Changed) error {
	if changed.New && t.DisplayOrder == 0 { // a new tier goes last
		last, err := store.LastTierOrder(tx)
		if err != nil {
			return err
		}
		t.DisplayOrder = last + 1
	}
	return nil
}

func (t *Tier) valid() error {
	if t.Config == nil {
		return nil
	}
	if _, err := ParseTierConfig(*t.Config); err != nil {
		return err
	}
	if strings.Join(strings.Fields(*t.Config), "") == "{}" {
		t.Config = nil
	}
	return nil
}

// values are the tier's level of the cascade. What cannot be read is left to the next level.
func (t *Tier) values() Values {
	if t.Config == nil {
		return Values{}
	}
	v, err := ParseTierConfig(*t.Config)
	if err != nil {
		return Values{}
	}
	return v.usable()
}

// seededTiers are made at first start.
func seededTiers() []Tier {
	return []Tier{
		{Token: "gold", Name: new("Gold"), DisplayOrder: 1, Color: "amber", Config: new(`{"ingestMessagesPerSecond":2000,` +
			`"ingestBurst":4000,"outboundMessagesPerSecond":200,"outboundBurst":400,"shedPriority":90}`)},
		{Token: DefaultTier, Name: new("Silver"), DisplayOrder: 2, Color: "slate", Config: new(`{"shedPriority":60}`)},
		{Token: "bronze", Name: new("Bronze"), DisplayOrder: 3, Color: "orange", Config: new(`{"ingestMessagesPerSecond":250,` +
			`"ingestBurst":500,"outboundMessagesPerSecond":25,"outboundBurst":50,"shedPriority":30}`)},
	}
}

// TierCount is a tier with the number of tenants that have it.
type TierCount struct {
	*Tier
	Tenants int64 `gql:"tenantCount"`
}

// TierCounts lists the tiers in their order.
func (g *Govern) TierCounts(ctx context.Context, by *model.Principal) ([]TierCount, error) {
	if err := g.Tiers.MayRead(by); err != nil {
		return nil, err
	}
	return g.readTiers(ctx)
}

// TiersByID returns the tiers by row id without demanding an authority: for what a row refers to that the caller was let read.
func (g *Govern) TiersByID(ctx context.Context) (map[int64]TierCount, error) {
	all, err := g.readTiers(ctx)
	byID := make(map[int64]TierCount, len(all))
	for _, t := range all {
		byID[t.ID] = t
	}
	return byID, err
}

func (g *Govern) readTiers(ctx context.Context) (all []TierCount, err error) {
	err = store.Read(ctx, g.store, func(tx store.Tx) (err error) {
		all, err = g.countTiers(tx)
		return err
	})
	return all, err
}

func (g *Govern) countTiers(tx store.Tx) ([]TierCount, error) {
	rows, err := g.Tiers.Table.Select(tx, 0, "display_order, token")
	if err != nil {
		return nil, err
	}
	tenants, err := store.TenantsByTier(tx)
	if err != nil {
		return nil, err
	}
	all := make([]TierCount, len(rows))
	for i, t := range rows {
		all[i] = TierCount{t, tenants[t.ID]}
	}
	return all, nil
}

// ReorderTiers puts the tiers into the given order, which must name exactly those there are.
func (g *Govern) ReorderTiers(ctx context.Context, by *model.Principal, tokens []string) (all []TierCount, err error) {
	if err := g.Tiers.MayWrite(by); err != nil {
		return nil, err
	}
	err = g.writer.Mutate(ctx, by, func(ch *store.Change) error {
		rows, err := g.Tiers.Table.Select(ch, 0, "token")
		if err != nil {
			return err
		}
		// A tier that is not named would have no place.
		named := slices.Sorted(slices.Values(tokens))
		if !slices.EqualFunc(rows, named, func(t *Tier, token string) bool { return t.Token == token }) {
			return model.Invalid("orderedTokens", "must name each tier exactly once")
		}
		for _, t := range rows {
			// Save only those that move.
			place := int64(slices.Index(tokens, t.Token) + 1)
			if t.DisplayOrder == place {
				continue
			}
			t.DisplayOrder = place
			if err := g.Tiers.Table.Save(ch, t, "display_order"); err != nil {
				return err
			}
		}
		all, err = g.countTiers(ch)
		return err
	})
	return all, err
}
