package inference

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
)

// protocol is how a kind of provider is asked. One file defines a kind; protocols lists them.
type protocol interface {
	// name is that of the kind.
	name() string
	// base is the URL below which its API is, where a provider names none; "": it has to.
	base() string
	// path is that of the request below it.
	path() string
	// sign puts the secret into the headers of a request.
	sign(h http.Header, secret string)
	// body is the request, without what the provider's params add. It names the maximum length of the reply as lengthName.
	body(model string, r Request) map[string]any
	lengthName() string
	// read reads a reply.
	read(reply []byte) (answer, error)
}

// protocols are the kinds of providers. All of them are external: what they are asked leaves the instance.
var protocols = []protocol{anthropic{}, openAI{}}

// KindNames are the names of the kinds.
func KindNames() (names []string) {
	for _, p := range protocols {
		names = append(names, p.name())
	}
	return names
}

func protocolOf(kind string) protocol {
	if i := slices.IndexFunc(protocols, func(p protocol) bool { return p.name() == kind }); i >= 0 {
		return protocols[i]
	}
	return nil
}

// answer is what a reply says.
type answer struct {
	text          string
	input, output int64 // tokens
}

// Errors of a reply.
var (
	errMalformed = errors.New("inference: the reply is not what the kind of the provider sends")
	errEmpty     = errors.New("inference: the reply has no text")
)

// encode returns the body of a request: what the protocol says, what the params add, and the maximum length of the reply, which
// params may lower and name otherwise.
func encode(p protocol, of *Provider, r Request, maxTokens int) ([]byte, error) {
	body := map[string]any{}
	if of.Params != nil {
		params, err := paramsOf(*of.Params)
		if err != nil {
			return nil, err
		}
		for name, value := range params {
			body[name] = value
		}
	}
	length := p.lengthName()
	for _, name := range lengths {
		if raw, named := body[name].(json.RawMessage); named {
			var n float64
			if err := json.Unmarshal(raw, &n); err != nil {
				return nil, err
			}
			length, maxTokens = name, int(min(n, float64(maxTokens)))
			delete(body, name)
		}
	}
	maps.Copy(body, p.body(of.Model, r))
	body[length] = maxTokens
	return json.Marshal(body)
}

// tokens bounds what a provider says about itself.
func tokens(n float64) int64 {
	const most = 1 << 30
	if !(n > 0) {
		return 0
	}
	return int64(min(n, most))
}

// message is a turn of a conversation, as both kinds write it.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}
