package broker

import "strings"

// sharePrefix begins the filter of a shared subscription, $share/{group}/{filter} (section 4.8.2).
const sharePrefix = "$share/"

// topicTree holds subscriptions and retained messages by the levels of their filters and names. A filter is stored with its
// wildcards as they are written; no topic name contains any, so the two never meet.
type topicTree struct {
	root  topicNode
	nodes int // below the root
}

// topicNode is one level of a filter or a name.
type topicNode struct {
	parent   *topicNode
	level    string
	children map[string]*topicNode
	subs     map[*session]*subscription
	groups   map[string]*shareGroup
	retained *message
}

// subscription is what a client asked for with one filter (section 3.8.3.1).
type subscription struct {
	session     *session
	at          *topicNode
	group       string // of a shared one, else ""
	qos         byte
	noLocal     bool
	asPublished bool   // the retain flag is kept
	id          uint32 // subscription identifier, 0 for none
}

// shareGroup is the members of a shared subscription, which take turns.
type shareGroup struct {
	members []*subscription
	next    int
}

// find returns the node of a filter or a name. With create it is made when it is not there.
func (t *topicTree) find(name string, create bool) *topicNode {
	n := &t.root
	for level := range strings.SplitSeq(name, "/") {
		child := n.children[level]
		if child == nil {
			if !create {
				return nil
			}
			child = &topicNode{parent: n, level: level}
			if n.children == nil {
				n.children = map[string]*topicNode{}
			}
			n.children[level] = child
			t.nodes++
		}
		n = child
	}
	return n
}

// prune removes a node that holds nothing any more, and those above that were only there for it.
func (t *topicTree) prune(n *topicNode) {
	for n.parent != nil && len(n.children) == 0 && len(n.subs) == 0 && len(n.groups) == 0 && n.retained == nil {
		delete(n.parent.children, n.level)
		t.nodes--
		n = n.parent
	}
}

// subscribe stores a subscription at its filter; it replaces the one that the client had there.
func (t *topicTree) subscribe(filter string, s *subscription) {
	s.at = t.find(filter, true)
	if s.group == "" {
		if s.at.subs == nil {
			s.at.subs = map[*session]*subscription{}
		}
		s.at.subs[s.session] = s
		return
	}
	if s.at.groups == nil {
		s.at.groups = map[string]*shareGroup{}
	}
	g := s.at.groups[s.group]
	if g == nil {
		g = &shareGroup{}
		s.at.groups[s.group] = g
	}
	for i, m := range g.members {
		if m.session == s.session {
			g.members[i] = s
			return
		}
	}
	g.members = append(g.members, s)
}

func (t *topicTree) unsubscribe(s *subscription) {
	if g := s.at.groups[s.group]; s.group != "" && g != nil {
		for i, m := range g.members {
			if m.session == s.session {
				g.members = append(g.members[:i:i], g.members[i+1:]...)
				break
			}
		}
		if len(g.members) == 0 {
			delete(s.at.groups, s.group)
		}
	} else {
		delete(s.at.subs, s.session)
	}
	t.prune(s.at)
}

// match visits the node of every filter that a topic name matches (section 4.7). Those that begin with a wildcard do not
// match a name that begins with $ (MQTT-4.7.2-1).
func (t *topicTree) match(topic string, visit func(*topicNode)) {
	t.root.match(strings.Split(topic, "/"), topic[0] == '$', visit)
}

func (n *topicNode) match(levels []string, reserved bool, visit func(*topicNode)) {
	if len(n.children) > 0 && !reserved {
		if all := n.children["#"]; all != nil { // it matches the level above as well
			visit(all)
		}
	}
	if len(levels) == 0 {
		visit(n)
		return
	}
	if len(n.children) == 0 {
		return
	}
	if child := n.children[levels[0]]; child != nil {
		child.match(levels[1:], false, visit)
	}
	if any := n.children["+"]; any != nil && !reserved {
		any.match(levels[1:], false, visit)
	}
}

// matchRetained visits the retained messages whose names a filter matches.
func (t *topicTree) matchRetained(filter string, visit func(*message)) {
	t.root.matchRetained(strings.Split(filter, "/"), visit)
}

func (n *topicNode) matchRetained(levels []string, visit func(*message)) {
	if len(levels) == 0 || levels[0] == "#" {
		if n.retained != nil {
			visit(n.retained)
		}
		if len(levels) == 0 {
			return
		}
	}
	if levels[0] != "#" && levels[0] != "+" {
		if child := n.children[levels[0]]; child != nil {
			child.matchRetained(levels[1:], visit)
		}
		return
	}
	rest := levels
	if levels[0] == "+" {
		rest = levels[1:]
	}
	for _, child := range n.children {
		if n.parent != nil || !strings.HasPrefix(child.level, "$") {
			child.matchRetained(rest, visit)
		}
	}
}

// walk visits a node and all below it.
func (n *topicNode) walk(visit func(*topicNode)) {
	visit(n)
	for _, child := range n.children {
		child.walk(visit)
	}
}

func levelsOf(name string) int { return 1 + strings.Count(name, "/") }
