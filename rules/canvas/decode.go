package canvas

import (
	"strconv"
	"strings"

	"weir/internal/jsonscan"
	"weir/rules"
	"weir/rules/strict"
)

// graph is a canvas on its way to a rule.
type graph struct {
	compiler *Compiler
	text     string
	profile  string

	nodes []*node
	byID  map[string]*node
	edges []*edge // without those that lack an end or stand twice

	found   []Diagnostic
	refused bool // one of them is an error

	checked int // bytes of expressions, with their computes

	condition  *node   // the only one
	actions    []*node // as the actions of the definition
	definition string
	program    *rules.Program
	wiring     Wiring
}

// node is a node of a canvas. Of what a config holds only the part of its type is set.
type node struct {
	id     string
	path   string    // in the document
	kind   *NodeType // nil: there is no such type
	config []byte
	sound  bool // the config was decoded without a fault

	source  *source
	rule    *rules.Definition // of a condition
	branch  *branch
	action  *rules.Action
	compute *compute

	in, out  []*edge
	computes []*node // that flow into the node, by name
}

type source struct{ scope, profile string }

// branch is a condition between the rule and its actions.
type branch struct {
	when  string
	guard string // when with its computes
}

// compute gives a name to an expression.
type compute struct{ name, expr string }

// edge connects an output with an input.
type edge struct {
	path     string
	from, to end
}

// end is where an edge begins or ends.
type end struct {
	text string // node:port
	node *node
	port Port
}

// incoming counts the edges that end at a port of the node, and returns the node from which the first of them comes.
func (n *node) incoming(port string) (count int, from *node) {
	for _, e := range n.in {
		if e.to.port.Name == port {
			if count++; count == 1 {
				from = e.from.node
			}
		}
	}
	return count, from
}

// refuse reports an error at a node, or at the canvas as a whole where there is none. field is the path below the node.
func (g *graph) refuse(n *node, field, format string, args ...any) {
	g.fault(n, strict.Refuse(field, format, args...))
}

// fault reports what a decoder or the rule compiler says about a field of a node.
func (g *graph) fault(n *node, e *strict.Error) { g.report(finding(n, e)) }

func finding(n *node, e *strict.Error) Diagnostic {
	bare := *e
	bare.Field = ""
	d := Diagnostic{Message: e.Error(), Reason: bare.Error(), Path: e.Field}
	if n == nil {
		return d
	}
	if d.Path = n.path; e.Field != "" {
		d.Path += "." + e.Field
	}
	if d.Node = n.id; n.id == "" { // it is found by its position
		d.Message = d.Path + ": " + d.Reason
	}
	return d
}

// read is the first step, and decodes the nodes and edges for those that follow.
func (g *graph) read() {
	if g.profile == "" {
		g.refuse(nil, "", "a profile is required: give the token of the profile that the canvas watches")
	}
	src := []byte(g.text)
	if err := strict.CheckText(src, "canvas", MaxText); err != nil {
		g.fault(nil, err)
		return
	}
	scan := jsonscan.New(src)
	if scan.Skip(); scan.Err() != nil {
		g.refuse(nil, "", "the canvas is refused: %v", scan.Err())
		return
	}
	var version []byte
	d := strict.New(src)
	d.Note(d.Object("", map[string]strict.Setter{
		"schemaVersion": d.Raw(&version),
		"nodes":         d.List(MaxNodes, "nodes", func(_ int, at string) *strict.Error { return g.readNode(d, at) }),
		"edges":         d.List(MaxEdges, "edges", func(_ int, at string) *strict.Error { return g.readEdge(d, at) }),
	}))
	for _, f := range d.Faults() {
		g.fault(nil, f)
	}
	if string(version) != strconv.Itoa(Version) {
		g.refuse(nil, "schemaVersion", "must be %d", Version)
	}
}

// readNode reads a node apart from its config, whose fields follow from its type. What is wrong with it is reported at the node.
func (g *graph) readNode(outer *strict.Decoder, path string) *strict.Error {
	n := &node{path: path, config: []byte("{}")}
	g.nodes = append(g.nodes, n)
	var raw []byte
	_ = outer.Raw(&raw)(path)
	var kind string
	d := strict.New(raw)
	d.Note(d.Object("", map[string]strict.Setter{
		"id":     d.Text(&n.id),
		"type":   d.Text(&kind),
		"config": d.Raw(&n.config),
		"ui": func(at string) *strict.Error {
			return d.Object(at, map[string]strict.Setter{"x": d.Float(new(*float64)), "y": d.Float(new(*float64))})
		},
	}))
	if len(n.id) > MaxID {
		d.Note(strict.Refuse("id", "is %d bytes long, at most %d are allowed", len(n.id), MaxID))
		n.id = ""
	}
	if n.id == "" && !d.Refused("id") {
		d.Note(strict.Refuse("id", "required"))
	}
	names := make([]string, len(g.compiler.types))
	for i := range g.compiler.types {
		if names[i] = g.compiler.types[i].Name; names[i] == kind {
			n.kind = &g.compiler.types[i]
		}
	}
	if n.kind == nil && !d.Refused("type") {
		d.Note(strict.Refuse("type", "%s is not one of %s", strict.Quote(kind), strings.Join(names, ", ")))
	}
	n.sound = len(d.Faults()) == 0
	for _, f := range d.Faults() {
		g.fault(n, f)
	}
	return nil
}

// readEdge reads the texts of an edge.
func (g *graph) readEdge(d *strict.Decoder, path string) *strict.Error {
	e := &edge{path: path}
	before := len(d.Faults())
	err := d.Object(path, map[string]strict.Setter{"from": d.Text(&e.from.text), "to": d.Text(&e.to.text)})
	if err == nil && len(d.Faults()) == before {
		g.edges = append(g.edges, e)
	}
	return err
}

// configs is the second step: ids are unique, and configs decode.
func (g *graph) configs() {
	for _, n := range g.nodes {
		if first, again := g.byID[n.id]; n.id != "" && again {
			g.refuse(n, "id", "%s is the id of %s already", strict.Quote(n.id), first.path)
		} else if n.id != "" {
			g.byID[n.id] = n
		}
		if n.kind == nil {
			continue
		}
		d := strict.New(n.config)
		d.Millis = true
		setters := map[string]strict.Setter{}
		for _, f := range n.kind.fields(n, d) {
			setters[f.name] = f.set
		}
		d.Note(d.Object("config", setters))
		if n.action != nil && len(d.Faults()) == 0 {
			d.Note(g.checkAction(n.action))
		}
		n.sound = n.sound && len(d.Faults()) == 0
		for _, f := range d.Faults() {
			g.fault(n, f)
		}
	}
}

// checkAction checks an action by itself, as the decoder of definitions does.
func (g *graph) checkAction(a *rules.Action) *strict.Error {
	if a.Type == "" {
		return strict.Refuse("config.action", "required: one of %s", strings.Join(strict.Texts(rules.ActionTypes()), ", "))
	}
	err := a.Check("")
	if err != nil {
		err.Field = "config." + strings.TrimPrefix(err.Field, string(a.Type)+".")
	}
	return err
}
