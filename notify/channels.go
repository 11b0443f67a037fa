package notify

import (
	"context"
	"errors"
	"fmt"

	"weir/model"
	"weir/notify/channel"
	"weir/store"
	"weir/store/entity"
)

// Channel is a way to people: a mail server, or a URL.
type Channel struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Type        string  `store:"channel_type,required,filter" gql:"channelType"`
	Config      *string `store:"config,clear,json,max=65536" gql:"config"`
	HasSecret   bool    `store:"has_secret,keep,hidden" gql:"hasSecret"`
	Enabled     bool    `store:"enabled,required,filter" gql:"enabled"`
	Metadata    *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (n *Notify) channels(b entity.Base) *entity.Kind[Channel] {
	return entity.New(b, entity.Desc[Channel]{
		Kind: "notification channel", Type: "NotificationChannel", Plural: "notificationChannels", Area: Area, Table: "notification_channels",
		Read: entity.Needs(model.NotifyRead), Write: entity.Needs(model.NotifyWrite),
		Rename:  entity.Always[Channel],
		Secret:  secretName,
		Prepare: n.prepareChannel,
		Valid:   (*Channel).valid,
		Ceiling: &entity.Ceiling{
			Key:  "limits.notification_channels_per_tenant",
			Rows: func() int64 { return n.limits.ChannelsPerTenant },
		},
		Changed: n.channelChanged,
	})
}

// prepareChannel refuses a secret that the type cannot send: the type of the patch, or else that of the channel.
func (n *Notify) prepareChannel(ctx context.Context, by *model.Principal, token string, p store.Patch, create bool) error {
	secret, _ := p["secret"].(string)
	typ, named := p["channelType"].(string)
	if secret == "" || create && !named { // a create without a type is refused for that
		return nil
	}
	if !named {
		var row *Channel
		err := store.Read(ctx, n.deps.Store, func(tx store.Tx) (err error) {
			row, err = n.Channels.Table.Get(tx, by.TenantID, token)
			return err
		})
		if row == nil || err != nil { // a channel that is not there is refused for that
			return err
		}
		typ = row.Type
	}
	return channel.CheckSecret(typ, secret)
}

// secretName is the name of a channel's secret: its id, so that a rename keeps it.
func secretName(c *Channel) store.SecretName {
	return store.SecretName{TenantID: c.TenantID, Scope: store.ScopeTenant, Name: fmt.Sprintf("channel/%d/secret", c.ID)}
}

func (c *Channel) config() string {
	if c.Config == nil {
		return "{}"
	}
	return *c.Config
}

// valid refuses what no secret could make right: whether there is one is only known when it is stored.
func (c *Channel) valid() error {
	err := channel.Check(c.Type, c.config(), true, c.Enabled)
	if err != nil && channel.Check(c.Type, c.config(), false, c.Enabled) == nil {
		return nil
	}
	return err
}

// channelChanged refuses a config that does not go with the secret, removes a secret that was made for another type, and keeps the rules that name a
// channel which is renamed.
func (n *Notify) channelChanged(c *store.Change, old, row *Channel) error {
	if row == nil {
		n.forget(c, old.TenantID)
		return nil
	}
	n.forget(c, row.TenantID)
	if old != nil && row.Type != old.Type {
		if err := n.dropSecret(c, row); err != nil {
			return err
		}
	}
	if err := channel.Check(row.Type, row.config(), row.HasSecret, row.Enabled); err != nil {
		return err
	}
	if old != nil && (row.Type != old.Type || row.Token != old.Token) {
		return n.rebind(c, old, row)
	}
	return nil
}

// dropSecret removes the secret of a channel unless the same change has set it.
func (n *Notify) dropSecret(c *store.Change, row *Channel) error {
	at, err := n.deps.Vault.ChangedAt(c, secretName(row))
	if err != nil || at == 0 || at == c.At {
		return err
	}
	if _, err := n.deps.Vault.Delete(c, secretName(row)); err != nil {
		return err
	}
	row.HasSecret = false
	return n.Channels.Table.Save(c, row, "has_secret")
}

// rebind lets the rules of a channel follow its name, and refuses another type for which their recipients will not do.
func (n *Notify) rebind(c *store.Change, old, row *Channel) error {
	policies, err := n.Policies.Table.Select(c, row.TenantID, "id")
	if err != nil {
		return err
	}
	for _, p := range policies {
		b, err := p.rules()
		if err != nil {
			return err
		}
		named := false
		for i := range b.Rules {
			r := &b.Rules[i]
			if r.Channel != row.ID {
				continue
			}
			named, r.Token = true, row.Token
			if _, err := channel.ParseRecipients(row.Type, r.recipients()); err != nil {
				return model.Invalid("channelType", "the recipients of a rule of the policy %q will not do: %v", p.Token, err)
			}
		}
		if !named || row.Token == old.Token {
			continue
		}
		if err := p.bind(b); err != nil {
			return err
		}
		if err := n.Policies.Table.Save(c, p, "rules", "bound"); err != nil {
			return err
		}
	}
	return nil
}

// below is a refusal of a part of what is at a path.
func below(path string, err error) error {
	if e, ok := errors.AsType[*model.Error](err); ok && e.Field != "" {
		return model.Invalid(path+"."+e.Field, "%s", e.Text())
	}
	return err
}
