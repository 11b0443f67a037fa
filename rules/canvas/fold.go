package canvas

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/rules"
	"weir/rules/strict"
)

// collect is step 7: which computes flow into which node, by name.
func (g *graph) collect() {
	for _, n := range g.nodes {
		for _, e := range n.in {
			if e.to.port.Name == portValue {
				n.computes = append(n.computes, e.from.node)
			}
		}
		slices.SortStableFunc(n.computes, func(a, b *node) int { return strings.Compare(a.compute.name, b.compute.name) })
		for i := 1; i < len(n.computes); i++ {
			if a, b := n.computes[i-1], n.computes[i]; a.compute.name == b.compute.name {
				g.refuse(n, "", "two values named %s flow into it: from %s and %s", a.compute.name, strict.Quote(a.id), strict.Quote(b.id))
			}
		}
	}
}

// branches is step 8: types and cost of each branch with its computes, wired or not.
func (g *graph) branches() {
	for _, n := range g.nodes {
		if n.branch == nil {
			continue
		}
		if strings.TrimSpace(n.branch.when) == "" {
			g.refuse(n, "config.when", "required")
			continue
		}
		scope := g.compiler.rules.Guard()
		folded, ok := g.folded(n, scope, "config.when", n.branch.when)
		if !ok {
			continue
		}
		if err := scope.Check(folded); err != nil {
			g.fault(n, within("config.when", err))
		}
		n.branch.guard = folded
	}
}

// fold is step 11: the condition has one source, and its computes become a part of its expression. A comparison has no place for them.
func (g *graph) fold() {
	n := g.condition
	if n == nil { // which was refused
		return
	}
	switch count, _ := n.incoming(portIn); {
	case count == 0:
		g.refuse(n, "", "nothing flows into input in: draw an edge from a source")
	case count > 1:
		g.refuse(n, "", "%d sources flow into input in, exactly one is allowed", count)
	}
	if len(n.computes) == 0 {
		return
	}
	when := &n.rule.When
	if when.CEL == "" {
		g.refuse(n, "config.when", "only an expression (cel) can read the value %s", n.computes[0].compute.name)
		return
	}
	if folded, ok := g.folded(n, g.compiler.rules.Leaf(), "config.when.cel", when.CEL); ok {
		when.CEL = folded
	}
}

// folded is an expression with the computes of its node. Each part is checked by itself first, and what is wrong with it is reported at the node
// from which it comes.
func (g *graph) folded(n *node, scope rules.Scope, field, body string) (string, bool) {
	text := foldText(n.computes, body)
	if size := utf8.RuneCountInString(text); size > rules.MaxExpression {
		g.refuse(n, field, "the expression has %d characters with its computes, at most %d are allowed", size, rules.MaxExpression)
		return "", false
	}
	if g.checked += len(text); g.checked > MaxExpressions {
		g.refuse(nil, "", "the expressions have more than %d bytes, each with the computes that flow into it", MaxExpressions)
		return "", false
	}
	for _, c := range n.computes {
		var err *strict.Error
		if scope, err = scope.Bind(c.compute.name, c.compute.expr); err != nil {
			g.fault(c, within("config.expr", err))
			return "", false
		}
	}
	if err := scope.Types(body); err != nil {
		g.fault(n, within(field, err))
		return "", false
	}
	return text, true
}

// foldText binds the values of computes around a body. All parts parse alone. The body stands on a line of its own, and a line ends after what may
// end in a comment.
func foldText(computes []*node, body string) string {
	if len(computes) == 0 {
		return body
	}
	var b strings.Builder
	for i, c := range computes {
		if i > 0 {
			b.WriteString(" ")
		}
		b.WriteString("cel.bind(" + c.compute.name + ", " + ended(c.compute.expr) + ",")
	}
	return b.String() + "\n" + body + "\n" + strings.Repeat(")", len(computes))
}

// all is the expression that holds where all parts do, each of which parses alone.
func all(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	joined := make([]string, len(parts))
	for i, p := range parts {
		joined[i] = "(" + ended(p) + ")"
	}
	return strings.Join(joined, " && ")
}

// ended is an expression behind which text may stand on the same line.
func ended(text string) string {
	if strings.Contains(text, "//") {
		return text + "\n"
	}
	return text
}

// actionPath is how an error of a definition names an action.
var actionPath = regexp.MustCompile(`actions\[([0-9]+)\]`)

// actionAt is the node of an action by its position in the definition.
func (g *graph) actionAt(position string) *node {
	if i, err := strconv.Atoi(position); err == nil && i < len(g.actions) {
		return g.actions[i]
	}
	return g.condition
}

// place is the node that an error of the definition concerns, and the error as it reads there.
func (g *graph) place(err *strict.Error) (*node, *strict.Error) {
	placed := *err
	placed.Reason = actionPath.ReplaceAllStringFunc(err.Reason, func(s string) string { return strict.Quote(g.actionAt(actionPath.FindStringSubmatch(s)[1]).id) })
	at := actionPath.FindStringSubmatchIndex(err.Field)
	if at == nil || at[0] != 0 {
		switch top := err.Top(); top {
		case "", "actions":
			placed.Field = ""
		default:
			placed.Field = "config." + inCanvas(top) + strings.TrimPrefix(err.Field, top)
		}
		return g.condition, &placed
	}
	n := g.actionAt(err.Field[at[2]:at[3]])
	switch rest := strings.TrimPrefix(err.Field[at[1]:], "."); rest {
	case "":
		placed.Field = ""
	case "guard":
		placed.Field, placed.Reason = "", "the branches before it, taken together: "+placed.Reason
	default:
		placed.Field = "config." + inCanvas(strings.TrimPrefix(rest, string(n.action.Type)+"."))
	}
	return n, &placed
}
