package main

import (
	"context"
	"fmt"
	"math"

	"weir/operate"
)

// kept is what must be there.
type kept struct {
	readings int64
	sum      float64
	edges    int64 // of the first rule; not looked at when there are no rules
	rules    bool
	refusals bool // messages were refused, which is no fault
}

// verify waits until everything is applied and compares: as many readings, the same sum of values, as many edges of the
// rule as the values must have brought about, and a ledger without a gap.
func (in *instance) verify(ctx context.Context, want kept) error {
	if err := in.applied(ctx); err != nil {
		return err
	}
	var page struct {
		MeasurementEvents struct{ Pagination struct{ TotalRecords int64 } }
		Buckets           []struct {
			Sum   float64
			Count int64
		}
	}
	if err := in.query(ctx, "event-management", `{
		measurementEvents(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}
		buckets:bucketedMeasurements(criteria:{name:"temp",intervalSeconds:86400}){sum count}}`, nil, &page); err != nil {
		return err
	}
	if got := page.MeasurementEvents.Pagination.TotalRecords; got != want.readings {
		return fmt.Errorf("LOSS: %d readings were acknowledged, %d are there", want.readings, got)
	}
	var sum float64
	var count int64
	for _, b := range page.Buckets {
		sum += b.Sum
		count += b.Count
	}
	if count != want.readings || math.Abs(sum-want.sum) > 1e-10*math.Max(1, math.Abs(want.sum)) {
		return fmt.Errorf("LOSS: %d readings with the sum %.2f were acknowledged, the buckets hold %d with %.2f", want.readings, want.sum, count, sum)
	}
	if want.rules {
		if err := in.verifyEdges(ctx, want.edges); err != nil {
			return err
		}
	}
	return in.verifyLedger(ctx, want.refusals)
}

func (in *instance) verifyEdges(ctx context.Context, want int64) error {
	var health struct {
		RuleHealth []struct {
			RuleToken string
			FireCount int64
		}
	}
	if err := in.query(ctx, "event-processing", `{ruleHealth(profileToken:"p"){ruleToken fireCount}}`, nil, &health); err != nil {
		return err
	}
	for _, h := range health.RuleHealth {
		if h.RuleToken == "r0" && h.FireCount != want || h.RuleToken != "r0" && h.FireCount != 0 {
			return fmt.Errorf("rule %s fired %d times, %d expected", h.RuleToken, h.FireCount, want)
		}
	}
	return nil
}

func (in *instance) verifyLedger(ctx context.Context, refusals bool) error {
	l, err := operate.ShowLedger.Ask(ctx, in.client, operate.LedgerQuery{})
	if err != nil {
		return err
	}
	for _, e := range l.Lines {
		if e.Missing != 0 || len(e.Reasons) > 0 && !refusals {
			return fmt.Errorf("the ledger does not balance or something was turned away: %+v", e)
		}
	}
	return nil
}
