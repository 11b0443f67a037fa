package canvas

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkCompile compiles a canvas of the usual size, and those that take the longest: as many nodes and edges as there may be, and as much text.
func BenchmarkCompile(b *testing.B) {
	c := newCompiler(b)
	usual := document(b, readGallery(b, galleries[0])[1].source)
	var drawn strings.Builder
	fmt.Fprintf(&drawn, "s source\nc threshold {\"name\":\"n\",\"when\":{\"cel\":\"has(m.t)\"}}\ns:out > c:in\nv compute {\"name\":\"v\",\"expr\":%q}\n", "[1.0"+strings.Repeat(",1.0", 1950)+"]")
	for i := range MaxNodes - 3 {
		fmt.Fprintf(&drawn, "b%d branch {\"when\":\"v.size() > 0\"}\nv:value > b%d:value\nc:signal > b%d:in\n", i, i, i)
	}
	wide := document(b, strings.TrimSuffix(drawn.String(), "\n"))
	drawn.Reset()
	fmt.Fprintf(&drawn, "s source\nc threshold {\"name\":\"n\",\"when\":{\"cel\":\"has(m.t)\"}}\ns:out > c:in\n")
	for i := range 31 {
		fmt.Fprintf(&drawn, "b%d branch {\"when\":%q}\nc:signal > b%d:in\n", i, "[1.0"+strings.Repeat(",1.0", 1950)+"].size() > 0", i)
	}
	long := document(b, strings.TrimSuffix(drawn.String(), "\n"))
	for _, x := range []struct{ name, text string }{{"usual", usual}, {"wide", wide}, {"long", long}, {"deep", `{"nodes":` + strings.Repeat("[", MaxText-20)}} {
		b.Run(x.name, func(b *testing.B) {
			if r := c.Compile(x.text, profile); len(r.Diagnostics) > 0 {
				b.Logf("%d KiB, %d diagnostics: %.200s", len(x.text)>>10, len(r.Diagnostics), outcome(r))
			}
			b.ReportAllocs()
			for b.Loop() {
				c.Compile(x.text, profile)
			}
		})
	}
}
