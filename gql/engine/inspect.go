package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds on the part of a refused value that a message quotes.
const (
	maxInspectDepth = 2
	maxInspectItems = 10
	maxClip         = 80
)

// inspect shows a value as graphql-js does: { name: "a", tags: ["b"] }, two levels deep, ten items long.
func inspect(v any) string {
	var b strings.Builder
	inspectInto(&b, v, 0)
	return b.String()
}

func inspectInto(b *strings.Builder, v any, depth int) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case string:
		b.WriteString(strconv.Quote(clip(v)))
	case json.Number:
		b.WriteString(clip(string(v)))
	case []any:
		inspectList(b, v, depth)
	case map[string]any:
		inspectObject(b, v, depth)
	default:
		b.WriteString(clip(fmt.Sprint(v)))
	}
}

func inspectList(b *strings.Builder, list []any, depth int) {
	if depth > maxInspectDepth {
		b.WriteString("[Array]")
		return
	}
	b.WriteByte('[')
	for i, v := range list[:min(len(list), maxInspectItems)] {
		if i > 0 {
			b.WriteString(", ")
		}
		inspectInto(b, v, depth+1)
	}
	if more := len(list) - maxInspectItems; more > 0 {
		fmt.Fprintf(b, ", ... %d more items", more)
	}
	b.WriteByte(']')
}

func inspectObject(b *strings.Builder, m map[string]any, depth int) {
	switch {
	case len(m) == 0:
		b.WriteString("{}")
		return
	case depth > maxInspectDepth:
		b.WriteString("[Object]")
		return
	}
	b.WriteString("{ ")
	for i, name := range sortedKeys(m) {
		if i == maxInspectItems {
			fmt.Fprintf(b, ", ... %d more", len(m)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(clip(name))
		b.WriteString(": ")
		if isSecret(name) {
			b.WriteString("***")
			continue
		}
		inspectInto(b, m[name], depth+1)
	}
	b.WriteString(" }")
}

// isSecret reports whether a field's value is left out of messages: clients write messages to logs.
func isSecret(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "password") || strings.Contains(name, "secret") || strings.Contains(name, "credentialvalue")
}

// clip shortens s to what a message may quote of it, and makes it valid UTF-8.
func clip(s string) string {
	if len(s) <= maxClip {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	cut := maxClip
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.ToValidUTF8(s[:cut], "\uFFFD") + "…"
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
