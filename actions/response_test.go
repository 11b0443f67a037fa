package actions

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/command"
	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

// answerer has the commands that are there, and when each was asked for.
type answerer struct {
	mu    sync.Mutex
	there map[string]command.Answered
	asked []string
}

func (a *answerer) set(token string, did command.Answered) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.there[token] = did
}

func (a *answerer) Answer(_ store.Tx, r command.Response) (command.Answered, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, fmt.Sprint(r.Token, " ", time.Since(began)))
	if did, ok := a.there[r.Token]; ok {
		return did, nil
	}
	return command.NoSuch, nil
}

// unanswered writes the answer of a device to a command that is not there, as Apply does.
func (w *world) unanswered(device int64, token string) {
	w.Helper()
	w.n++
	o := model.Order{Kind: outbox.Answer, TenantID: 1, DeviceID: device, Key: fmt.Sprint("answer-", w.n), Received: model.NanosOf(time.Now()), Occurred: model.MicrosOf(time.Now())}
	o.Edge.Offset = model.Offset(w.n)
	var err error
	o.Body, err = json.Marshal(model.Dispatch{Kind: o.Kind, Key: o.Key, Device: fmt.Sprintf("d%d", device),
		Answer: &model.DispatchAnswer{Command: token, Success: true, Source: "mqtt1", Epoch: 3, Received: o.Received}})
	w.must(err)
	w.must(w.db.Write(w.Context(), store.Results, func(tx store.Tx) error { return outbox.Add(tx, &o) }))
	w.drain.Wake()
}

func TestAnAnswerFindsACommandThatComesLater(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		a := &answerer{there: map[string]command.Answered{}}
		var letters []string
		w.stop()
		w.kinds = []Kind{Answers(a, func(_ store.Tx, d *store.DeadLetter, r *model.Response) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			letters = append(letters, fmt.Sprintf("%s %s %s %s %s %d of %d.%d", d.Tenant, d.Subject, d.Reason, r.Command, d.Source, d.Attempts, d.Epoch, d.Offset))
			return nil
		})}
		w.start()
		a.set("other", command.Moved)
		a.set("stale", command.BadNonce)
		w.unanswered(1, "late")
		w.unanswered(1, "other") // of the same device, which waits for none before it
		w.unanswered(2, "none")
		w.unanswered(2, "stale")
		time.Sleep(15 * time.Second)
		synctest.Wait()
		w.stop() // what waits, and how often it was tried, survives
		w.start()
		a.set("late", command.Moved)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		a.mu.Lock()
		defer a.mu.Unlock()
		if want := []string{"t1 d2 unprocessable stale mqtt1 0 of 3.4", "t1 d2 exhausted none mqtt1 5 of 3.3"}; !slices.Equal(letters, want) {
			t.Errorf("dead letters %q, want %q", letters, want)
		}
		tries := map[string]int{}
		for _, asked := range a.asked {
			var token, at string
			_, _ = fmt.Sscan(asked, &token, &at)
			tries[token]++
		}
		if tries["late"] != 3 || tries["other"] != 1 || tries["none"] != answerTries || tries["stale"] != 1 {
			t.Errorf("tried %v: %q", tries, a.asked)
		}
	})
}
