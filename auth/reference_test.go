package auth

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/made"

	"weir/model"
)

const referencePage = "../docs/api.md"

// TestTheAPIReferenceNamesWhatRolesCarry holds the table of roles in docs/api.md against the seeded roles and what every
// member holds; -update writes it.
func TestTheAPIReferenceNamesWhatRolesCarry(t *testing.T) {
	t.Parallel()
	made.Part(t, referencePage, "roles", roleTable(), "make generate")
}

func roleTable() string {
	var b strings.Builder
	b.WriteString("\n| who | scope | authorities |\n|---|---|---|\n")
	fmt.Fprintf(&b, "| **every member of a tenant, whatever its roles** | tenant | %s |\n", listed(viewerBaseline))
	for _, r := range seededRoles() {
		fmt.Fprintf(&b, "| role `%s` | %s | %s |\n", r.Token, r.Scope, listed(r.grant().authorities))
	}
	fmt.Fprintf(&b, "\nAuthorities that a role of scope tenant may carry: %s.\n\nAuthorities that a role of scope system may carry: %s.\n\n",
		listed(model.Authorities(model.TierTenant)), listed(model.Authorities(model.TierSystem)))
	return b.String()
}

// listed writes authorities in their order by name.
func listed(as []model.Authority) string {
	names := make([]string, len(as))
	for i, a := range as {
		names[i] = "`" + string(a) + "`"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
