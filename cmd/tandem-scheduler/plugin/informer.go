package plugin

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
)

// byResource is the index of the objects by the names of their resources.
const byResource = "resource"

// informer is that of the scheduler's factory for NodeTopology objects: one for all profiles.
func informer(
	ctx context.Context, factory informers.SharedInformerFactory, objects cache.ListerWatcher,
) (cache.SharedIndexInformer, error) {
	shared := factory.InformerFor(&v1alpha1.NodeTopology{},
		func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(objects, &v1alpha1.NodeTopology{}, resync,
				cache.Indexers{byResource: resources})
		})
	// The factory has put its own transformation in place.
	r := reader{logger: klog.FromContext(ctx).WithName(Name)}
	return shared, shared.SetTransform(r.read)
}

// listWatch reads objects of the API server as JSON: custom resources have no other form.
func listWatch(config *rest.Config) (cache.ListerWatcher, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/apis", &v1alpha1.GroupVersion
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, err
	}
	return cache.NewListWatchFromClient(client, v1alpha1.Plural, "", fields.Everything()), nil
}

func resources(object any) ([]string, error) {
	return slices.Collect(maps.Keys(object.(*published).resources)), nil
}
