// Package entity is the life of an entity, written once: create, three-state update, rename, delete, reads by id and token,
// lists, the journal, and for documents draft, publish and rollback. A kind of entity is described in one file of the
// package that knows its rules; the API (gql), site files (site) and the tests over all kinds come from the description.
//
// # Adding a kind
//
// Three files:
//
//  1. A Go file with a struct and a Desc, and one line in the package's list of kinds (Registry.describe in the registry).
//     The tags of the struct's fields say what concerns one field: its column, its name in the API, what null does to it,
//     which values are allowed, what it refers to, and whether lists can be restricted to it. See store.Field for all of
//     them, and the example of New.
//  2. A migration with the table: id, tenant_id (unless the kind belongs to the instance), created_at, updated_at, then the
//     columns of the struct; unique over (tenant_id, token), and an index on (tenant_id, created_at DESC, token).
//  3. The schema of the area: the type, its CreateRequest, UpdateRequest, SearchCriteria and SearchResults, and the
//     operations that the kind shall have. gql registers what it finds there, and refuses to start when a name, a
//     nullability or a criterion is another than in the description.
//
// What the description determines:
//
//   - Authority. The verbs demand Read, Write and Delete of the principal themselves, for every caller. GraphQL refuses
//     early by the same description. Kind.Rows reads without authority, for operations that demand one of their own.
//   - References. A field with the option ref takes a token and holds a row id. The API shows the entity under the name
//     without "Token". While a row of another kind refers to a row, it cannot be deleted (IN_USE names the kind).
//   - Parts. A reference with the option parent makes the row a part of what it names: it goes with it, and site files and
//     the API show it there.
//   - Versions. With Desc.Versions the rows are drafts: the row and its parts. A publish freezes them as a body of its own
//     type; see Versions for where the effective version is noted.
//   - Metadata changes. Desc.Views names what resolution of readings must know of a change, from its offset in the log on.
//   - What only code can decide hangs on the hooks of Desc: Prepare, Admit, Valid, Check, Removing, Changed.
//
// # Transactions
//
// Each verb is one change (store.Change). Verbs that are called with the context of a change under way, Change.Context,
// are a part of it instead: a caller that opens a change calls the verbs of any kind, of any package, and all of it is committed
// or nothing is. What takes long (a password hash) is done before the change.
package entity
