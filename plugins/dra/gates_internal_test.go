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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// A gate whose fields were lost counts as off until a probe keeps the fields an hour later, whatever the API
// servers that answer.
func TestLostGateIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, kept := fake.NewClientset(), true
		discovery := client.Discovery().(*fakediscovery.FakeDiscovery)
		discovery.FakedServerVersion = &version.Info{GitVersion: "v1.36.3"}
		forbidden := false
		create := func(action clienttesting.Action) (bool, runtime.Object, error) {
			if forbidden {
				return true, nil, apierrors.NewForbidden(resourceapi.Resource("resourceslices"), "", nil)
			}
			slice := action.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
			if !kept {
				slice.Spec.SharedCounters = nil
			}
			return true, slice, nil
		}
		client.PrependReactor("create", "resourceslices", create)
		g := newGates(client, "a", slog.New(slog.DiscardHandler))
		ask := func(when string, want bool) {
			t.Helper()
			if err := g.askFeatures(t.Context()); err != nil {
				t.Fatal(err)
			}
			if now := g.currentFeatures(); now.Counters != want || !now.Taints {
				t.Errorf("%s: %+v, want counters %t", when, now, want)
			}
		}
		ask("before", true)
		if !g.recordLoss([]string{gateCounters}) || g.recordLoss([]string{gateCounters}) {
			t.Error("what is lost once changes what is published once")
		}
		<-time.After(lossPause - time.Second)
		ask("within the hour", false)
		kept = false
		<-time.After(time.Second)
		ask("without the fields", false)
		kept = true
		ask("after the hour", true)
		g.recordLoss([]string{gateCounters})
		discovery.FakedServerVersion = &version.Info{GitVersion: "v1.37.1"}
		ask("by a newer server", false)
		<-time.After(lossPause)
		forbidden = true
		ask("without a probe", false)
		forbidden = false
		ask("after another hour", true)
	})
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
