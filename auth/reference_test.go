package auth

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"weir/model"
)

var update = flag.Bool("update", false, "write the table of roles in docs/api.md")

const referencePage = "../docs/api.md"

// TestTheAPIReferenceNamesWhatRolesCarry holds the table of roles in docs/api.md against the seeded roles and what every
// member holds; -update writes it.
func TestTheAPIReferenceNamesWhatRolesCarry(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin roles: made from package auth by make generate -->\n", "<!-- end roles -->"
	head, rest, ok := strings.Cut(string(page), begin)
	old, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has lost the lines between which it is made", referencePage)
	}
	made := roleTable()
	if *update {
		if err := os.WriteFile(referencePage, []byte(head+begin+made+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != made {
		t.Errorf("%s is not what the roles carry; make generate writes it:\n%s", referencePage, made)
	}
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
