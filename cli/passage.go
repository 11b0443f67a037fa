package cli

import (
	"fmt"
	"io"
	"time"
)

// progressEvery is how often people are told how far something is.
const progressEvery = 500 * time.Millisecond

// passage is a writer that tells on stderr, when that is a terminal, how much went by.
type passage struct {
	w     io.Writer
	to    io.Writer // nil: nobody is told
	about int64
	n     int64
	told  time.Time
}

func (c *command) passing(w io.Writer) *passage {
	p := &passage{w: w, told: time.Now()}
	if isTerminal(c.io.Stderr) {
		p.to = c.io.Stderr
	}
	return p
}

// expect says about how many bytes will come.
func (p *passage) expect(n int64) { p.about = n }

func (p *passage) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.n += int64(n)
	if p.to != nil && time.Since(p.told) > progressEvery {
		p.told = time.Now()
		fmt.Fprintf(p.to, "\r%s of about %s   ", bytesText(p.n), bytesText(max(p.about, p.n)))
	}
	return n, err
}

// done clears the line.
func (p *passage) done() {
	if p.to != nil {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
