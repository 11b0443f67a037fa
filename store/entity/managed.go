package entity

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"weir/model"
	"weir/store"
)

// managedColumn holds who manages a row: a Weir above, by the name of the edge that this instance is there. Kinds that have it are guarded, and
// with them what is a part of their rows.
const managedColumn = "managed_by"

func isManagedBy(f store.Field) bool { return f.Column == managedColumn }

type managing struct{}

// Managing returns a context in which managed rows may be changed: by who follows what the Weir above says.
func Managing(ctx context.Context) context.Context { return context.WithValue(ctx, managing{}, true) }

// guard refuses a change of a row that is managed, or a part of one that is.
func (k *Kind[T]) guard(c *store.Change, row *T) error {
	if k.guards == nil || !k.guards() || c.Context().Value(managing{}) != nil {
		return nil
	}
	kind, token, by := k.info.Kind, k.Table.Token(row), ""
	if k.managed {
		by, _ = k.Table.Value(row, managedColumn).(string)
	} else if whole := k.links.managed; whole != nil {
		id := k.Table.Value(row, k.info.Parent.Column)
		var of sql.NullString
		err := c.QueryRow(`SELECT token, `+managedColumn+` FROM `+whole.Table+` WHERE id = ?`, id).Scan(&token, &of)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		kind, by = whole.Kind, of.String
	}
	if by == "" {
		return nil
	}
	return &model.Error{Code: model.CodeConflict, Kind: kind, Token: token, Message: fmt.Sprintf("conflict: the %s %q is managed by the Weir above, as its edge %q", kind, token, by),
		Hint: "change it there; with edge.uplink.sync: false nothing is managed"}
}
