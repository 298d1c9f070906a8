// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// flaky is a source that can fail and hang.
type flaky struct {
	mu    sync.Mutex // guards err where a goroutine asks
	err   error
	hangs bool
	slow  time.Duration // the first time
	asked int
}

func (f *flaky) pods(ctx context.Context) ([]Pod, error) {
	f.asked++
	if f.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	<-time.After(f.slow)
	f.slow = 0
	f.mu.Lock()
	defer f.mu.Unlock()
	return []Pod{{UID: "u"}}, f.err
}

func (f *flaky) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// among makes sources of two.
func among(best, next *flaky) (*Sources, *bytes.Buffer) {
	var lines bytes.Buffer
	log := slog.New(slog.NewTextHandler(&lines, nil))
	s, closer := &Sources{}, func() error { return nil }
	s.addSource(PodsAPI, log, best.pods, closer)
	s.addSource(Kubelet, log, next.pods, closer)
	return s, &lines
}

// within asks as the coordinator does, and says how long it took.
func within(t *testing.T, s *Sources, limit time.Duration) (Source, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begun := time.Now()
	answer, err := s.Pods(ctx)
	if (err == nil) != (answer.Source != "") {
		t.Errorf("answer %v, %v", answer, err)
	}
	return answer.Source, time.Since(begun)
}

func TestTheBestSourceThatWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		best, next := &flaky{}, &flaky{}
		s, lines := among(best, next)
		if got, _ := within(t, s, time.Second); got != PodsAPI || next.asked != 0 {
			t.Errorf("asked %s", got)
		}
		best.err = errors.New("no socket")
		for range 3 {
			if got, _ := within(t, s, time.Second); got != Kubelet {
				t.Errorf("asked %s", got)
			}
		}
		best.err = nil // the kubelet is back
		if got, _ := within(t, s, time.Second); got != PodsAPI {
			t.Errorf("after an outage %s", got)
		}
		text := lines.String()
		if n := strings.Count(text, "\n"); n != 2 || !strings.Contains(text, "available again") {
			t.Errorf("log:\n%s", lines)
		}
		best.err, best.asked = kubelet.ErrTooLarge, 0
		for range 3 {
			if got, _ := within(t, s, time.Second); got != Kubelet {
				t.Errorf("asked %s", got)
			}
		}
		if best.asked != 1 {
			t.Errorf("a source that fails at a cost was asked %d times", best.asked)
		}
	})
}

// run keeps sources up until the test ends, and returns once they have looked.
func run(t *testing.T, s *Sources) {
	t.Helper()
	go s.Run(t.Context())
	synctest.Wait()
}

// The first question finds a source that took long to reach for the first time.
func TestRunAsksAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		best, next := &flaky{err: kubelet.ErrNoPodsAPI}, &flaky{slow: time.Second}
		s, lines := among(best, next)
		run(t, s)
		<-time.After(time.Second)
		synctest.Wait()
		if best.asked != 1 || next.asked != 1 || !strings.Contains(lines.String(), "no socket") {
			t.Errorf("asked %d and %d times\n%s", best.asked, next.asked, lines)
		}
		if got, took := within(t, s, 50*time.Millisecond); got != Kubelet || took > 0 {
			t.Errorf("asked %s, which took %s", got, took)
		}
	})
}

// Whether annotations are enforced is what the sources answered last, and is looked at while nobody asks.
func TestEnforcement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		best, next := &flaky{err: kubelet.ErrNoPodsAPI}, &flaky{err: errors.New("not trusted")}
		s, _ := among(best, next)
		now, changed := s.Enforcement()
		if now.Source != "" || now.Why != "no source has answered yet" {
			t.Errorf("before the first answer: %+v", now)
		}
		run(t, s)
		<-changed
		const neither = "pods-api: no socket; kubelet: not trusted"
		if now, changed = s.Enforcement(); now.Source != "" || now.Why != neither {
			t.Errorf("without a source: %+v", now)
		}
		for _, c := range []struct {
			best, next error
			want       Enforcement
			within     time.Duration
		}{
			{kubelet.ErrNoPodsAPI, nil, Enforcement{Source: Kubelet}, maxPause},
			{nil, nil, Enforcement{Source: PodsAPI}, 2 * maxPause},
			{nil, errors.New("gone"), Enforcement{Source: PodsAPI}, 0},
			{errors.New("gone"), errors.New("gone"), Enforcement{Why: "pods-api: gone; kubelet: gone"}, lookPause},
		} {
			begun := time.Now()
			best.fail(c.best)
			next.fail(c.next)
			for now != c.want {
				select {
				case <-changed:
				case <-time.After(time.Hour):
					t.Fatalf("%+v for an hour, want %+v", now, c.want)
				}
				now, changed = s.Enforcement()
			}
			if took := time.Since(begun); took > c.within {
				t.Errorf("%+v took %s, want %s at the most", c.want, took, c.within)
			}
		}
	})
}

func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		best, next := &flaky{err: kubelet.ErrTooLarge}, &flaky{err: kubelet.ErrTooLarge}
		s, lines := among(best, next)
		begun := time.Now()
		var asked []time.Duration
		for time.Since(begun) < 10*time.Minute {
			before := best.asked
			if got, _ := within(t, s, time.Second); got != "" {
				t.Fatalf("asked %s", got)
			}
			if best.asked > before {
				asked = append(asked, time.Since(begun))
			}
			<-time.After(firstPause)
		}
		// After 0, 1, 3, 7, … 511 and 1023 pauses, which are 102 s, then every minute.
		if len(asked) != 19 || asked[1] != firstPause || asked[5] != 31*firstPause ||
			asked[10] != 1023*firstPause || asked[18]-asked[17] != maxPause {
			t.Errorf("asked at %v", asked)
		}
		if n := strings.Count(lines.String(), "\n"); n != 2 {
			t.Errorf("%d log lines for two sources that never work", n)
		}
	})
}

func TestASourceThatHangsLeavesTimeToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		best, next := &flaky{hangs: true}, &flaky{}
		s, _ := among(best, next)
		defer s.Close()
		if got, took := within(t, s, 50*time.Millisecond); got != Kubelet || took != 25*time.Millisecond {
			t.Errorf("%s after %v", got, took)
		}
		if got, took := within(t, s, 50*time.Millisecond); got != Kubelet || took != 0 {
			t.Errorf("%s after %v", got, took)
		}
		next.hangs = true
		<-time.After(maxPause)
		if got, took := within(t, s, 50*time.Millisecond); got != "" || took != 50*time.Millisecond {
			t.Errorf("%s after %v", got, took)
		}
	})
}

// A mistake that makes a source panic is a failure like another.
func TestASourceThatPanicsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lines := among(&flaky{}, &flaky{})
		s.sources[0].pods = func(context.Context) ([]Pod, error) { panic("a mistake") }
		for range 2 {
			if got, _ := within(t, s, time.Second); got != Kubelet {
				t.Errorf("asked %q", got)
			}
		}
		if n := strings.Count(lines.String(), "a mistake"); n != 1 {
			t.Errorf("log:\n%s", lines)
		}
	})
}

func TestAQuestionGivenUpTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		best, next := &flaky{hangs: true}, &flaky{}
		s, lines := among(best, next)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := s.Pods(ctx); err == nil || lines.Len() > 0 {
			t.Errorf("answered a question that was given up; log %q", lines)
		}
		<-time.After(lookTimeout)
		synctest.Wait() // the list is read no more
		best.hangs = false
		if got, _ := within(t, s, time.Second); got != PodsAPI {
			t.Errorf("then asked %s", got)
		}
	})
}

// A person asks for the status with little patience, and the source, which works, takes 5 ms. The missing
// answer is no failure: a question of the kubelet right afterwards asks the source.
func TestHurriedCallerPausesNoSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Sources{}
		slow := func(ctx context.Context) ([]Pod, error) {
			select {
			case <-time.After(5 * time.Millisecond):
				return []Pod{{UID: "strict", Alignment: Required}}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		s.addSource(PodsAPI, slog.New(slog.DiscardHandler), slow, func() error { return nil })
		ask := func(patience time.Duration) bool {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := s.Pods(ctx)
			return err == nil
		}
		if !ask(50 * time.Millisecond) {
			t.Fatal("the source does not work")
		}
		for range 5 {
			ask(time.Millisecond) // people
		}
		if !ask(50 * time.Millisecond) { // the kubelet, at once
			now, _ := s.Enforcement()
			t.Errorf("a question goes without the source, for %v: %v", s.sources[0].untilRetry(),
				errors.New(now.String()))
		}
	})
}
