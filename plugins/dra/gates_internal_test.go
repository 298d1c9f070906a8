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

	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/apiserver/client"
)

// A gate whose fields were lost counts as off until a probe keeps the fields an hour later, whatever the API
// servers that answer.
func TestLostGateIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, forbidden := apiserver.New(), false
		server.Refuse = func(r *http.Request) error {
			if !forbidden {
				return nil
			}
			return refuseProbe(r)
		}
		kept := apiserver.Features{Version: "v1.36.3", Counters: true, Taints: true}
		dropped := apiserver.Features{Version: "v1.36.3", Taints: true}
		server.SetFeatures(kept)
		g := newGates(client.New(server), "a", slog.New(slog.DiscardHandler))
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
		server.SetFeatures(dropped)
		<-time.After(time.Second)
		ask("without the fields", false)
		server.SetFeatures(kept)
		ask("after the hour", true)
		g.recordLoss([]string{gateCounters})
		kept.Version = "v1.37.1"
		server.SetFeatures(kept)
		ask("by a newer server", false)
		<-time.After(lossPause)
		forbidden = true
		ask("without a probe", false)
		forbidden = false
		ask("after another hour", true)
	})
}

// refuseProbe refuses the creation of slices.
func refuseProbe(r *http.Request) error {
	if r.Method != http.MethodPost {
		return nil
	}
	return apierrors.NewForbidden(resourceapi.Resource("resourceslices"), "", nil)
}

// TestRefusedProbe: the version of an API server that refuses probes tells what the server keeps.
func TestRefusedProbe(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"v1.35.9": false, "v1.36.0": true} {
		server := apiserver.New()
		server.SetFeatures(apiserver.Features{Version: version})
		server.Refuse = refuseProbe
		g := newGates(client.New(server), "a", slog.New(slog.DiscardHandler))
		err := g.askFeatures(t.Context())
		if now := g.currentFeatures(); err != nil || now.Counters != want || now.Taints != want {
			t.Errorf("%s: %+v, %v, want %t", version, now, err, want)
		}
	}
}

// An API server that does not answer does not delay the end of the driver.
func TestGatesOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New()
		server.FallSilent()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := newGates(client.New(server), "a", slog.New(slog.DiscardHandler)).askFeatures(ctx)
		if took := time.Since(began); err == nil || took > time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// TestEachGateIsLostAlone: what the API server drops is not published any more, and the rest is.
func TestEachGateIsLostAlone(t *testing.T) {
	t.Parallel()
	for gate, want := range map[string]features{gateCounters: {Taints: true}, gateTaints: {Counters: true}} {
		g := newGates(nil, "a", slog.New(slog.DiscardHandler))
		g.newest = features{Counters: true, Taints: true}
		if changed := g.recordLoss([]string{gate}); !changed || g.currentFeatures() != want {
			t.Errorf("without %s: %+v, want %+v", gate, g.currentFeatures(), want)
		}
	}
}
