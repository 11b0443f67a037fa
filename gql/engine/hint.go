package engine

import (
	"context"
	"fmt"
	"sync"
)

// maxHints bounds the hints of one response.
const maxHints = 20

// hints are remarks on a response that is no error: what the request asked for and was understood differently.
type hints struct {
	mu    sync.Mutex
	texts []string
}

// Hint adds a remark to the response of the execution that ctx belongs to: extensions.hints. It serves what the contract
// answers without an error, though the caller probably meant something else, such as a filter that names nothing.
// Outside of an execution it does nothing.
func Hint(ctx context.Context, format string, args ...any) {
	sc, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok {
		return
	}
	sc.hints.mu.Lock()
	defer sc.hints.mu.Unlock()
	if len(sc.hints.texts) < maxHints {
		sc.hints.texts = append(sc.hints.texts, fmt.Sprintf(format, args...))
	}
}

func (h *hints) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.texts
}
