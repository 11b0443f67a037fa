package gql_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"weir/model"
	"weir/provision"
	"weir/store"
	"weir/store/entity"
)

// The tests over all kinds take from the descriptions what those say, so that a new kind is tried by being described. The
// tables by hand hold only what no description tells.

// described are the kinds of the device-management area; those that are referred to come first.
func described() []entity.Any {
	r, _ := provision.Describe()
	return r.Kinds.Area("device-management")
}

// seededByHand are the two rows of each kind that seedRequests makes. Every other kind has rows of its type's name.
var seededByHand = map[string][2]string{
	"DeviceType": {"t", "u"}, "DeviceProfile": {"p", "q"}, "MetricDefinition": {"m", ""}, "CommandDefinition": {"cmd", ""}, "DetectionRule": {"r", ""},
	"Device": {"d", "e"}, "DeviceCredential": {"c", "k"},
}

// seededRows are the tokens of two rows of a kind in a furnished tenant.
func seededRows(typ string) [2]string {
	if rows, ok := seededByHand[typ]; ok {
		return rows
	}
	return [2]string{typ + "-1", typ + "-2"}
}

// byTable returns the type whose rows a table holds.
func byTable(table string) string {
	kinds := described()
	return kinds[slices.IndexFunc(kinds, func(k entity.Any) bool { return k.Info().Table == table })].Info().Type
}

// values are two values of a field, as GraphQL has them.
func values(f store.Field) (first, second any) {
	switch {
	case f.Ref != "":
		rows := seededRows(byTable(f.Ref))
		return rows[1], rows[0]
	case f.JSON:
		return json3.first, json3.second
	case f.OneOf != nil:
		return f.OneOf[0], f.OneOf[1]
	case f.Type() == reflect.TypeFor[model.Micros]():
		return "2031-05-06T07:08:09.123456Z", "2032-01-01T00:00:00Z"
	}
	switch f.Type().Kind() {
	case reflect.Bool:
		return false, true
	case reflect.Int64, reflect.Int, reflect.Int32:
		return 60.0, 600.0
	case reflect.Float64:
		return 1.5, 2.25
	}
	return text3.first, text3.second
}

// nullsOf is what null does to a field.
func nullsOf(f store.Field) string {
	if f.Clear {
		return "clears"
	}
	return "refused"
}

// updatesOf is the contract of every field of a kind's update input.
func updatesOf(info *entity.Info) map[string]updateField {
	fields := map[string]updateField{}
	for _, f := range info.Fields {
		if f.Name == "" || f.Hidden || f.Immutable {
			continue
		}
		u := updateField{nulls: nullsOf(f), empty: f.EmptyClears}
		u.first, u.second = values(f)
		if f.Ref != "" {
			u.read = entity.Object(f) + ".token"
		}
		fields[f.Name] = u
	}
	maps.Copy(fields, updatesByHand[info.Type])
	return fields
}

type updateInput struct {
	token  string
	fields map[string]updateField
}

// updateInputs is the contract of every update input, by type.
func updateInputs() map[string]updateInput {
	all := map[string]updateInput{}
	for _, kind := range described() {
		if fields := updatesOf(kind.Info()); len(fields) > 0 { // else a row is never changed
			all[kind.Info().Type] = updateInput{seededRows(kind.Info().Type)[0], fields}
		}
	}
	return all
}

// createWith are the requests that make one more row of each kind, without the token.
func createWith() map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, kind := range described() {
		request := map[string]any{}
		for _, f := range kind.Info().Fields {
			if f.Required && !f.Token && !f.Hidden && f.Name != "" {
				_, request[f.Name] = values(f)
			}
		}
		maps.Copy(request, createByHand[kind.Info().Type])
		all[kind.Info().Type] = request
	}
	return all
}

var createByHand = map[string]map[string]any{
	"MetricDefinition":  {"metricKey": "fresh", "dataType": "INT"},
	"CommandDefinition": {"commandKey": "fresh"},
	"DetectionRule":     {"definition": hotRule},
	"DeviceCredential":  {"credentialType": "ACCESS_TOKEN", "credentialId": "fresh"},
	"EntityGroup":       {"memberType": "device", "membershipMode": "dynamic", "selector": `memberType == "device"`},
	"GeoFence":          {"geometry": squareAt(0)},

	"EntityRelationship": {"sourceType": "asset", "source": "Asset-1", "targetType": "group", "target": "EntityGroup-1"},
}

// squareAt is the geometry of a geofence of one degree, in its normal form.
func squareAt(lon int) string {
	return fmt.Sprintf(`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[%[1]d,0],[%[2]d,0],[%[2]d,1],[%[1]d,0]]]}}`, lon, lon+1)
}

// seedDescribed are the requests that make two rows of each kind that seedRequests does not make. Every text that may be
// null is mark, "" for none.
func seedDescribed(mark string) (requests []string) {
	for _, kind := range described() {
		info := kind.Info()
		if _, byHand := seededByHand[info.Type]; byHand {
			continue
		}
		request := createWith()[info.Type]
		for _, f := range info.Fields {
			if mark != "" && f.Clear && f.Ref == "" && !f.JSON && f.OneOf == nil && f.Type().Kind() == reflect.String {
				request[f.Name] = mark
			}
		}
		for _, token := range seededRows(info.Type) {
			requests = append(requests, fmt.Sprintf("mutation { create%s(request: %s) { token } }", info.Type, literal(with(request, "token", token))))
		}
	}
	return requests
}

// walkKinds are the rows of walkTable of the kinds, for which every kind has at least the operations that plain ones have.
func walkKinds() (reads, creates, updates, deletes []walkOp) {
	for _, kind := range described() {
		info := kind.Info()
		rows := seededRows(info.Type)
		request, stranger := with(createWith()[info.Type], "token", info.Type+"-new"), ""
		for _, f := range info.Fields {
			if f.Ref != "" && f.Required {
				stranger = fmt.Sprintf("!INVALID_INPUT %q", request[f.Name])
			}
		}
		reads = append(reads, lists(info.Plural, info.Type, walkRow(info.Type), info.Read[0])...)
		creates = append(creates, changes(info, "create", fmt.Sprintf("(request: %s)", literal(request)), stranger))
		fields := updatesOf(info)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if fields[name].first == text3.first { // any text
				updates = append(updates, changes(info, "update", fmt.Sprintf("(token: %q, request: {%s: %q})", walkRow(info.Type), name, "new"),
					fmt.Sprintf("!NOT_FOUND %q", walkRow(info.Type))))
				break
			}
		}
		if row, byHand := walkDeletes[info.Type]; byHand {
			rows[1] = row
		}
		verb := "delete"
		if info.Type == "EntityRelationship" {
			verb = "remove"
		}
		deletes = append(deletes, changes(info, verb, fmt.Sprintf("(token: %q)", rows[1]), "false"))
	}
	slices.Reverse(deletes)
	return reads, creates, updates, deletes
}

// walkRow is the row of a kind that the walk over the access looks at.
func walkRow(typ string) string {
	if typ == "DeviceCredential" {
		return "k"
	}
	return seededRows(typ)[0]
}

// walkDeletes are rows that furnishAcme makes to be deleted.
var walkDeletes = map[string]string{"DeviceCredential": "k", "DetectionRule": "r", "MetricDefinition": "m", "CommandDefinition": "cmd", "Device": "gone", "DeviceType": "u",
	"DeviceProfile": "q2"}

func changes(info *entity.Info, verb, args, stranger string) walkOp {
	needs := info.Write
	if verb == "delete" || verb == "remove" {
		needs = info.Delete
	}
	op := walkOp{kind: "mutation", name: verb + info.Type, needs: needs[0], args: args, stranger: stranger}
	if len(needs) > 1 {
		op.also = needs[1]
	}
	return op
}

// tables are those of the kinds.
func tables() (names []string) {
	for _, kind := range described() {
		names = append(names, kind.Info().Table)
	}
	return names
}

// pluralOf is the name of a type's reads.
func pluralOf(typ string) string {
	for _, kind := range described() {
		if kind.Info().Type == typ {
			return kind.Info().Plural
		}
	}
	return strings.ToLower(typ[:1]) + typ[1:] + "s"
}
