package config

import (
	"regexp"
	"strings"
)

// shellPath is a path that only a shell would understand.
var shellPath = regexp.MustCompile(`(^|/)~(/|$)|\$(\{|[A-Za-z_])`)

// paths refuses paths that would need a shell: Weir would make a directory with the name ~.
func (l *loader) paths() {
	for _, k := range keysOf(l.root) {
		switch {
		case k.secret():
		case k.kind == fieldList && k.path == "site":
			for i := range k.value.Len() {
				l.path(k.path, k.value.Index(i).String())
			}
		case k.path == "backup.directory" || strings.HasSuffix(k.path, "_dir") || strings.HasSuffix(k.path, "_file"):
			l.path(k.path, k.value.String())
		}
	}
}

func (l *loader) path(key, path string) {
	if shellPath.MatchString(path) {
		l.complain(key, "write the whole path, such as /var/lib/weir", path+" is not expanded: ~ and variables are for a shell")
	}
}

// siteFilesExist reports site files that are not there, for a caller that wants to know what a start would meet.
func (l *loader) siteFilesExist() {
	if !l.src.Thorough || l.bad["site"] {
		return
	}
	for _, name := range l.config.Site {
		if _, err := l.src.Stat(name); err != nil {
			l.problems = append(l.problems, l.last("site").problem("site", false, "", name+": "+reasonOf(err)))
		}
	}
}
