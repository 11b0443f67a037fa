package testweir

import (
	"os/exec"
	"strings"
)

// TryRun is Run for a command that may fail; it returns what was written to stdout and stderr.
func (p *Proc) TryRun(stdin string, args ...string) (string, error) {
	p.t.Helper()
	cmd := exec.Command(Binary(p.t), append([]string{"--config", p.Config}, args...)...)
	cmd.Stdin, cmd.Env = strings.NewReader(stdin), Environ()
	out, err := cmd.CombinedOutput()
	return string(out), err
}
