package health

import (
	"context"
	"time"
)

// Pair is a certificate that listeners serve, or would.
type Pair struct {
	File                string
	NotBefore, NotAfter time.Time // zero when it could not be read
	Problem             string    // why the files as they are now cannot be served
}

// expiryWarning is how long before its end a certificate is worth a word: one that is renewed by itself is replaced a
// third of its life before.
const expiryWarning = 30 * 24 * time.Hour

// Certificate checks that listeners have a certificate that clients take.
func Certificate(pair func() Pair, now func() time.Time) Check {
	return Check{"certificate", func(context.Context) Finding {
		p, at := pair(), now()
		left := p.NotAfter.Sub(at)
		days := Count(int(left.Hours()/24), "day")
		switch {
		case p.Problem != "" && p.NotAfter.IsZero():
			return Fail("put both files in place, readable for the user that runs the instance", "it cannot be served: %s", p.Problem)
		case left <= 0:
			return Fail("renew it and put the files in place: they are read again by themselves", "%s has expired at %s: clients turn away", p.File, p.NotAfter.UTC().Format(time.RFC3339))
		case p.Problem != "":
			return Fail("put both files in place: they are read again by themselves; until then the one before is served, for "+days, "what the files hold now is not served: %s", p.Problem)
		case at.Before(p.NotBefore):
			return Fail("is the clock right? clients turn away until then", "%s is good only from %s", p.File, p.NotBefore.UTC().Format(time.RFC3339))
		case left < expiryWarning:
			return Warn("renew it and put the files in place: they are read again by themselves", "%s expires in %s, at %s", p.File, days, p.NotAfter.UTC().Format(time.RFC3339))
		}
		return Good("%s, good for %s", p.File, days)
	}}
}
