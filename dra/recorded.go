package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// recordedPod is what is known of a pod in the kubelet's record: nothing where it is the zero value.
type recordedPod struct {
	Name   kubelet.Pod
	Static bool // the API server has an object that mirrors it, which may be deleted
	Ended  bool // none of its containers runs, or will
}

// findRecordedPods finds out what there is to know of the pods in the kubelet's record. That a pod is in no
// list of a kubelet that starts, or cannot reach the API server, does not say that it has ended. The Pods API
// says so: it answers once the kubelet knows all its pods. On a kubelet without it the API server does. After
// an error what was known before counts.
func (d *Driver) findRecordedPods(ctx context.Context, recorded []kubelet.Granted) error {
	maps.DeleteFunc(d.recorded, func(uid string, _ recordedPod) bool {
		return !slices.ContainsFunc(recorded, func(c kubelet.Granted) bool { return podUID(c) == uid })
	})
	if len(recorded) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, holdersLimit)
	defer cancel()
	listed, err := kubelet.ListPods(ctx, d.KubeletDir)
	switch {
	case err == nil:
		maps.Copy(d.recorded, podsOf(recorded, listed))
		return nil
	case errors.Is(err, kubelet.ErrNoPodsAPI):
		return d.findByName(ctx, recorded)
	default:
		return err
	}
}

// podsOf is what a list of all pods of the node says of those in the kubelet's record.
func podsOf(recorded []kubelet.Granted, listed []corev1.Pod) map[string]recordedPod {
	pods := map[string]recordedPod{}
	for _, c := range recorded {
		pods[podUID(c)] = recordedPod{Ended: true}
	}
	for i := range listed {
		pod := &listed[i]
		if _, is := pods[string(pod.UID)]; is {
			name := kubelet.Pod{Namespace: pod.Namespace, Name: pod.Name}
			pods[string(pod.UID)] = recordedPod{Name: name, Ended: hasEnded(pod)}
		}
	}
	return pods
}

// hasEnded reports whether no container of a pod runs any more: the kubelet sets the phase of a pod that it
// evicts before it ends its containers.
func hasEnded(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return false
	}
	isRunning := func(c corev1.ContainerStatus) bool { return c.State.Running != nil }
	return !slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
		pod.Status.EphemeralContainerStatuses), isRunning)
}

// findByName asks the API server for the pods in the kubelet's record. The record has UIDs alone: which name
// goes with one PodResources tells, as long as the pod lives, and the API server confirms it.
func (d *Driver) findByName(ctx context.Context, recorded []kubelet.Granted) error {
	candidates, err := d.candidates(ctx, recorded)
	problems := []error{err}
	asked := map[string]bool{}
	for _, c := range recorded {
		uid := podUID(c)
		known, confirmed := d.recorded[uid]
		name := known.Name
		if !confirmed {
			name = candidates[uid]
		}
		if asked[uid] || known.Ended || name.Name == "" {
			continue
		}
		asked[uid] = true
		pod, err := d.Client.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case err == nil && string(pod.UID) == uid:
			d.recorded[uid] = recordedPod{Name: name, Ended: hasEnded(pod)}
		case err == nil && pod.Annotations[configHash] == uid:
			d.recorded[uid] = recordedPod{Name: name, Static: true}
		case err != nil && !apierrors.IsNotFound(err):
			problems = append(problems, fmt.Errorf("ask for pod %s/%s: %w", name.Namespace, name.Name, err))
		case confirmed && !known.Static:
			d.recorded[uid] = recordedPod{Name: name, Ended: true}
		}
	}
	return errors.Join(problems...)
}

// configHash is the annotation of the object for a static pod with the UID by which the kubelet knows that
// (pkg/kubelet/types/pod_update.go).
const configHash = "kubernetes.io/config.hash"

// candidates are names for the pods of the record that have none yet: those that PodResources shows with
// their devices. List can make the kubelet give a device twice where it is allocating one (see package
// kubelet): it is called only as long as a pod has no name.
func (d *Driver) candidates(ctx context.Context, recorded []kubelet.Granted) (map[string]kubelet.Pod, error) {
	isKnown := func(c kubelet.Granted) bool { return d.recorded[podUID(c)] != recordedPod{} }
	unnamed := slices.DeleteFunc(slices.Clone(recorded), isKnown)
	if len(unnamed) == 0 {
		return nil, nil
	}
	resources, err := kubelet.NewPodResources(d.KubeletDir)
	if err != nil {
		return nil, err
	}
	defer resources.Close()
	view, err := resources.List(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]kubelet.Pod{}
	for _, c := range unnamed {
		for resource, ids := range c.Devices {
			if holder, _, held := view.HolderOf(resource, ids); held {
				names[podUID(c)] = holder.Pod
			}
		}
	}
	return names, nil
}
