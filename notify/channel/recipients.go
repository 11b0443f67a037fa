package channel

import (
	"errors"
	"fmt"
	"net/mail"
	"strings"

	"weir/internal/guard"
	"weir/model"
	"weir/rules/strict"
)

// MaxRecipients is the maximum number of recipients of a rule.
const MaxRecipients = 50

// Bounds of an address: RFC 5321, section 4.5.3.1, and a name that fits into a line.
const (
	maxRecipient = 320
	maxLocal     = 64
	maxAddress   = 254
)

// ParseRecipients reads the recipients of a rule, a JSON array of strings; "" is an empty one. Those of mails are addresses, one each, and at least one is
// required. Other kinds take any texts: they are part of what is sent. The error has INVALID_INPUT and the path, such as recipients[1].
func ParseRecipients(typ, recipients string) ([]string, error) {
	k, err := mustKind(typ)
	if err != nil {
		return nil, err
	}
	var list []string
	if recipients != "" {
		list, err = strict.ReadTexts(recipients, "recipients", MaxRecipients, MaxRecipients*(maxRecipient*6+8))
		if wrong, ok := errors.AsType[*strict.Error](err); ok {
			if wrong.Field == "" {
				wrong.Field = "recipients"
			}
			return nil, model.Invalid(wrong.Field, "%s", reason(wrong))
		}
		if err != nil {
			return nil, err
		}
	}
	if len(list) == 0 && k.Recipients {
		return nil, model.Invalid("recipients", "at least one is required")
	}
	for i, text := range list {
		if err := checkRecipient(text, k.Recipients); err != nil {
			return nil, model.Invalid(fmt.Sprintf("recipients[%d]", i), "%v", err)
		}
	}
	return list, nil
}

func checkRecipient(text string, address bool) error {
	switch {
	case text == "":
		return errors.New("must not be empty")
	case len(text) > maxRecipient:
		return fmt.Errorf("has %d bytes, at most %d are allowed", len(text), maxRecipient)
	case address:
		_, err := parseAddress(text)
		return err
	}
	return noControls(text)
}

// parseAddress reads one address, with or without a name: ops@example.com or "Operations <ops@example.com>". The address itself is ASCII without quotes.
func parseAddress(text string) (*mail.Address, error) {
	if len(text) > maxRecipient {
		return nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(text), maxRecipient)
	}
	if err := noControls(text); err != nil {
		return nil, err
	}
	a, err := mail.ParseAddress(text)
	// Quotes, groups and comments are part of no address that people write.
	if err != nil || !strings.HasSuffix(text, "<"+a.Address+">") && text != a.Address {
		return nil, errors.New("must be one mail address, such as ops@example.com")
	}
	at := strings.LastIndexByte(a.Address, '@')
	local, domain := a.Address[:max(at, 0)], a.Address[at+1:]
	switch {
	case at < 0 || strings.ContainsFunc(local, notInAtom) || strings.HasPrefix(local, ".") || strings.HasSuffix(local, ".") || strings.Contains(local, ".."):
		return nil, errors.New("must have letters, digits and the usual signs of ASCII before the @, such as ops@example.com")
	case local == "" || len(local) > maxLocal || len(a.Address) > maxAddress:
		return nil, fmt.Errorf("must have an address of at most %d bytes, 1 to %d before the @", maxAddress, maxLocal)
	case strings.ContainsAny(domain, "[]:") || guard.CheckHost(domain) != nil:
		return nil, errors.New("must name a domain behind the @, such as ops@example.com, in its ASCII form (xn--)")
	}
	if err := noControls(a.Name); err != nil { // of an encoded name
		return nil, fmt.Errorf("its name %w", err)
	}
	return a, nil
}

// notInAtom reports characters that no local part without quotes has, RFC 5322, section 3.2.3.
func notInAtom(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("!#$%&'*+-/=?^_`{|}~.", r)
}
