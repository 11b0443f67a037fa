package pipe

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestADeadlineThatIsMoved ends a read that waits, and none after it was taken away.
func TestADeadlineThatIsMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := New(8)
		ended := make(chan error)
		go func() {
			_, err := a.Read(make([]byte, 1))
			ended <- err
		}()
		synctest.Wait()
		_ = a.SetReadDeadline(time.Now().Add(time.Hour))
		_ = a.SetReadDeadline(time.Now().Add(time.Minute))
		begun := time.Now()
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the next read: %v", err)
		}
		_ = a.SetReadDeadline(time.Time{})
		time.AfterFunc(2*time.Hour, func() { _ = a.Close() })
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("without a deadline: %v", err)
		}
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the other end: %v", err)
		}
	})
}

// TestWritesDoNotWaitForAReader until the buffer is full, and what was written is read after the end.
func TestWritesDoNotWaitForAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := New(8)
		if n, err := a.Write([]byte("12345678")); n != 8 || err != nil {
			t.Fatal(n, err)
		}
		_ = a.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := a.Write([]byte("9")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("beyond the buffer: %d, %v", n, err)
		}
		_ = a.SetWriteDeadline(time.Time{})
		var all sync.WaitGroup
		all.Go(func() {
			if n, err := a.Write(bytes.Repeat([]byte("x"), 100)); n != 100 || err != nil {
				t.Error(n, err)
			}
			_ = a.Close()
		})
		got, err := io.ReadAll(b)
		if len(got) != 108 || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		all.Wait()
		if _, err := b.Write([]byte("1")); err == nil {
			t.Error("something is written to a connection that nobody reads")
		}
	})
}
