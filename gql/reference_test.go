package gql_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"weir/alarm"
	"weir/internal/test/made"

	"weir/command"
	"weir/connectors"
	"weir/dashboard"
	"weir/gql"
	"weir/gql/admin"
	"weir/gql/delivery"
	"weir/gql/outbound"
	"weir/inference"
	"weir/model"
	"weir/provision"
)

const referencePage = "../docs/api.md"

// TestTheAPIReferenceNamesEveryOperation holds the table of authorities in docs/api.md against the resolvers; -update writes it.
func TestTheAPIReferenceNamesEveryOperation(t *testing.T) {
	t.Parallel()
	made.Part(t, referencePage, "authorities", authorityTable(t), "make generate")
}

// TestTheAPIReferenceSaysWhatADeleteDoes holds the table of deletes in docs/api.md against the descriptions; -update writes it. Each
// of its cells has a test, see TestEachCellOfTheTableOfDeletes in package registry.
func TestTheAPIReferenceSaysWhatADeleteDoes(t *testing.T) {
	t.Parallel()
	made.Part(t, referencePage, "deletes", deleteTable(), "make generate")
}

// goesBesides is what goes with a row and is no kind.
var goesBesides = map[string][]string{"Device": {"presence", "latest values", "the claim", "alarms"}}

// deleteTable lists what refuses the delete of a row of each kind, and what goes with it.
func deleteTable() string {
	r, _ := provision.Describe()
	var b strings.Builder
	b.WriteString("\n| what is deleted | refused while it is referred to by | goes with it |\n|---|---|---|\n")
	for _, kind := range slices.Concat(r.Kinds.All(), r.Keyed.All(), dashboard.Describe().All(), connectors.Describe().All()) {
		var refused, goes []string
		for _, o := range r.Kinds.All() {
			for _, ref := range o.Info().Refs() {
				switch {
				case ref.Ref != kind.Info().Table:
				case ref.Parent:
					goes = append(goes, o.Info().Kind+"s")
				default:
					refused = append(refused, article(o.Info().Kind))
				}
			}
		}
		if kind.Versions() != nil {
			goes = append(goes, "versions")
		}
		goes = append(goes, goesBesides[kind.Info().Type]...)
		fmt.Fprintf(&b, "| %s | %s | %s |\n", kind.Info().Kind, cell(refused), cell(goes))
	}
	return b.String() + "\n"
}

func cell(entries []string) string {
	if len(entries) == 0 {
		return "–"
	}
	return strings.ReplaceAll(strings.Join(entries, ", "), "a a", "an a")
}

// TestTheAPIReferenceExplainsEveryCode holds the table of codes against those that there are.
func TestTheAPIReferenceExplainsEveryCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- begin codes -->")
	table, _, _ := strings.Cut(rest, "<!-- end codes -->")
	all := []model.Code{model.CodeUnauthenticated, model.CodeForbidden, model.CodeInvalidInput, model.CodeNotFound, model.CodeConflict, model.CodeInUse,
		model.CodeUnsupported, model.CodeTooManyRootFields, model.CodeTooManyCredentials, model.CodeThrottled, model.CodeUnavailable,
		model.CodeIntrospectionDisabled, model.CodeLimitExceeded}
	for _, code := range all {
		if !strings.Contains(table, "| `"+string(code)+"` |") {
			t.Errorf("%s does not explain %s", referencePage, code)
		}
	}
	if n := strings.Count(table, "\n| `"); n != len(all) {
		t.Errorf("%s explains %d codes, there are %d", referencePage, n, len(all))
	}
}

// authorityTable lists the operations of all areas by what they demand.
func authorityTable(t *testing.T) string {
	t.Helper()
	s := gql.New(gql.Config{})
	gql.RegisterUser(s.Area("user-management", gql.TenantPlane), gql.UserDeps{})
	r, p := provision.Describe()
	devices := s.Area("device-management", gql.TenantPlane)
	gql.RegisterRegistry(devices, r, p)
	gql.RegisterAlarms(devices, alarm.New(alarm.TenantSettings{}, alarm.Deps{}), r)
	gql.RegisterSnippets(devices, r, nil)
	gql.RegisterTestEvents(devices, gql.MessageDeps{}, nil)
	gql.RegisterLwm2m(devices, r, nil)
	gql.RegisterArtifacts(devices, nil)
	gql.RegisterEvents(s.Area("event-management", gql.TenantPlane), gql.EventDeps{})
	gql.RegisterState(s.Area("device-state", gql.TenantPlane), gql.StateDeps{})
	gql.RegisterProcessing(s.Area("event-processing", gql.TenantPlane), gql.ProcessingDeps{})
	delivery.Register(s.Area(delivery.Area, gql.TenantPlane), command.New(command.Settings{}, command.Deps{}))
	s.Area(dashboard.Area, gql.TenantPlane).Entities(dashboard.Describe())
	outbound.Register(s.Area(outbound.Area, gql.TenantPlane), connectors.New(connectors.ConnectorSettings{}, connectors.Deps{}), gql.LetterDeps{})
	admin.Register(s.Area(admin.Area, gql.IdentityPlane), admin.Deps{})
	admin.RegisterSettings(s.Area(admin.SettingsArea, gql.IdentityPlane), admin.Deps{})
	gql.RegisterInference(s.Area("ai-inference", gql.TenantPlane), nil)
	admin.RegisterInference(s.Area(inference.AdminArea, gql.IdentityPlane), inference.New(inference.Settings{}, inference.Deps{}))
	if err := s.Build(); err != nil { // registers the verbs of the kinds
		t.Fatal(err)
	}
	byAccess := map[string]map[string][]string{}
	var order []string
	for _, o := range s.Operations() {
		if strings.HasPrefix(o.Name, "_") {
			continue // placeholders
		}
		who := demand(o)
		if byAccess[who] == nil {
			byAccess[who] = map[string][]string{}
			order = append(order, who)
		}
		byAccess[who][o.Area] = append(byAccess[who][o.Area], "`"+o.Name+"`")
	}
	slices.Sort(order)
	var b strings.Builder
	b.WriteString("\n| what the caller needs | area | operations |\n|---|---|---|\n")
	for _, who := range order {
		var areas []string
		for area := range byAccess[who] {
			areas = append(areas, area)
		}
		slices.Sort(areas)
		for _, area := range areas {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", who, area, strings.Join(byAccess[who][area], ", "))
		}
	}
	return b.String() + "\n"
}

// demand says what an operation needs of its caller.
func demand(o gql.Operation) string {
	switch as := o.Access.Authorities(); {
	case o.Access.Anonymous():
		return "nothing, not even a token"
	case len(as) == 0 && o.Plane == gql.IdentityPlane:
		return "any identity token with a system role"
	case len(as) == 0:
		return "any token of the tenant"
	default:
		names := make([]string, len(as))
		for i, one := range as {
			names[i] = "`" + string(one) + "`"
		}
		return strings.Join(names, " and ")
	}
}

// article puts the article before a noun.
func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}
