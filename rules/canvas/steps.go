package canvas

import (
	"regexp"
	"slices"
	"strings"

	"weir/rules"
	"weir/rules/strict"
)

// phases are the steps of a compilation in their order. All steps of a phase run, so that an author sees everything at once that is wrong by
// itself; a phase runs only on what the one before has not refused.
var phases = [...][]func(*graph){
	{
		(*graph).read,    //  1: one object of version 1, for a profile
		(*graph).configs, //  2: ids, types and configs of the nodes
		(*graph).scopes,  //  3: the profile of the sources
		(*graph).names,   //  4: names and syntax of the computes
		(*graph).connect, //  5: the ends of the edges
		(*graph).cycles,  //  6
	},
	{
		(*graph).collect,    //  7: which computes flow into which node
		(*graph).branches,   //  8: types and cost of the branches
		(*graph).conditions, //  9: exactly one
		(*graph).signals,    // 10: exactly one into each branch and action
		(*graph).fold,       // 11: the source of the condition, and its computes
	},
	{
		(*graph).assemble, // 12: the actions and their guards
		(*graph).compile,  // 13: the rule compiler
	},
}

// scopes is step 3: every source, wired or not, watches the profile of the canvas.
func (g *graph) scopes() {
	for _, n := range g.nodes {
		if n.source == nil || !n.sound {
			continue
		}
		switch s := n.source; {
		case s.scope == "":
			g.refuse(n, "config.scope.kind", "required: %s", scopeProfile)
		case s.scope != scopeProfile:
			g.refuse(n, "config.scope.kind", "%s is not available yet: a source watches a %s", s.scope, scopeProfile)
		case s.profile == "":
			g.refuse(n, "config.scope.profileToken", "required")
		case g.profile != "" && s.profile != g.profile:
			g.refuse(n, "config.scope.profileToken", "the source watches profile %s, the canvas is one of profile %s", s.profile, strict.Quote(g.profile))
		}
	}
}

// identifier is the form of a compute's name.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// names is step 4: each compute by itself. An expression that parses alone cannot reach out of the place into which it is folded.
func (g *graph) names() {
	taken := append(g.compiler.rules.Variables(), "cel")
	scope := g.compiler.rules.Leaf()
	for _, n := range g.nodes {
		if n.compute == nil || !n.sound {
			continue
		}
		switch name := n.compute.name; {
		case !identifier.MatchString(name) || !scope.Identifier(name):
			g.refuse(n, "config.name", "%s is no name for a value: it must match %s and be no word of the expression language", strict.Quote(name), identifier)
		case slices.Contains(taken, name):
			g.refuse(n, "config.name", "%s has a meaning already; taken are %s", name, strings.Join(taken, ", "))
		}
		if strings.TrimSpace(n.compute.expr) == "" {
			g.refuse(n, "config.expr", "required")
		} else if err := scope.Parse(n.compute.expr); err != nil {
			g.fault(n, within("config.expr", err))
		}
	}
}

// within is an error of an expression as that of the field in which it stands.
func within(field string, err *strict.Error) *strict.Error {
	placed := *err
	placed.Field = field
	return &placed
}

// connect is step 5: both ends of an edge exist and carry the same, and no edge stands twice.
func (g *graph) connect() {
	known := map[[2]string]bool{}
	var sound []*edge
	for _, e := range g.edges {
		from := g.end(&e.from, e.path+".from", "output", func(t *NodeType) []Port { return t.Out })
		to := g.end(&e.to, e.path+".to", "input", func(t *NodeType) []Port { return t.In })
		if !from || !to {
			continue
		}
		switch a, b := e.from.port, e.to.port; {
		case a.Carries != b.Carries:
			g.refuse(e.to.node, "", "input %s takes a %s, but %s gives a %s", b.Name, b.Carries, e.from.text, a.Carries)
			continue
		case known[[2]string{e.from.text, e.to.text}]:
			g.refuse(e.to.node, "", "the edge from %s to %s is drawn twice", e.from.text, e.to.text)
			continue
		}
		known[[2]string{e.from.text, e.to.text}] = true
		e.from.node.out, e.to.node.in = append(e.from.node.out, e), append(e.to.node.in, e)
		sound = append(sound, e)
	}
	g.edges = sound
}

// end finds the node and port of an end. A dangling edge concerns the graph as a whole.
func (g *graph) end(x *end, path, what string, ports func(*NodeType) []Port) bool {
	i := strings.LastIndexByte(x.text, ':')
	if i < 0 {
		g.refuse(nil, path, "%s names no port: write node:port", strict.Quote(x.text))
		return false
	}
	id, name := x.text[:i], x.text[i+1:]
	if x.node = g.byID[id]; x.node == nil {
		g.refuse(nil, path, "the edge dangles: there is no node %s", strict.Quote(id))
		return false
	}
	if x.node.kind == nil { // which was refused for it
		return false
	}
	var names []string
	for _, p := range ports(x.node.kind) {
		if p.Name == name {
			x.port = p
			return true
		}
		names = append(names, p.Name)
	}
	there := "it has none"
	if len(names) > 0 {
		there = "it has " + strings.Join(names, ", ")
	}
	g.refuse(nil, path, "the edge dangles: %s %s has no %s %s (%s)", x.node.kind.Name, strict.Quote(id), what, strict.Quote(name), there)
	return false
}

// cycles is step 6. Only branches can form one.
func (g *graph) cycles() {
	const open, done = 1, 2
	state := map[*node]int{}
	var way []*node
	var visit func(*node) bool
	visit = func(n *node) bool {
		switch state[n] {
		case done:
			return false
		case open:
			ids := []string{}
			for _, x := range way[slices.Index(way, n):] {
				ids = append(ids, x.id)
			}
			g.refuse(nil, "", "the edges form a cycle: %s", strings.Join(append(ids, n.id), " → "))
			return true
		}
		state[n], way = open, append(way, n)
		for _, e := range n.out {
			if visit(e.to.node) {
				return true
			}
		}
		state[n], way = done, way[:len(way)-1]
		return false
	}
	_ = slices.ContainsFunc(g.nodes, visit) // the first is enough
}

// conditions is step 9: the canvas authors one rule.
func (g *graph) conditions() {
	var kinds, ids []string
	for _, n := range g.nodes {
		if n.rule != nil {
			g.condition, ids = n, append(ids, n.id)
		}
	}
	for i := range g.compiler.types {
		if t := &g.compiler.types[i]; t.Kind != "" {
			kinds = append(kinds, t.Name)
		}
	}
	switch {
	case len(ids) == 0:
		g.refuse(nil, "", "the canvas has no condition: add one node of type %s", strings.Join(kinds, ", "))
	case len(ids) > 1:
		g.condition = nil
		g.refuse(nil, "", "the canvas has %d conditions, exactly one is allowed: %s", len(ids), strings.Join(ids, ", "))
	}
}

// signals is step 10. A branch that leads nowhere does nothing, which is no error.
func (g *graph) signals() {
	for _, n := range g.nodes {
		if n.branch == nil && n.action == nil {
			continue
		}
		switch count, _ := n.incoming(portIn); {
		case count == 0:
			g.refuse(n, "", "nothing flows into input in: draw an edge from a condition or a branch")
		case count > 1:
			g.refuse(n, "", "%d edges end at input in, exactly one is allowed", count)
		}
		if n.branch != nil && len(n.out) == 0 {
			g.report(Diagnostic{Node: n.id, Severity: Warning, Message: "the branch leads nowhere: nothing depends on it", Path: n.path})
		}
	}
}

// assemble is step 12: the actions in the order of their ids, each with the branches on its way as its guard.
func (g *graph) assemble() {
	for _, n := range g.nodes {
		if n.action != nil {
			g.actions = append(g.actions, n)
		}
	}
	slices.SortFunc(g.actions, func(a, b *node) int { return strings.Compare(a.id, b.id) })
	_, from := g.condition.incoming(portIn)
	g.wiring = Wiring{Source: from.id, Condition: g.condition.id}
	for _, n := range g.actions {
		way := g.way(n)
		parts := make([]string, len(way))
		for i, b := range way {
			parts[i] = b.Guard
		}
		n.action.Guard = all(parts)
		g.condition.rule.Actions = append(g.condition.rule.Actions, *n.action)
		g.wiring.Actions = append(g.wiring.Actions, WiredAction{n.id, way})
	}
	g.warnOfTwins()
}

// way are the branches between the condition and an action.
func (g *graph) way(action *node) []WiredBranch {
	way := []WiredBranch{}
	_, n := action.incoming(portIn)
	for ; n.branch != nil; _, n = n.incoming(portIn) { // ends at the condition: each has one edge in, and there is no cycle
		way = append(way, WiredBranch{n.id, n.branch.guard})
	}
	slices.Reverse(way)
	return way
}

// warnOfTwins warns of commands that a device may get twice, by way of different branches.
func (g *graph) warnOfTwins() {
	for i, n := range g.actions {
		for _, before := range g.actions[:i] {
			a, b := before.action, n.action
			if a.SendCommand != nil && b.SendCommand != nil && *a.SendCommand == *b.SendCommand && a.Guard != b.Guard {
				g.report(Diagnostic{Node: n.id, Severity: Warning, Path: n.path,
					Message: "sends the same command as " + strict.Quote(before.id) + ": where the branches of both hold, the device gets it twice"})
			}
		}
	}
}

// compile is step 13. What the rule compiler says is reported at the node from which the part of the definition comes.
func (g *graph) compile() {
	g.definition = string(g.condition.rule.Canonical())
	program, warnings, faults := g.compiler.rules.Inspect(g.definition, rules.Options{})
	for _, f := range faults {
		n, placed := g.place(f)
		g.fault(n, placed)
	}
	for _, w := range warnings {
		n := g.condition
		if w.Code == rules.WarnValueNeverSet {
			n = g.actionAt(w.Params[0])
		}
		g.report(Diagnostic{Node: n.id, Severity: Warning, Code: w.Code, Params: w.Params, Message: w.Message, Path: n.path})
	}
	g.program = program
}
