package web

import (
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"weir/auth"
	"weir/docs"
)

// Pages are written as Go values: text and attributes in them are escaped by their constructors. A template package would
// call methods by names that are known only at run time, and one such call makes the linker keep every exported method of
// every type, an eighth of the program.

// page is an HTML page below up, the relative way to /. head is what its <head> has besides the style of the setup.
func page(title, up string, head g.Node, body ...g.Node) g.Node {
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.Meta(h.Name("color-scheme"), h.Content("light dark")),
			h.TitleEl(g.Text(title)),
			h.Link(h.Rel("icon"), h.Href(up+"setup/setup.svg"), h.Type("image/svg+xml")),
			head,
		),
		h.Body(body...)))
}

// frontHead links the styles of the front.
func frontHead(up string) g.Node {
	return g.Group{
		h.Link(h.Rel("stylesheet"), h.Href(up+"setup/setup.css")),
		h.Link(h.Rel("stylesheet"), h.Href(up+"front.css")),
	}
}

func brand(up string) g.Node {
	return h.Header(h.P(h.Class("brand"), h.A(h.Href(up+"."), g.Text("Weir"))))
}

func foot(version string) g.Node { return h.Footer(h.P(g.Text("Weir " + version))) }

// table is a table that scrolls by itself where it is wider than the page.
func table(columns []string, rows ...g.Node) g.Node {
	return h.Div(h.Class("wide"), h.TabIndex("0"), h.Table(
		h.THead(h.Tr(g.Map(columns, func(c string) g.Node { return h.Th(h.Scope("col"), g.Text(c)) }))),
		h.TBody(rows...)))
}

func cells(texts ...string) g.Node {
	return h.Tr(g.Map(texts, func(t string) g.Node { return h.Td(g.Text(t)) }))
}

func code(text string) g.Node { return h.Code(g.Text(text)) }

// homePage is the page of /.
func homePage(p frontPage) g.Node {
	state, class := "Weir runs and is not ready: it starts, or it stops.", "state"
	if p.IsReady {
		state, class = "Weir runs and is ready.", "state good"
	}
	who := signInForm
	if p.Person != nil {
		who = signedIn
	}
	explorer := ""
	if p.DevTools {
		explorer = ", with the explorer"
	}
	var listeners []g.Node
	for _, l := range p.Listeners() {
		listeners = append(listeners, cells(l.Name, l.Address, l.Description))
	}
	return page("Weir", "", frontHead(""),
		h.Header(h.P(h.Class("brand"), g.Text("Weir"))),
		h.Main(
			h.H1(g.Text(p.Instance)),
			h.P(h.Class(class), g.Text(state)),
			who(p),
			h.H2(g.Text("Where to go on")),
			h.Ul(
				g.If(p.Console != nil, h.Li(h.A(h.Href("."), g.Text("Console")), g.Text(": devices, messages, alarms"))),
				h.Li(h.A(h.Href("docs/"), g.Text("Documentation")), g.Text(", of this version")),
				h.Li(h.A(h.Href("api"), g.Text("API")), g.Text(": the GraphQL areas and their schemas"+explorer)),
				h.Li(h.A(h.Href("healthz"), g.Text("/healthz")), g.Text(" and "), h.A(h.Href("readyz"), g.Text("/readyz")), g.Text(", for monitoring")),
			),
			h.H2(g.Text("Listeners")),
			table([]string{"Name", "Address", "What is served"}, listeners...),
		),
		foot(p.Version))
}

func signedIn(p frontPage) g.Node {
	role := ""
	if p.Person.Superuser {
		role = ", administrator of this instance"
	}
	return g.Group{
		h.H2(g.Text("Signed in")),
		h.P(h.Strong(g.Text(p.Person.Email)), g.Text(role+", until "+p.Person.Until+".")),
		g.If(len(p.Person.Memberships) > 0, h.Ul(g.Map(p.Person.Memberships, func(m auth.Membership) g.Node {
			text := "Tenant " + m.Tenant
			if len(m.Roles) > 0 {
				text += ": " + strings.Join(m.Roles, ", ")
			}
			return h.Li(g.Text(text))
		}))),
		lastFirings(p.Fired),
		h.Form(h.Method("post"), h.Action("sign-out"), h.Button(h.Type("submit"), h.Class("quiet"), g.Text("Sign out"))),
	}
}

func lastFirings(fired []Firing) g.Node {
	if len(fired) == 0 {
		return h.P(g.Text("No rule has fired yet. "), h.A(h.Href("docs/getting-started.md"), g.Text("The first ten minutes")), g.Text(" end with one that does."))
	}
	rows := make([]g.Node, len(fired))
	for i, f := range fired {
		rows[i] = cells(f.Time, f.Tenant, f.Device, f.Rule, f.Edge, f.Value)
	}
	return g.Group{
		h.H2(g.Text("What fired last")),
		table([]string{"Time", "Tenant", "Device", "Rule", "Edge", "Value"}, rows...),
		h.P(g.Text("All of it: "), code("weir firings")),
	}
}

func signInForm(p frontPage) g.Node {
	return g.Group{
		h.H2(g.Text("Sign in")),
		g.If(p.Plain, h.P(h.Class("warning"),
			g.Text("This page is not encrypted: the network between this browser and Weir can read the password. Open a TLS listener with "),
			code("weir cert"), g.Text(", or reach Weir through an SSH tunnel."))),
		h.Form(h.Method("post"), h.Action("sign-in"),
			g.If(p.Error != "", h.P(h.Class("error"), h.Role("alert"), g.Text(p.Error))),
			h.Div(h.Class("field"), h.Label(h.For("email"), g.Text("Email")),
				h.Input(h.ID("email"), h.Name("email"), h.Type("email"), h.AutoComplete("username"), g.Attr("autocapitalize", "none"),
					g.Attr("spellcheck", "false"), h.MaxLength("254"), h.Required(), h.Value(p.Email))),
			h.Div(h.Class("field"), h.Label(h.For("password"), g.Text("Password")),
				h.Input(h.ID("password"), h.Name("password"), h.Type("password"), h.AutoComplete("current-password"), h.Required())),
			h.Button(h.Type("submit"), g.Text("Sign in"))),
		h.P(g.Text("Forgotten: "), code("weir admin passwd"), g.Text(" on the machine itself gives a new password.")),
	}
}

// apiPage lists the areas.
func apiPage(p frontPage) g.Node {
	columns := []string{"Area", "Endpoint", "Schema"}
	tools := g.Group{g.Text("Introspection is off; the schema files are the reference. "), code("weir demo"), g.Text(" has the explorer.")}
	if p.DevTools {
		columns = append(columns, "Explorer")
		tools = g.Group{g.Text("Developer tools are on: introspection and the explorer are open.")}
	}
	rows := make([]g.Node, len(p.Areas))
	for i, a := range p.Areas {
		rows[i] = h.Tr(h.Td(g.Text(a.Name)), h.Td(g.Text(a.Endpoint())), h.Td(h.A(h.Href(a.SchemaPath()), g.Text(a.Name+".graphql"))),
			g.If(p.DevTools, h.Td(h.A(h.Href(a.ExplorerPath()), g.Text(a.Name+" explorer")))))
	}
	return page("API – Weir", "", frontHead(""), brand(""),
		h.Main(
			h.H1(g.Text("API")),
			h.P(g.Text("GraphQL, by POST, one endpoint for each area; subscriptions over a WebSocket at the same address. "),
				h.A(h.Href("docs/api.md"), g.Text("How to sign in and ask")), g.Text(". The same list for programs: "),
				h.A(h.Href("schema/index.json"), g.Text("/schema/index.json")), g.Text(".")),
			table(columns, rows...),
			h.P(tools),
		),
		foot(p.Version))
}

// docsPage is a page of the documentation. body is HTML: what it takes from elsewhere is escaped already. current is the
// path of the page, which the list of all pages marks; "" shows no list.
func docsPage(version, title, up string, body g.Node, current string, address func(docs.Page) string) g.Node {
	var all g.Node
	if current != "" {
		all = h.Nav(g.Attr("aria-label", "Pages"), h.H2(g.Text("All pages")), h.Ul(g.Map(docs.Pages(), func(p docs.Page) g.Node {
			if p.Path == current {
				return h.Li(h.Span(g.Attr("aria-current", "page"), g.Text(p.Title)))
			}
			return h.Li(h.A(h.Href(address(p)), g.Text(p.Title)))
		})))
	}
	return page(title+" – Weir", up, frontHead(up), h.Class("docs"), brand(up), h.Main(body), all, foot(version))
}
