// The commands that keep what happened in a span as a test of a rule.

// pinLines writes the definition into a file and pins it. A definition is JSON, in which no line is the end of the text.
export function pinLines(tenant: string, profile: string, rule: string, definition: string, since: string, until: string): string {
  const file = `${rule.replace(/[^A-Za-z0-9_-]/g, '-')}.yaml`
  return `cat >${file} <<'RULE'\n${definition}\nRULE\nweir rule pin ${file} --tenant ${tenant} --profile ${profile} --since ${since} --until ${until} -o ${file.replace(/yaml$/, 'ruletest')}`
}
