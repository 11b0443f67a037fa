package health

import (
	"context"
	"strings"
	"time"
)

// Pair is a certificate that listeners serve or would serve.
type Pair struct {
	File                string
	NotBefore, NotAfter time.Time // zero when it could not be read
	Problem             string    // the reason why the present files cannot be served
	Doubts              []string  // why clients that check it may refuse it
}

// expiryWarning is the time before the expiry at which the finding becomes a warning: automatic renewal replaces a
// certificate a third of its life before.
const expiryWarning = 30 * 24 * time.Hour

// Certificate checks that listeners have a certificate that clients accept.
func Certificate(pair func() Pair, now func() time.Time) Check {
	return Check{"certificate", func(context.Context) Finding {
		p, at := pair(), now()
		left := p.NotAfter.Sub(at)
		days := Count(int(left.Hours()/24), "day")
		switch {
		case p.Problem != "" && p.NotAfter.IsZero():
			return Fail("put both files in place, readable for the user that runs the instance", "it cannot be served: %s", p.Problem)
		case left <= 0:
			return Fail("renew it and put the files in place: they are read again automatically", "%s has expired at %s: clients refuse to connect", p.File, p.NotAfter.UTC().Format(time.RFC3339))
		case p.Problem != "":
			return Fail("put both files in place: they are read again automatically; until then the previous one is served, for "+days, "the present files are not served: %s", p.Problem)
		case at.Before(p.NotBefore):
			return Fail("check the clock; clients refuse to connect until then", "%s is good only from %s", p.File, p.NotBefore.UTC().Format(time.RFC3339))
		case left < expiryWarning:
			return Warn("renew it and put the files in place: they are read again automatically", "%s expires in %s, at %s", p.File, days, p.NotAfter.UTC().Format(time.RFC3339))
		case len(p.Doubts) > 0:
			return Warn("the file holds the certificate of the server first, then those between it and its CA, and the CA's own where it is private", "clients may refuse %s: %s", p.File, strings.Join(p.Doubts, "; "))
		}
		return Good("%s, good for %s", p.File, days)
	}}
}
