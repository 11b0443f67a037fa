package cli

import (
	"fmt"
	"io"
	"time"
)

// progressEvery is how often the progress is printed.
const progressEvery = 500 * time.Millisecond

// progressWriter prints on stderr, when that is a terminal, how many bytes were written.
type progressWriter struct {
	w       io.Writer
	to      io.Writer // nil: print nothing
	about   int64
	n       int64
	printed time.Time
}

func (c *command) passing(w io.Writer) *progressWriter {
	p := &progressWriter{w: w, printed: time.Now()}
	if isTerminal(c.io.Stderr) {
		p.to = c.io.Stderr
	}
	return p
}

// expect says about how many bytes will come.
func (p *progressWriter) expect(n int64) { p.about = n }

func (p *progressWriter) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.n += int64(n)
	if p.to != nil && time.Since(p.printed) > progressEvery {
		p.printed = time.Now()
		fmt.Fprintf(p.to, "\r%s of about %s   ", bytesText(p.n), bytesText(max(p.about, p.n)))
	}
	return n, err
}

// done clears the line.
func (p *progressWriter) done() {
	if p.to != nil {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
