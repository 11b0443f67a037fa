// Package erase removes what a deleted tenant has left in the database, a few rows at a time, and keeps the journal of it.
//
//	tables.go   the tables that hold rows of a tenant, and how its rows are found in each
//	rows.go     the rows that are found next, and their removal
//	view.go     the rows of the metadata view, which name their tenant in several ways
//	journal.go  deletions: how far each has come
package erase

import (
	"encoding/json"
	"slices"

	"weir/model"
	"weir/store"
)

// Tenant is a tenant that is deleted, by both of its names.
type Tenant struct {
	ID    int64
	Token string
	Epoch model.Micros // when it was deleted
}

// Part is a part of what a tenant has. An erase is complete in each of them.
type Part string

// The parts.
const (
	Registry  Part = "registry"  // entities, sign-in sessions, secrets, the journal of the tenant, the metadata view
	Events    Part = "events"    // readings, locations, alerts, dead letters, the ledger
	State     Part = "state"     // what is last known of devices, presence, activity
	Detection Part = "detection" // detections and the state of rules
	Log       Part = "log"       // records of the log
	Blobs     Part = "blobs"     // free pages of the database and its write-ahead log
)

// Parts are all of them, in the order in which they are shown.
var Parts = []Part{Registry, Events, State, Detection, Log, Blobs}

// table says which rows of a table belong to a tenant.
type table struct {
	name string
	part Part
	key  []string // primary key
	// where is the condition of the tenant's rows; each ? of it is the row id, or the token where that is set.
	where string
	token bool
	// find finds the rows of a table for which no condition will do; nil: where does.
	find func(tx store.Tx, t Tenant, limit int) ([][]any, error)
}

const ofTenant = "tenant_id = ?"

func rows(part Part, name string, key ...string) table {
	if len(key) == 0 {
		key = []string{"id"}
	}
	return table{name: name, part: part, key: key, where: ofTenant}
}

func (t table) when(where string) table {
	t.where = where
	return t
}

// tables are in the order in which they are emptied: what names the tenant by way of another table comes before that table, and
// what refers to rows comes before these.
var tables = []table{
	{name: "view_rows", part: Registry, key: []string{"kind", "key", "from_offset"}, find: findViewRows}, // before device_types and audit_events

	rows(State, "latest_measurements", "series").when("series IN (SELECT id FROM series WHERE tenant_id = ?)"),
	rows(State, "latest_locations", "device_id"),
	rows(State, "device_states", "device_id"),

	{name: "sparkplug_nodes", part: State, key: []string{"id"}, where: "tenant = ?", token: true},

	rows(Events, "series_chunks"),
	rows(Events, "series_blocks"),
	rows(Events, "series"),
	rows(Events, "row_events"),
	rows(Events, "anchor_set_members", "tenant_id", "type", "token", "set_id"),
	rows(Events, "anchor_sets"),
	{name: "dead_letters", part: Events, key: []string{"id"}, where: "tenant = ?", token: true},
	{name: "dead_letters", part: Events, key: []string{"id"}, find: findStrayLetters},
	{name: "ledger", part: Events, key: []string{"tenant", "hour", "source", "door", "heading", "reason"}, where: "tenant = ?", token: true},

	rows(Detection, "edges"),
	rows(Detection, "edge_blocks"),
	rows(Detection, "rule_fires", "tenant_id", "rule"),
	rows(Detection, "rule_pages", "page", "gen"),
	rows(Detection, "rule_snapshot_parts", "gen", "tenant_id", "profile"),
	rows(Detection, "alarm_contributors", "alarm_id", "rule"),
	rows(Detection, "alarms"),
	rows(Detection, "alarm_events"),
	rows(Detection, "outbox"),
	rows(Detection, "listening_spans"),

	rows(Registry, "commands"),
	rows(Registry, "command_batches"),
	rows(Registry, "command_counts", "tenant_id", "state"),
	rows(Registry, "attribute_keys_in_use", "tenant_id", "key"),
	rows(Registry, "attributes"),
	rows(Registry, "geofence_sets"),
	rows(Registry, "geofences"),
	rows(Registry, "entity_group_versions"),
	rows(Registry, "entity_relationships"),
	rows(Registry, "entity_relationship_types"),
	rows(Registry, "edges_of_sites"),
	rows(Registry, "edge_installs", "device_id", "install"),
	rows(Detection, "site_firings", "log_offset", "n"),
	rows(Registry, "entity_groups"),
	rows(Registry, "facet_keys"),
	rows(Registry, "dashboard_versions"),
	rows(Registry, "dashboards"),
	rows(Registry, "connector_versions"),
	rows(Registry, "connectors"),
	rows(Registry, "http_secrets"),
	rows(Detection, "notification_states"),
	rows(Registry, "notification_mutes"),
	rows(Registry, "notification_policies"),
	rows(Registry, "notification_channels"),
	rows(Registry, "provisioning_profiles"),
	rows(Registry, "device_claims"),
	rows(Registry, "lwm2m_firmware", "device_id"),
	rows(Registry, "lwm2m_minted", "credential_id"),
	rows(Registry, "artifact_parts", "body", "n"),
	rows(Registry, "artifacts"),
	rows(Registry, "lwm2m_observations", "device_id", "token"),
	rows(Registry, "lwm2m_sessions", "device_id"),
	rows(Registry, "lwm2m_registrations", "device_id"),
	rows(Registry, "device_credentials"),
	rows(Registry, "devices"),
	rows(Registry, "device_types"),
	rows(Registry, "command_definitions"),
	rows(Registry, "detection_rules"),
	rows(Registry, "metric_definitions"),
	rows(Registry, "device_profile_versions"),
	rows(Registry, "device_profiles"),
	rows(Registry, "assets"),
	rows(Registry, "asset_types"),
	rows(Registry, "customers"),
	rows(Registry, "customer_types"),
	rows(Registry, "areas"),
	rows(Registry, "area_types"),
	rows(Registry, "device_counts", "tenant_id"),
	rows(Registry, "row_counts", "tenant_id", "name"),
	rows(Registry, "tenant_looks"),
	rows(Registry, "refresh_sessions").when("entered = ?"),
	rows(Registry, "membership_roles", "membership_id", "role_id").when("membership_id IN (SELECT id FROM memberships WHERE tenant_id = ?)"),
	rows(Registry, "memberships"),
	rows(Registry, "ai_function_models", "tenant_id", "function"),
	rows(Registry, "ai_tenant_grants", "tenant_id", "provider_id"),
	rows(Registry, "secrets"),
	rows(Registry, "audit_events"),
}

// Kept are the tables that are not looked through, with the reason; those of the journal name the tenant on purpose.
var Kept = map[string]string{
	"schema_migrations":     "of the instance",
	"meta":                  "figures of the instance; what the rows of the tenant take is removed with its row",
	"control":               "changes on their way into the log: a row is gone when its record is in the log",
	"tenants":               "the row of the tenant goes last, it has no name or values any more; the others are of other tenants",
	"tenant_erasures":       "the journal of erases: the token that is reserved, who deleted it and when",
	"tenant_erasure_stores": "the same, by part",
	"tenant_tiers":          "of the instance",
	"roles":                 "of the instance",
	"identities":            "of the instance: people exist apart from their memberships, which were removed before the tenant",
	"identity_roles":        "of the instance",
	"signing_keys":          "of the instance",
	"oauth_clients":         "of the instance",
	"settings":              "of the instance",
	"ai_providers":          "of the instance: what a tenant may use of them is removed",
	"ai_tier_grants":        "of the instance",
	"caused_changes":        "of records after the checkpoint: gone with the checkpoint that the erase asks for",
	"series_head":           "one row: the checkpoint",
	"rule_snapshots":        "checkpoints of the instance",
	"edge_progress":         "one row: the newest detection, and up to where actions are known",
	"ledger_gaps":           "spans of time of the instance",
	"seen_pages":            "pages that tenants share: altIds are taken out one by one (ingest.EraseAltIDs), MQTT clients leave with the checkpoint of the erase; hashes of altIds say nothing and end with ingest.dedupe_window",
}

// Tables returns the names of the tables that are looked through: those of some parts, or of all where none is named.
func Tables(of ...Part) (names []string) {
	for _, t := range tables {
		if (len(of) == 0 || slices.Contains(of, t.part)) && !slices.Contains(names, t.name) {
			names = append(names, t.name)
		}
	}
	return names
}

// findStrayLetters finds messages that named the tenant before it was deleted without being counted as its own: they are in the
// rejected-payload buffer, which is small. What is sent under the name of a deleted tenant belongs to its sender.
func findStrayLetters(tx store.Tx, t Tenant, limit int) (found [][]any, err error) {
	rows, err := tx.Query(`SELECT id, record FROM dead_letters WHERE tenant = '' AND record IS NOT NULL AND log_offset > 0 AND occurred <= ?`, int64(t.Epoch))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() && len(found) < limit {
		var id int64
		var body []byte
		if err := rows.Scan(&id, &body); err != nil {
			return nil, err
		}
		if r, err := model.DecodeRecord(body); err == nil && r.Tenant == t.Token {
			found = append(found, []any{id})
		}
	}
	return found, rows.Err()
}

// jsonTenant is the tenant that the body of a view row names, by token or by row id.
type jsonTenant struct {
	Tenant json.RawMessage `json:"tenant"`
}

func (j jsonTenant) is(t Tenant) bool {
	var token string
	var id int64
	return json.Unmarshal(j.Tenant, &token) == nil && token == t.Token || json.Unmarshal(j.Tenant, &id) == nil && id == t.ID
}
