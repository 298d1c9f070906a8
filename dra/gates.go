package dra

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/dra/pool"
)

// Feature gates of the API server, and the version from which on they are on by default
// (pkg/features/kube_features.go of Kubernetes).
const (
	gateCounters = "DRAPartitionableDevices"
	gateTaints   = "DRADeviceTaints"
)

var onFrom = version.MajorMinor(1, 36)

// features are what a cluster can do with what is published.
type features struct {
	Known            bool // the cluster was asked
	Counters, Taints bool
	Server           string // version of the API server
}

// notes say which gates are off, and what that costs.
func (f features) notes() (notes []string) {
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

// gates know what a cluster can do.
type gates struct {
	client   kubernetes.Interface
	nodeName string
	log      *slog.Logger

	mu     sync.Mutex
	newest features
	losses map[string]*loss // by gate
}

// loss is what happened to a gate whose fields were lost although it had seemed to be on: one of several API
// servers is older, say. It counts as on again once so many trials in a row have kept its fields, twice as
// many after each further loss, or one of a server of another version.
type loss struct {
	times  int    // that fields were lost
	left   int    // trials until the gate counts as on
	server string // version of the API server then
}

// maxTrials is how many trials have to succeed at the most: those of a day.
const maxTrials = int(24 * time.Hour / gatesPause)

func newGates(client kubernetes.Interface, nodeName string, log *slog.Logger) *gates {
	return &gates{client: client, nodeName: nodeName, log: log, losses: map[string]*loss{}}
}

func (g *gates) features() features {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.newest
	now.Counters = now.Counters && !g.isLost(gateCounters)
	now.Taints = now.Taints && !g.isLost(gateTaints)
	return now
}

// isLost must be called with the mutex.
func (g *gates) isLost(gate string) bool { return g.losses[gate] != nil && g.losses[gate].left > 0 }

// drop notes that fields of gates were lost. It reports whether that changes what is published.
func (g *gates) drop(names []string) bool {
	before := g.features()
	g.mu.Lock()
	for _, gate := range names {
		if g.losses[gate] == nil {
			g.losses[gate] = &loss{}
		}
		l := g.losses[gate]
		if l.left == 0 { // else what was published before that is told of
			l.times++
		}
		l.server = g.newest.Server
		l.restart()
	}
	g.mu.Unlock()
	return g.features() != before
}

// restart has all trials begin anew.
func (l *loss) restart() { l.left = min(1<<min(l.times, 16), maxTrials) }

// tried notes what a trial of a server of a version kept.
func (l *loss) tried(kept bool, server string) {
	switch {
	case l.left == 0:
	case !kept:
		l.restart()
	case server != l.server:
		l.left = 0
	default:
		l.left--
	}
}

// ask asks the API server what it can do. The version says what that is by default; a dry run, in which the
// API server drops the fields that it has not but keeps nothing, says what it is.
func (g *gates) ask(ctx context.Context) error {
	told, err := g.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	now := features{Known: true, Server: told.GitVersion}
	if parsed, err := version.ParseGeneric(told.GitVersion); err == nil {
		now.Counters = parsed.AtLeast(onFrom)
		now.Taints = now.Counters
	}
	counters, err := g.try(ctx, resourceapi.ResourceSliceSpec{SharedCounters: []resourceapi.CounterSet{{
		Name: "probe", Counters: map[string]resourceapi.Counter{"probe": {Value: resource.MustParse("1")}},
	}}})
	if err != nil {
		return err
	}
	taints, err := g.try(ctx, resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{
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
	if l := g.losses[gateCounters]; l != nil && counters != nil {
		l.tried(now.Counters, now.Server)
	}
	if l := g.losses[gateTaints]; l != nil && taints != nil {
		l.tried(now.Taints, now.Server)
	}
	return nil
}

// try has the API server look at a slice. It returns what that would keep of it; nil where it refuses to try,
// which tells nothing.
func (g *gates) try(
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
		g.log.Warn("go by the API server's version alone", "error", err)
		return nil, nil
	default:
		return nil, fmt.Errorf("ask the API server what a ResourceSlice can have: %w", err)
	}
}

// How often the cluster is asked what it can do: until it answers, and then for what it may have learned.
const (
	gatesRetry = 2 * time.Second
	gatesPause = 10 * time.Minute
)

// watchGates asks the cluster what it can do until ctx is done, and has what there is put together anew when
// that is something else.
func (d *Driver) watchGates(ctx context.Context) {
	for {
		before := d.gates.features()
		err := d.gates.ask(ctx)
		pause := gatesPause
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.complain("what the cluster can do is as it was known before", err)
			if !before.Known {
				pause = gatesRetry
			}
		case d.gates.features() != before:
			d.wake()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
