package rules

// Candidate is a rule to be checked.
type Candidate struct {
	Token       string
	Definition  string
	GroupScoped bool
}

// ValidationError is the first reason for which a candidate is refused.
type ValidationError struct {
	Index   int // position in the list, from 0
	Token   string
	Message string // English, for the rule's author
}

// ValidationWarning is an advisory finding on a candidate that is accepted.
type ValidationWarning struct {
	Index int
	Token string
	Warning
}

// Validate decodes and compiles each candidate in the order of the list, without keeping anything. A candidate has one
// error, the first found, or any number of warnings. What the engine cannot run yet is an error: nothing is accepted
// that would then do nothing.
func (c *Compiler) Validate(candidates []Candidate) ([]ValidationError, []ValidationWarning) {
	var errs []ValidationError
	var warns []ValidationWarning
	for i, cand := range candidates {
		found, err := c.validate(cand)
		if err != nil {
			errs = append(errs, ValidationError{i, cand.Token, err.Error()})
			continue
		}
		for _, w := range found {
			warns = append(warns, ValidationWarning{i, cand.Token, w})
		}
	}
	return errs, warns
}

func (c *Compiler) validate(cand Candidate) ([]Warning, error) {
	def, err := Decode([]byte(cand.Definition))
	if err != nil {
		return nil, err
	}
	p, warnings, err := c.Compile(def, Options{GroupScoped: cand.GroupScoped})
	if err != nil {
		return nil, err
	}
	return warnings, p.Evaluable()
}
