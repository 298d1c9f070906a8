// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// byResource is the index of the objects by the names of their resources.
const byResource = "resource"

// Objects are the NodeTopology objects of the cluster. Filter and the scheduler's queueing hints share one
// informer, so that after a hint for a version of an object, Filter sees that version or a newer one. With
// two informers, Filter could still refuse a pod that a hint has just woken.
type Objects struct {
	store  cache.Indexer // of *published, by node
	needed bool          // by a plugin
}

// Watch takes the objects from the informer that the scheduler has created for its queueing hints. The
// scheduler starts that informer with its own ones, and schedules nothing before the informer has synced.
// Call Watch after the creation of all plugins and before the informer starts. Without a plugin, Watch does
// nothing.
func (o *Objects) Watch(ctx context.Context, factory dynamicinformer.DynamicSharedInformerFactory) error {
	if !o.needed {
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
	if err := informer.AddIndexers(cache.Indexers{byResource: resourcesOf}); err != nil {
		return fmt.Errorf("index NodeTopology objects: %w", err)
	}
	o.store = informer.GetIndexer()
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

// find returns the object of a node, or nil.
func (o *Objects) find(node string) *published {
	if found, exists, err := o.store.GetByKey(node); err == nil && exists {
		return found.(*published)
	}
	return nil
}

// valid returns the valid object of a node, or nil.
func (o *Objects) valid(node string) *published {
	if object := o.find(node); object != nil && object.refusal() == nil {
		return object
	}
	return nil
}

// resources returns the names of all published resources.
func (o *Objects) resources() []string { return o.store.ListIndexFuncValues(byResource) }

func resourcesOf(object any) ([]string, error) {
	return slices.Collect(maps.Keys(object.(*published).resources)), nil
}
