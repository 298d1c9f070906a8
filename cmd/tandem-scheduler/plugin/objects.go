// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
)

// byResource is the index of the objects by the names of their resources.
const byResource = "resource"

// Objects are the NodeTopology objects of the cluster. Filter and the scheduler's queueing hints share one
// informer, so that after a hint for a version of an object, Filter sees that version or a newer one. With
// two informers, Filter could still refuse a pod that a hint has just woken.
type Objects struct {
	store   cache.Indexer // of *published, by node
	plugins []*Plugin     // one per profile of the scheduler
}

// New is the framework's plugin factory. The plugin takes no arguments, and has no objects before Watch.
func (o *Objects) New(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	p, err := newPlugin(handle)
	if err != nil {
		return nil, err
	}
	o.plugins = append(o.plugins, p)
	return p, nil
}

// Watch takes the objects from the informer that the scheduler has created for its queueing hints. The
// scheduler starts that informer with its own ones, and schedules nothing before the informer has synced.
// Call Watch after the creation of all plugins and before the informer starts. Without a plugin, Watch does
// nothing.
func (o *Objects) Watch(ctx context.Context, factory dynamicinformer.DynamicSharedInformerFactory) error {
	if len(o.plugins) == 0 {
		return nil
	}
	return o.watch(ctx, factory.ForResource(v1alpha1.GroupVersion.WithResource(v1alpha1.Plural)).Informer())
}

// Metric returns a metric with the number of refused objects, counted on each scrape.
func (o *Objects) Metric() metrics.GaugeFunc {
	return metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name: "scheduler_tandem_refused_objects", StabilityLevel: metrics.ALPHA,
		Help: "NodeTopology objects that are left out of account because they are not valid.",
	}, func() float64 { return float64(o.refused()) })
}

func (o *Objects) watch(ctx context.Context, informer cache.SharedIndexInformer) error {
	r := newReader(klog.FromContext(ctx).WithName(Name))
	if err := informer.SetTransform(r.read); err != nil {
		return fmt.Errorf("read NodeTopology objects: %w", err)
	}
	if err := informer.AddIndexers(cache.Indexers{byResource: resources}); err != nil {
		return fmt.Errorf("index NodeTopology objects: %w", err)
	}
	o.store = informer.GetIndexer()
	for _, p := range o.plugins {
		p.objects = o.store
	}
	return nil
}

// refused returns the number of refused objects.
func (o *Objects) refused() int {
	count := 0
	if o.store == nil {
		return count
	}
	for _, object := range o.store.List() {
		if object.(*published).refusal() != nil {
			count++
		}
	}
	return count
}

func resources(object any) ([]string, error) {
	return slices.Collect(maps.Keys(object.(*published).resources)), nil
}
