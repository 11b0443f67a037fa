package config

import (
	"regexp"
)

// secretive is a key, right or mistyped, whose value may be a secret. What looks like one and is not loses its value in a
// message and no more.
var secretive = regexp.MustCompile(`(?i)([\w.-]*(?:secr|sect|pass|pasw|pwd|tok|cred|psk)[\w.-]*)["']?\s*:`)

// conceal leaves out of the lines that are shown what may be a secret, whatever is wrong with them: a mistyped key is not
// known to hold one, and what is wrong at a start or a reload is written to the log.
func (l *loader) conceal() {
	open := map[string]bool{}
	for _, k := range described(l.root) {
		for i, suffix := range []string{"", "_file", "_env", "_credential"} {
			if k.secret() == (i > 0) {
				open[k.name()+suffix] = true
			}
		}
	}
	for _, list := range [][]Problem{l.problems, l.warnings} {
		for i := range list {
			list[i].Source = concealed(list[i].Source, open)
		}
	}
}

// concealed cuts a line off after the first key that may hold a secret. Those in open are known to hold none.
func concealed(line string, open map[string]bool) string {
	for _, at := range secretive.FindAllStringSubmatchIndex(line, -1) {
		if key := line[at[2]:at[3]]; !open[key] {
			return line[:at[1]] + " …"
		}
	}
	return line
}
