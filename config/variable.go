package config

// EnvVar is a variable that Weir reads.
type EnvVar struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	Doc     string `json:"meaning"`
	Secret  bool   `json:"secret,omitempty"`
}

// Variables are those that set a key, in the order of the keys. A secret has one for each of its forms. In those of a member of a list
// of sections N is its number, from 0.
func Variables() []EnvVar {
	var out []EnvVar
	c := Default()
	for _, k := range described(ofConfig(&c)) {
		if k.kind == fieldSections {
			continue
		}
		v := EnvVar{Name: Variable(k.path), Default: text(k.value), Doc: k.doc(), Secret: k.secret()}
		if k.kind == fieldList {
			v.Doc += " Several with commas between."
		}
		if k.kind == fieldTexts {
			v.Doc += " Several such as name=text, with commas between."
		}
		out = append(out, v)
		if k.secret() {
			out = append(out,
				EnvVar{Name: v.Name + "_FILE", Doc: "The file that holds " + k.path + "."},
				EnvVar{Name: v.Name + "_ENV", Doc: "The variable that holds " + k.path + "."},
				EnvVar{Name: v.Name + "_CREDENTIAL", Doc: "The systemd credential that holds " + k.path + "."})
		}
	}
	return out
}

// OtherVariables are those that set no key.
func OtherVariables() []EnvVar {
	return []EnvVar{
		{Name: "WEIR_CONFIG", Doc: "The configuration file, or its directory, where --config is not given; empty: none, not even /etc/weir/weir.yaml."},
		{Name: "WEIR_ROOT_KEY", Doc: "The root key in base64, in place of its file.", Secret: true},
		{Name: "WEIR_GRAPHQL_DEV_TOOLS", Default: "false", Doc: "Introspection and the explorer of the API, for development."},
		{Name: "WEIR_GRAPHQL_MAX_BODY_BYTES", Default: "4194304", Doc: "Bytes of a request or of a message on a subscription."},
		{Name: "WEIR_GRAPHQL_MAX_QUERY_LENGTH", Default: "100000", Doc: "Bytes of the query text."},
		{Name: "WEIR_GRAPHQL_MAX_DEPTH", Default: "15", Doc: "Depth of a selection."},
		{Name: "WEIR_GRAPHQL_MAX_QUERY_ROOT_FIELDS", Default: "20", Doc: "Fields at the root of a query."},
		{Name: "WEIR_GRAPHQL_MAX_MUTATION_ROOT_FIELDS", Default: "5", Doc: "Fields at the root of a mutation."},
		{Name: "WEIR_GRAPHQL_MAX_SELECTIONS", Default: "2000", Doc: "Selections, fragments spread."},
		{Name: "WEIR_GRAPHQL_MAX_COST", Default: "500000", Doc: "Estimated cost of a request."},
		{Name: "WEIR_GRAPHQL_MAX_TIME", Default: "30s", Doc: "Time of a request, or of one item of a subscription."},
		{Name: "WEIR_GRAPHQL_MAX_CREDENTIAL_CHECKS", Default: "1", Doc: "Fields of a request that verify a password."},
	}
}
