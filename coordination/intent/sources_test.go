// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"

	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/podsapi"
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

// Sources that read no annotations enforce nothing, and say so.
func TestNothingIsEnforcedWithoutSource(t *testing.T) {
	s, err := Open(Config{
		Choice: Choice{PodResources}, KubeletDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if now, _ := s.Enforcement(); now.Enforced() || !strings.Contains(now.Why, "--intent") {
		t.Errorf("%+v", now)
	}
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

func TestOpen(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for name, tc := range map[string]struct {
		config Config
		want   string // in the error
	}{
		"default":                 {Config{Choice: Default}, ""},
		"nothing":                 {Config{Choice: Choice{}}, ""},
		"the kubelet, no address": {Config{Choice: Choice{PodsAPI, Kubelet}}, "--kubelet-address"},
		"the kubelet": {Config{
			Choice: Choice{Kubelet}, Kubelet: kubelet.Endpoint{Address: "10.0.0.7"},
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tc.config.KubeletDir, tc.config.Log = t.TempDir(), log
			s, err := Open(tc.config)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			if s != nil {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A kubelet that has signed its certificate itself costs one line in the log, and the token goes nowhere:
// the chart chooses this source where it does not know the certificates.
func TestASelfSignedKubeletIsSaidOnce(t *testing.T) {
	var asked atomic.Int32
	count := func(http.ResponseWriter, *http.Request) { asked.Add(1) }
	server := httptest.NewUnstartedServer(http.HandlerFunc(count))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	for file, content := range map[string][]byte{token: []byte("secret"), ca: clusterCA(t)} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var lines bytes.Buffer
	s, err := Open(Config{
		Choice: Choice{PodsAPI, Kubelet, PodResources}, KubeletDir: dir,
		Kubelet: kubelet.Endpoint{Address: server.Listener.Addr().String(), Token: token, CA: ca},
		Log:     slog.New(slog.NewTextHandler(&lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 20 {
		for _, source := range s.sources {
			source.retry = time.Time{} // the pause is over
		}
		if answer, err := s.Pods(t.Context()); err == nil {
			t.Fatalf("%s answers", answer.Source)
		}
	}
	said := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if len(said) != 2 || !strings.Contains(said[0], "level=INFO msg=\"Pods API not available") ||
		!strings.Contains(said[1], "level=WARN msg=\"source of intent not available") ||
		!strings.Contains(said[1], "--kubelet-cert-file") {
		t.Errorf("the log has %q", said)
	}
	if asked.Load() != 0 {
		t.Errorf("the kubelet was asked %d times, with the token", asked.Load())
	}
}

// clusterCA is a certificate that has not signed the kubelet's.
func clusterCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	signed, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
}

// encoded are pods as the kubelet sends them.
func encoded(t *testing.T, pods ...corev1.Pod) lister {
	t.Helper()
	dir := t.TempDir()
	stop, err := podsapi.Serve(dir, func() []corev1.Pod { return pods })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	api, err := kubelet.NewPodsAPI(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api.Pods
}

// A pod that has not changed is not decoded again, and what was kept of a pod that is gone is forgotten.
func TestUnchangedPodsAreKept(t *testing.T) {
	all := recorded(t)
	r := &reducer{}
	read := func(pods ...corev1.Pod) {
		t.Helper()
		got, err := r.readList(t.Context(), encoded(t, pods...))
		if diff := cmp.Diff(newPods(pods, Policy{}), got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if len(r.known) != len(pods) {
			t.Errorf("%d pods are kept of %d", len(r.known), len(pods))
		}
	}
	read(all...)
	for _, kept := range r.known {
		if kept.pod != nil {
			kept.pod.Created = time.Time{}
		}
	}
	got, err := r.readList(t.Context(), encoded(t, all...))
	if err != nil || !got[0].Created.IsZero() {
		t.Errorf("decoded again: %v, %v", got, err)
	}
	r.known = nil
	read(all...)
	all[0].Annotations = map[string]string{AlignmentKey: "preferred"}
	read(all[0])
}

// What is kept of all pods is bounded: above it the source is unknown, and says so.
func TestTooManyRequests(t *testing.T) {
	pod := recorded(t)[0]
	pod.Spec.Containers = slices.Repeat(pod.Spec.Containers, 1<<14)
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	s, err := Open(Config{
		Choice: Choice{Kubelet}, Log: slog.New(slog.DiscardHandler), Readers: map[Source]Reader{
			Kubelet: func(context.Context) ([]corev1.Pod, error) { return slices.Repeat([]corev1.Pod{pod}, 8), nil },
		},
		Enforced: func(now Enforcement) {
			looks++
			if looks == 2 { // the same result again
				cancel()
			}
			if now.Enforced() || !now.TooLarge || !strings.Contains(now.Why, "too large") {
				t.Errorf("%+v", now)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Run(ctx)
	if ctx.Err() == nil {
		t.Error("nobody was told")
	}
	if _, err := s.Pods(t.Context()); err == nil {
		t.Error("the pods are known")
	}
}
