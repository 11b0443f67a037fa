package engine

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
)

func TestFloatsAreWrittenAsEncodingJSONDoes(t *testing.T) {
	t.Parallel()
	all := []float64{0, math.Copysign(0, -1), 1, -1.5, 1e-6, math.Nextafter(1e-6, 0), 1e21, math.Nextafter(1e21, 0), -1e21, 1e-7, 5e-324, math.MaxFloat64, 0.1, 1e20}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		all = append(all, math.Float64frombits(r.Uint64()), math.Ldexp(r.Float64()-0.5, r.IntN(120)-40), float64(r.Int64N(100_000))/100)
	}
	for _, f := range all {
		want, err := json.Marshal(f)
		if err != nil { // no number of JSON
			want = []byte("null")
		}
		if got := appendFloat(nil, f); string(got) != string(want) {
			t.Errorf("%b: %s, not %s", f, got, want)
		}
	}
}
