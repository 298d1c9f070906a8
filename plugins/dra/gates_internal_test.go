// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// A gate whose fields were lost counts as on again after trials that keep them: more of them after each loss,
// none that fails in between, and one where the API server is another version.
func TestLostGateIsTriedAgain(t *testing.T) {
	client, kept := fake.NewClientset(), true
	discovery := client.Discovery().(*fakediscovery.FakeDiscovery)
	discovery.FakedServerVersion = &version.Info{GitVersion: "v1.36.3"}
	create := func(action clienttesting.Action) (bool, runtime.Object, error) {
		slice := action.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
		if !kept {
			slice.Spec.SharedCounters = nil
		}
		return true, slice, nil
	}
	client.PrependReactor("create", "resourceslices", create)
	g := newGates(client, "a", slog.New(slog.DiscardHandler))
	trials := func(want int) {
		t.Helper()
		for n := 1; ; n++ {
			if err := g.askFeatures(t.Context()); err != nil {
				t.Fatal(err)
			}
			if now := g.currentFeatures(); !now.Taints || n > maxTrials {
				t.Fatalf("after %d trials: %+v", n, now)
			} else if now.Counters {
				if n != want {
					t.Errorf("on after %d trials, want %d", n, want)
				}
				return
			}
		}
	}
	trials(1)
	for i, want := range []int{2, 4, 8, 16, 32, 64, 128, maxTrials, maxTrials} {
		if !g.recordLoss([]string{gateCounters}) || i%2 == 0 && g.recordLoss([]string{gateCounters}) {
			t.Error("what is lost once changes what is published once")
		}
		trials(want)
	}
	g.recordLoss([]string{gateCounters})
	for _, keeps := range []bool{true, false, true} {
		kept = keeps
		if err := g.askFeatures(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	trials(maxTrials - 1)
	g.recordLoss([]string{gateCounters})
	discovery.FakedServerVersion = &version.Info{GitVersion: "v1.37.1"}
	trials(1)
}

// TestEachGateIsLostAlone: what the API server drops is not published any more, and the rest is.
func TestEachGateIsLostAlone(t *testing.T) {
	t.Parallel()
	for gate, want := range map[string]features{gateCounters: {Taints: true}, gateTaints: {Counters: true}} {
		g := newGates(fake.NewClientset(), "a", slog.New(slog.DiscardHandler))
		g.newest = features{Counters: true, Taints: true}
		if changed := g.recordLoss([]string{gate}); !changed || g.currentFeatures() != want {
			t.Errorf("without %s: %+v, want %+v", gate, g.currentFeatures(), want)
		}
	}
}

// silent is an API server that does not answer.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// An API server that does not answer does not delay the end of the driver.
func TestGatesOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://server", Transport: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err = newGates(client, "a", slog.New(slog.DiscardHandler)).askFeatures(ctx)
		if took := time.Since(began); err == nil || took > time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}
