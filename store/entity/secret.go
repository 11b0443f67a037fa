package entity

import (
	"maps"
	"unicode/utf8"

	"weir/model"
	"weir/store"
)

// Names of a secret in patches: of its value in requests, and of whether there is one in the row.
const (
	secretField    = "secret"
	hasSecretField = "hasSecret"
)

// MaxSecret is the longest secret of a row in bytes.
const MaxSecret = 4096

// apart takes the secret out of a patch; nil: the patch does not name it. What remains says whether the row has one.
func (k *Kind[T]) apart(p store.Patch) (rest store.Patch, secret *string, err error) {
	value, named := p[secretField]
	if k.desc.Secret == nil || !named {
		return p, nil, nil
	}
	text, ok := value.(string)
	switch {
	case !ok && value != nil:
		return nil, nil, model.Invalid(secretField, "must be a text")
	case len(text) > MaxSecret:
		return nil, nil, model.Invalid(secretField, "has more than %d bytes", MaxSecret)
	case !utf8.ValidString(text):
		return nil, nil, model.Invalid(secretField, "is no valid UTF-8")
	}
	rest = maps.Clone(p)
	delete(rest, secretField)
	rest[hasSecretField] = text != ""
	return rest, &text, nil
}

// keep puts the secret of a row into the vault, or removes it from there when it is empty.
func (k *Kind[T]) keep(c *store.Change, row *T, secret *string) error {
	switch {
	case secret == nil:
		return nil
	case *secret == "":
		return k.forget(c, row)
	}
	return k.vault.Put(c, k.desc.Secret(row), []byte(*secret))
}

// forget removes the secret of a row from the vault.
func (k *Kind[T]) forget(c *store.Change, row *T) error {
	if k.desc.Secret == nil {
		return nil
	}
	_, err := k.vault.Delete(c, k.desc.Secret(row))
	return err
}

// Reveal returns the secret of a row for its use; ok is false when it has none.
func (k *Kind[T]) Reveal(tx store.Tx, row *T) (secret string, ok bool, err error) {
	plain, ok, err := k.vault.Get(tx, k.desc.Secret(row))
	return string(plain), ok, err
}
