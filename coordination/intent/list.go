// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// lister calls each with every pod of the kubelet.
type lister func(ctx context.Context, each func(kubelet.EncodedPod) error) error

// reducer reads lists of pods, one at a time, and keeps what is read of the last list's pods: a pod that has
// not changed is not decoded again.
type reducer struct {
	config  Config
	known   map[uint64]reduction // by content
	scratch corev1.Pod
}

// reduction is what is kept of a pod.
type reduction struct {
	pod      *Pod      // nil for an ended pod, and for one that requests no device
	rejected *Rejected // nil unless the kubelet's Topology Manager has rejected the pod
	since    time.Time // of the rejection
	size     int       // number of containers and requests
}

// Limits of what is kept.
const (
	maxKept  = 1 << 17 // containers and requests of all pods, which take some 20 MiB
	maxKnown = 1 << 12 // pods of lists that could not be read to the end
)

// readList returns the living pods that request devices.
func (r *reducer) readList(ctx context.Context, list lister) ([]Pod, error) {
	seen, a := map[uint64]reduction{}, answer{now: time.Now()}
	err := list(ctx, func(e kubelet.EncodedPod) error {
		sum := e.Sum()
		kept, known := r.known[sum]
		if !known {
			if err := e.Decode(&r.scratch, annotationKeys...); err != nil {
				return err
			}
			kept = reducePod(&r.scratch, r.config.Policy)
		}
		seen[sum] = kept
		return a.addPod(kept)
	})
	switch {
	case err == nil, len(r.known) > maxKnown:
		r.known = seen
	case r.known == nil:
		r.known = seen
	default:
		maps.Copy(r.known, seen)
	}
	return a.tellPods(r.config, err)
}

// reduceRead returns a source's function for pods that are read in another way.
func reduceRead(read Reader, config Config) func(context.Context) ([]Pod, error) {
	return func(ctx context.Context) ([]Pod, error) {
		pods, err := read(ctx)
		a := answer{now: time.Now()}
		for i := range pods {
			if err == nil {
				err = a.addPod(reducePod(&pods[i], config.Policy))
			}
		}
		return a.tellPods(config, err)
	}
}

// answer collects the pods of a list.
type answer struct {
	now      time.Time
	pods     []Pod
	rejected []Rejected
	size     int
}

func (a *answer) addPod(kept reduction) error {
	a.size += kept.size
	if a.size > maxKept {
		return fmt.Errorf("%w: its containers have more than %d requests", kubelet.ErrTooLarge, maxKept)
	}
	if kept.pod != nil {
		a.pods = append(a.pods, *kept.pod)
	}
	if kept.rejected != nil && a.now.Sub(kept.since) <= rejectedFor {
		a.rejected = append(a.rejected, *kept.rejected)
	}
	return nil
}

// tellPods returns the pods, and reports the rejected ones.
func (a *answer) tellPods(config Config, err error) ([]Pod, error) {
	if err != nil {
		return nil, err
	}
	if config.Rejected != nil {
		config.Rejected(a.rejected)
	}
	return a.pods, nil
}

// reducePod returns what is kept of a pod.
func reducePod(p *corev1.Pod, policy Policy) (kept reduction) {
	kept.rejected, kept.since = rejectedPod(p)
	if kubelet.HasEnded(p) {
		return kept
	}
	pod := newPod(p, policy)
	var last map[string]int
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if maps.Equal(c.Requests, last) { // as in most pods with many containers
			c.Requests = last
		} else {
			kept.size += len(c.Requests)
		}
		last = c.Requests
	}
	kept.size += len(pod.Containers)
	if kept.size > 0 {
		kept.pod = &pod
	}
	return kept
}

// ServerConfig returns the given configuration or, for nil, the configuration for processes in a pod. The
// error contains advice if the pod has no service account token.
func ServerConfig(given *rest.Config) (*rest.Config, error) {
	if given != nil {
		return given, nil
	}
	inCluster, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server, set automountServiceAccountToken: true: %w", err)
	}
	return inCluster, nil
}

// NewClient returns a client of the API server for some types of the core group. client-go's clientset
// contains all APIs of Kubernetes, which adds 23 MB to a program.
func NewClient(config *rest.Config, types ...runtime.Object) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, types...)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}
