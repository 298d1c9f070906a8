// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

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

// watcher stores the pods of this node from a watch at the API server. Reads cost nothing.
type watcher struct {
	ofNode   cache.ListerWatcher
	informer atomic.Pointer[cache.SharedIndexInformer]
	broken   atomic.Pointer[error] // error of the latest attempt to list or watch; nil after a success
}

// newWatcher returns a watcher for the pods of a node; run starts the watch.
func newWatcher(config *rest.Config, node string) (*watcher, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := NewClient(config, &corev1.Pod{}, &corev1.PodList{})
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	ofNode := cache.NewListWatchFromClient(client, "pods", metav1.NamespaceAll,
		fields.OneTermEqualSelector("spec.nodeName", node))
	w := &watcher{ofNode: ofNode}
	list, watch := ofNode.ListWithContextFunc, ofNode.WatchFuncWithContext
	ofNode.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return worked(w, func() (runtime.Object, error) { return list(ctx, o) })
	}
	ofNode.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
		return worked(w, func() (apiwatch.Interface, error) { return watch(ctx, o) })
	}
	return w, w.renew()
}

// worked clears the stored error if an attempt to list or watch succeeds.
func worked[T any](w *watcher, attempt func() (T, error)) (T, error) {
	result, err := attempt()
	if err == nil {
		w.broken.Store(nil)
	}
	return result, err
}

// renew creates a new informer: an informer runs only once.
func (w *watcher) renew() error {
	informer := cache.NewSharedIndexInformer(w.ofNode, &corev1.Pod{}, 0, nil)
	w.informer.Store(&informer)
	return errors.Join(
		informer.SetTransform(slim),
		informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { w.broken.Store(&err) }),
	)
}

// run watches until ctx is done. The next call may follow.
func (w *watcher) run(ctx context.Context) error {
	if (*w.informer.Load()).IsStopped() {
		if err := w.renew(); err != nil {
			return err
		}
	}
	(*w.informer.Load()).RunWithContext(ctx)
	return nil
}

// pods returns the stored pods. The first call waits for the first list, until ctx is done. Without a
// connection to the API server the kubelet gets no new pods either, so stored pods count. If the API server
// refuses access, the kubelet gets new pods but the watcher does not, so stored pods no longer count.
func (w *watcher) pods(ctx context.Context) ([]corev1.Pod, error) {
	informer := *w.informer.Load()
	select {
	case <-informer.HasSyncedChecker().Done():
	case <-ctx.Done():
		err := ctx.Err()
		if broken := w.broken.Load(); broken != nil {
			err = *broken
		}
		return nil, fmt.Errorf("watch the pods of this node at the API server: %w", err)
	}
	if broken := w.broken.Load(); broken != nil && refuses(*broken) {
		return nil, fmt.Errorf("watch the pods of this node at the API server: %w", *broken)
	}
	var pods []corev1.Pod
	for _, object := range informer.GetStore().List() {
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, *pod)
		}
	}
	return pods, nil
}

// refuses reports whether the API server refuses access: the account is unknown or lacks the permission.
func refuses(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// slim removes the fields of a pod that newPod does not read, before the pod is stored.
func slim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	kept := &corev1.Pod{Status: corev1.PodStatus{
		Phase:                       pod.Status.Phase,
		Reason:                      strings.Clone(pod.Status.Reason),
		StartTime:                   pod.Status.StartTime,
		ContainerStatuses:           begun(pod.Status.ContainerStatuses),
		InitContainerStatuses:       begun(pod.Status.InitContainerStatuses),
		EphemeralContainerStatuses:  begun(pod.Status.EphemeralContainerStatuses),
		ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus,
	}}
	kept.ObjectMeta = metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		CreationTimestamp: pod.CreationTimestamp, Annotations: relevant(pod.Annotations),
		OwnerReferences: owners(pod),
	}
	kept.Spec.InitContainers, kept.Spec.Containers = slimmed(pod.Spec.InitContainers),
		slimmed(pod.Spec.Containers)
	kept.Spec.Resources = pod.Spec.Resources
	return kept, nil
}

// relevant returns the annotations that readAnnotations reads. A text beyond the limit remains beyond the
// limit.
func relevant(annotations map[string]string) map[string]string {
	kept := map[string]string{}
	keys := []string{AlignmentKey, corev1.MirrorPodAnnotationKey}
	for _, chooser := range choosers {
		keys = append(keys, chooser.key)
	}
	for _, key := range keys {
		if text, ok := annotations[key]; ok {
			kept[key] = strings.Clone(text[:min(len(text), maxAnnotation+1)])
		}
	}
	return kept
}

// owners returns the owners of a mirror of a static pod, nil for other pods.
func owners(pod *corev1.Pod) []metav1.OwnerReference {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return nil
	}
	return pod.OwnerReferences
}

// begun preserves only the existence of statuses, and of a running container.
func begun(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	kept := make([]corev1.ContainerStatus, min(1, len(statuses)))
	if slices.ContainsFunc(statuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil }) {
		kept[0].State.Running = &corev1.ContainerStateRunning{}
	}
	return kept
}

func slimmed(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for _, c := range containers {
		kept = append(kept, corev1.Container{
			Name:          c.Name,
			RestartPolicy: c.RestartPolicy,
			Resources:     corev1.ResourceRequirements{Limits: c.Resources.Limits, Requests: c.Resources.Requests},
		})
	}
	return kept
}
