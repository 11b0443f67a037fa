package bolt

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weir/internal/test/seed"
	"weir/model"
	"weir/spool"
)

// victimVariable makes the test binary append to the log in the folder that it names, until it is killed.
const victimVariable = "WEIR_SPOOL_VICTIM"

// seedVariable is the seed of what it appends.
const seedVariable = "WEIR_SPOOL_SEED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimVariable); dir != "" {
		if err := victim(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victim prints a line for each acknowledged record.
func victim(dir string) error {
	l, err := Open(dir, Options{SpanBytes: small.SpanBytes})
	if err != nil {
		return err
	}
	of, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	if err != nil {
		return err
	}
	var writers sync.WaitGroup
	for w := range uint64(8) {
		r := rand.New(rand.NewPCG(of, w))
		writers.Go(func() {
			for i := 0; ; i++ {
				data := fmt.Sprintf("%d/%d/%d/%s", os.Getpid(), w, i, strings.Repeat("x", r.IntN(2000)))
				answered := make(chan struct{})
				err := l.Append(context.Background(), spool.Entry{Data: []byte(data), Done: func(o model.Offset, err error) {
					if err == nil {
						fmt.Printf("%d %s\n", o, data)
					}
					close(answered)
				}})
				if err != nil {
					return
				}
				<-answered
			}
		})
	}
	writers.Wait()
	return l.Close()
}

func TestKilledProcessKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acked, r := map[model.Offset]string{}, seed.Rand(t)
	for round := range 4 {
		before := len(acked)
		kill(t, dir, acked, 1+r.IntN(800), r.Uint64())
		if len(acked) == before {
			t.Fatalf("round %d acknowledged nothing", round)
		}
		kept := map[model.Offset]string{}
		l := open(t, dir, small)
		r, err := l.Reader(1)
		if err != nil {
			t.Fatal(err)
		}
		for {
			b, err := r.TryNext()
			if err != nil {
				t.Fatal(err)
			}
			if b == nil {
				break
			}
			for i, rec := range b.Records {
				kept[b.First+model.Offset(i)] = string(rec.Data)
			}
		}
		r.Close()
		shut(t, l)
		for o, data := range acked {
			if kept[o] != data {
				t.Fatalf("round %d: offset %d was acknowledged with %.30q, kept is %.30q", round, o, data, kept[o])
			}
		}
	}
}

// kill runs a victim until it has acknowledged so many records, kills it, and adds all that it acknowledged to acked.
func kill(t *testing.T, dir string, acked map[model.Offset]string, after int, of uint64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"="+dir, fmt.Sprintf("%s=%d", seedVariable, of))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in, killed := bufio.NewReader(out), false
	for n := 1; ; n++ {
		line, err := in.ReadString('\n')
		if err != nil {
			break // the last line may be a half one
		}
		var o model.Offset
		var data string
		if _, err := fmt.Sscanf(line, "%d %s", &o, &data); err != nil || acked[o] != "" {
			t.Fatalf("acknowledged %.40q (%v), offset %d held %.30q", line, err, o, acked[o])
		}
		acked[o] = data
		if n == after {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed = true
		}
	}
	if err := cmd.Wait(); err == nil || !killed {
		t.Fatalf("the victim ended by itself: %v", err)
	}
}
