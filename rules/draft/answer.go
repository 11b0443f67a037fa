package draft

import "strings"

const (
	fence = "```"
	mark  = "\ufeff" // byte order mark
)

// definition takes the definition out of an answer: models like to put it into a code fence, with a sentence before and after it. An
// answer without one is taken as it is. What is left is decoded strictly, so that nothing is guessed here.
func definition(answer string) string {
	text := strings.TrimSpace(strings.TrimPrefix(answer, mark))
	if strings.HasPrefix(text, "{") {
		return text
	}
	_, inside, fenced := strings.Cut(text, fence)
	if !fenced {
		return text
	}
	inside, _, _ = strings.Cut(inside, "\n"+fence)
	inside = strings.TrimSuffix(strings.TrimSpace(inside), fence)
	if first, rest, ok := strings.Cut(inside, "\n"); ok && !strings.Contains(first, "{") { // the language
		inside = rest
	}
	return strings.TrimSpace(inside)
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
