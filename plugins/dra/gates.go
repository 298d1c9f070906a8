// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// Feature gates of the API server, and the versions that enable them by default
// (pkg/features/kube_features.go of Kubernetes).
const (
	gateCounters = "DRAPartitionableDevices"
	gateTaints   = "DRADeviceTaints"
)

var onFrom = version.MajorMinor(1, 36)

// features are the supported features of a cluster.
type features struct {
	Known            bool // the cluster has answered
	Counters, Taints bool
	Server           string // version of the API server
}

// listNotes returns the disabled gates and the consequences.
func (f features) listNotes() (notes []string) {
	off := func(gate, cost string) {
		notes = append(notes, fmt.Sprintf("feature gate %s of the API server (%s) is off, by default it is on "+
			"from Kubernetes 1.36 on: %s", gate, f.Server, cost))
	}
	if f.Known && !f.Counters {
		off(gateCounters, "each GPU is one device with its VF, so that a claim for a GPU alone leaves a VF idle, "+
			"and there are no bundles")
	}
	if f.Known && !f.Taints {
		off(gateTaints, "devices that are unhealthy, or that pods have from device plugins, are not published")
	}
	return notes
}

// gates tracks the features of the cluster.
type gates struct {
	client   kubernetes.Interface
	nodeName string
	log      *slog.Logger

	mu     sync.Mutex
	newest features
	// when fields of an apparently enabled gate were lost, for example because one of several API servers is
	// older. The gate counts as disabled until the API server keeps the fields in a probe, lossPause later
	losses map[string]time.Time
}

// lossPause is the least time from a loss to the next one: each changes all published slices.
const lossPause = time.Hour

func newGates(client kubernetes.Interface, nodeName string, log *slog.Logger) *gates {
	return &gates{client: client, nodeName: nodeName, log: log, losses: map[string]time.Time{}}
}

func (g *gates) currentFeatures() features {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.newest
	_, noCounters := g.losses[gateCounters]
	_, noTaints := g.losses[gateTaints]
	now.Counters, now.Taints = now.Counters && !noCounters, now.Taints && !noTaints
	return now
}

// recordLoss records that fields of gates were lost. It reports whether that changes the published data.
func (g *gates) recordLoss(names []string) bool {
	before := g.currentFeatures()
	g.mu.Lock()
	for _, gate := range names {
		g.losses[gate] = time.Now()
	}
	g.mu.Unlock()
	return g.currentFeatures() != before
}

// askFeatures determines the features of the API server. The version gives the defaults; a dry run, in which
// the API server drops unsupported fields and stores nothing, gives the actual state.
func (g *gates) askFeatures(ctx context.Context) error {
	server := discovery.ToServerVersionInterfaceWithContext(g.client.Discovery())
	told, err := server.ServerVersionWithContext(ctx)
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	now := features{Known: true, Server: told.GitVersion}
	if parsed, err := version.ParseGeneric(told.GitVersion); err == nil {
		now.Counters = parsed.AtLeast(onFrom)
		now.Taints = now.Counters
	}
	counters, err := g.trySlice(ctx, resourceapi.ResourceSliceSpec{SharedCounters: []resourceapi.CounterSet{{
		Name: "probe", Counters: map[string]resourceapi.Counter{"probe": {Value: resource.MustParse("1")}},
	}}})
	if err != nil {
		return err
	}
	taints, err := g.trySlice(ctx, resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{
		Name: "probe",
		Taints: []resourceapi.DeviceTaint{
			{Key: pool.TaintUnhealthy, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}}})
	if err != nil {
		return err
	}
	if counters != nil {
		now.Counters = len(counters.Spec.SharedCounters) > 0
	}
	if taints != nil {
		now.Taints = len(taints.Spec.Devices) == 1 && len(taints.Spec.Devices[0].Taints) > 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.newest = now
	kept := map[string]bool{
		gateCounters: counters != nil && now.Counters, gateTaints: taints != nil && now.Taints,
	}
	maps.DeleteFunc(g.losses, func(gate string, at time.Time) bool {
		return kept[gate] && time.Since(at) >= lossPause
	})
	return nil
}

// trySlice sends a slice to the API server in a dry run. It returns the resulting slice, or nil if the API
// server rejects the request, which has no meaning for the gates.
func (g *gates) trySlice(
	ctx context.Context, spec resourceapi.ResourceSliceSpec,
) (*resourceapi.ResourceSlice, error) {
	spec.Driver, spec.NodeName = pool.Driver, &g.nodeName
	spec.Pool = resourceapi.ResourcePool{Name: g.nodeName, Generation: 1, ResourceSliceCount: 1}
	kept, err := g.client.ResourceV1().ResourceSlices().Create(ctx, &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: pool.Driver + "-probe-"}, Spec: spec,
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return kept, nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		g.log.Warn("features of the API server not probed; deriving them from its version", "error", err)
		return nil, nil
	default:
		return nil, fmt.Errorf("ask the API server what a ResourceSlice can have: %w", err)
	}
}

// Intervals between requests for the features: until the first answer, and afterwards.
const (
	gatesRetry = 2 * time.Second
	gatesPause = 10 * time.Minute
)

// watchFeatures determines the features until ctx is done, and calls changed after a change.
func (g *gates) watchFeatures(ctx context.Context, complaints *complaints, changed func()) {
	for {
		before := g.currentFeatures()
		err := g.askFeatures(ctx)
		pause := gatesPause
		if ctx.Err() != nil {
			return
		}
		complaints.reportResult("features of the cluster not read; using the last known features", err)
		switch {
		case err != nil:
			if !before.Known {
				pause = gatesRetry
			}
		case g.currentFeatures() != before:
			changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
