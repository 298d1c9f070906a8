// SPDX-License-Identifier: Apache-2.0

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

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// recordedPod is what is known of a pod in the kubelet's record: nothing where it is the zero value.
type recordedPod struct {
	Name   kubelet.Pod
	Static bool // the API server has an object that mirrors it, which may be deleted
	Ended  bool // none of its containers runs, or will
}

// findRecordedPods finds out what there is to know of those pods in the kubelet's record that have devices of
// the node: the state beside package holders, which is a pure function. That a pod is in no list of a kubelet
// that starts, or cannot reach the API server, does not say that it has ended. The Pods API says so: it
// answers once the kubelet knows all its pods. On a kubelet without it the API server does. After an error
// what was known before counts; a pod that was not known before has not ended.
func (d *Driver) findRecordedPods(
	ctx context.Context, recorded kubelet.Checkpoint, pods map[string]bool,
) error {
	all := map[string]bool{} // also those whose devices the node has not at this moment
	for container := range recorded.Containers() {
		all[podOf(container)] = true
	}
	maps.DeleteFunc(d.recorded, func(uid string, _ recordedPod) bool { return !all[uid] })
	for uid := range pods {
		if _, known := d.recorded[uid]; !known {
			d.recorded[uid] = recordedPod{}
		}
	}
	if len(pods) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, holdersLimit)
	defer cancel()
	listed, err := kubelet.ListPods(ctx, d.KubeletDir)
	switch {
	case errors.Is(err, kubelet.ErrNoPodsAPI):
		return d.findByName(ctx, recorded, pods)
	case err != nil:
		return err
	default:
		return d.takeIn(listed)
	}
}

// takeIn takes over what the kubelet's list of pods says of those in its record. A list without the driver's
// own pod says nothing.
func (d *Driver) takeIn(listed []corev1.Pod) error {
	living := holders.OfKubelet(listed)
	if _, own := living.Names[d.PodUID]; d.PodUID != "" && !own {
		return errors.New("list pods of the kubelet: the driver's own pod is not among them")
	}
	for uid := range d.recorded {
		name, lives := living.Names[uid]
		d.recorded[uid] = recordedPod{Name: name, Ended: !lives}
	}
	return nil
}

// findByName asks the API server for the pods in the kubelet's record. The record has UIDs alone: which name
// goes with one PodResources tells, as long as the pod lives, and the API server confirms it.
func (d *Driver) findByName(
	ctx context.Context, recorded kubelet.Checkpoint, pods map[string]bool,
) error {
	candidates, err := d.candidates(ctx, recorded)
	problems := []error{err}
	for uid := range pods {
		known := d.recorded[uid]
		confirmed := known != recordedPod{}
		name := known.Name
		if !confirmed {
			name = candidates[uid]
		}
		if known.Ended || name.Name == "" {
			continue
		}
		pod, err := d.Client.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case err == nil && string(pod.UID) == uid:
			d.recorded[uid] = recordedPod{Name: name, Ended: holders.HasEnded(pod)}
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
func (d *Driver) candidates(
	ctx context.Context, recorded kubelet.Checkpoint,
) (map[string]kubelet.Pod, error) {
	if !slices.Contains(slices.Collect(maps.Values(d.recorded)), recordedPod{}) {
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
	found, _ := holders.Find(holders.Sources{Recorded: &recorded, View: &view})
	for _, h := range found {
		names[h.UID] = h.Pod
	}
	return names, nil
}
