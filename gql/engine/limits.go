package engine

import (
	"time"
)

// Limits bounds what one request and all of them together may cost. A zero or negative field takes its default: no
// setting removes a limit.
type Limits struct {
	QueryLength        int           // bytes of query text, 100,000
	Depth              int           // 15
	QueryRootFields    int           // response keys at the root of a query, 20
	MutationRootFields int           // of a mutation, 5
	Selections         int           // selections with fragments spread, 2,000; all operations of a document ten times that
	Cost               int           // 500,000
	Time               time.Duration // of one request or one item of a subscription, 30 s
	CredentialChecks   int           // 1
	ListArgument       int           // elements of a list in an argument, 1,000
	ResponseBytes      int           // 32 MiB

	CacheBytes  int64 // document cache of all areas together, estimated, 16 MiB
	ResultBytes int64 // of all answers that are put together or written at one time, 64 MiB
}

// WithDefaults returns the limits with the defaults for what is not set.
func (l Limits) WithDefaults() Limits {
	orDefault(&l.QueryLength, 100_000)
	orDefault(&l.Depth, 15)
	orDefault(&l.QueryRootFields, 20)
	orDefault(&l.MutationRootFields, 5)
	orDefault(&l.Selections, 2_000)
	orDefault(&l.Cost, 500_000)
	orDefault(&l.Time, 30*time.Second)
	orDefault(&l.CredentialChecks, 1)
	orDefault(&l.ListArgument, 1_000)
	orDefault(&l.ResponseBytes, 32<<20)
	orDefault(&l.CacheBytes, 16<<20)
	orDefault(&l.ResultBytes, 64<<20)
	return l
}

func orDefault[T int | int64 | time.Duration](field *T, def T) {
	if *field <= 0 {
		*field = def
	}
}
