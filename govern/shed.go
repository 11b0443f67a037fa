package govern

// shedFactors are the remaining fractions of a tenant's ingest ceiling at each shedding level, by class: gold, silver, bronze,
// best effort.
var shedFactors = [4][4]float64{
	{1, 1, 1, 1},
	{1, 1, 1, 0.25},
	{1, 1, 0.25, 0.10},
	{1, 0.25, 0, 0},
}

// classOf returns the class of a shedPriority: 0 gold (80 and above), 1 silver, 2 bronze, 3 best effort (below 20).
func classOf(priority int64) int {
	switch {
	case priority >= 80:
		return 0
	case priority >= 50:
		return 1
	case priority >= 20:
		return 2
	}
	return 3
}

// shedFactor is the factor on the ingest ceiling of a tenant with that priority.
func shedFactor(level int, priority int64) float64 { return shedFactors[level][classOf(priority)] }
