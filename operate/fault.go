package operate

import (
	"errors"

	"weir/backup"
	"weir/internal/dirlock"
	"weir/internal/rootkey"
	"weir/site"
	"weir/spool"
	"weir/store"
)

// Fault is what kept a verb from being carried out, as far as it has a name.
type Fault int

// The faults.
const (
	Unnamed    Fault = iota
	NotRunning       // ErrNotRunning
	Locked           // another process owns the data directory
	NewerData        // a newer Weir has written it
	NoRootKey
	BadRootKey // malformed, or readable by others
	NoSpace
	InvalidSite
	NewerBackup
	ForeignBackup // no backup of Weir
	DamagedBackup
)

// FaultOf names an error.
func FaultOf(err error) Fault {
	if _, ok := errors.AsType[site.Problems](err); ok {
		return InvalidSite
	}
	if _, ok := errors.AsType[*rootkey.MissingError](err); ok {
		return NoRootKey
	}
	if _, ok := errors.AsType[*dirlock.LockedError](err); ok {
		return Locked
	}
	for _, known := range []struct {
		err   error
		fault Fault
	}{{backup.ErrVersion, NewerBackup}, {store.ErrVersion, NewerData}, {spool.ErrVersion, NewerData}, {ErrNotRunning, NotRunning},
		{rootkey.ErrMalformed, BadRootKey}, {rootkey.ErrExposed, BadRootKey}, {store.ErrFull, NoSpace},
		{backup.ErrForeign, ForeignBackup}, {backup.ErrDamaged, DamagedBackup}} {
		if errors.Is(err, known.err) {
			return known.fault
		}
	}
	return Unnamed
}
