package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"weir/internal/secrettext"
	"weir/internal/setting"
)

// credentialsDirectory is the variable by which systemd says where the credentials of a unit lie.
const credentialsDirectory = "CREDENTIALS_DIRECTORY"

// refer notes where a secret stands. It is read when all layers have spoken: what a later one replaces need not exist.
func (l *loader) refer(path string, f field, by given, text string) string {
	key := f.path(path)
	f.value.SetZero()
	delete(l.waiting, key)
	if text == "" {
		return "names nothing: leave the key out, or say where the secret is"
	}
	l.waiting[key] = reference{f, path, text, by}
	return ""
}

// secrets reads those that stand elsewhere.
func (l *loader) secrets() {
	for _, key := range slices.Sorted(maps.Keys(l.waiting)) {
		if l.bad[key] { // given twice, and which is meant is not known
			continue
		}
		r := l.waiting[key]
		if l.src.pasted {
			l.bad[key] = true // nothing is said of what is not looked at
			l.override(map[string]any{key: setting.NewSecret(shownSecret)})
			continue
		}
		value, why := l.fetch(r)
		if why != "" {
			l.bad[key] = true
			l.problems = append(l.problems, r.by.problem(r.path, true, "", why))
			continue
		}
		l.override(map[string]any{key: setting.NewSecret(value)})
	}
}

func (l *loader) fetch(r reference) (value, why string) {
	switch r.field.kind {
	case fieldSecretFile:
		return l.fromFile(r)
	case fieldSecretEnv:
		return l.fromVariable(r.text)
	}
	return l.fromCredential(r.text)
}

func (l *loader) fromFile(r reference) (value, why string) {
	b, err := l.read(r.text)
	if err != nil {
		return "", fmt.Sprintf("the file of the secret cannot be read: %v", err)
	}
	if fi, err := l.src.Stat(r.text); err == nil && fi.Mode().Perm()&othersRead != 0 {
		l.warnings = append(l.warnings, r.by.problem(r.path, true, "chmod 600 "+r.text, fmt.Sprintf("the file of the secret is readable by others (%v)", fi.Mode().Perm())))
	}
	return secretOf(b, "the file of the secret")
}

// othersRead returns who else than its owner can read a file: the group, and all users.
const othersRead = 0o044

func (l *loader) fromVariable(name string) (value, why string) {
	v, set := l.src.getenv(name)
	if !set {
		return "", fmt.Sprintf("the variable %s is not set", name)
	}
	if v == "" {
		return "", fmt.Sprintf("the variable %s is empty", name)
	}
	return v, ""
}

func (l *loader) fromCredential(name string) (value, why string) {
	if name != filepath.Base(name) || name == "." || name == ".." {
		return "", fmt.Sprintf("the credential must be a name, not a path: %q", name)
	}
	dir, _ := l.src.getenv(credentialsDirectory)
	if dir == "" {
		return "", fmt.Sprintf("no credentials were handed over: $%s is not set; systemd sets it for a unit with LoadCredential=%s:FILE", credentialsDirectory, name)
	}
	b, err := l.read(filepath.Join(dir, name))
	if err != nil {
		return "", fmt.Sprintf("the credential %s cannot be read: %s; the unit must have LoadCredential=%[1]s:FILE", name, reasonOf(err))
	}
	return secretOf(b, "the credential "+name)
}

func secretOf(text []byte, what string) (value, why string) {
	value, err := secrettext.Of(text)
	if err != nil {
		return "", what + " " + err.Error()
	}
	return value, ""
}

// secretsInside warns of a configuration file that holds a secret and lets others read it.
func (l *loader) secretsInside(name string) {
	fi, err := l.src.Stat(name)
	if err != nil || fi.Mode().Perm()&othersRead == 0 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(l.layer)) {
		s := l.layer[key]
		if v, ok := s.value.(setting.Secret); ok && s.path == key && v.Set() {
			by := l.given[key][len(l.given[key])-1]
			l.warnings = append(l.warnings, by.problem(key, true, "chmod 600 "+name+", or keep the secret elsewhere: "+key+"_file",
				fmt.Sprintf("the file holds this secret and is readable by others (%v)", fi.Mode().Perm())))
		}
	}
}
