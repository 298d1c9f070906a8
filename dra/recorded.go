// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// recordedLimit is the timeout of the kubelet and the API server for the facts about all pods.
const recordedLimit = 5 * time.Second

// recordedPods tracks names and ends of the pods in the kubelet's device checkpoint. Package holders itself
// is a pure function.
type recordedPods struct {
	client     kubernetes.Interface
	kubeletDir string
	ownUID     string // UID of the driver's pod, "" if unknown

	pods map[string]recordedPod // by UID
}

// recordedPod contains the known facts about a pod in the checkpoint; the zero value means none.
type recordedPod struct {
	Name   kubelet.Pod
	Static bool // the API server has a mirror object, which users may delete
	Ended  bool // no container runs or will run
}

// update refreshes names and ends, for the given pods with devices of the node. Absence from a list of a
// starting kubelet, or of a kubelet without connection to the API server, does not mean that a pod has ended.
// The Pods API is reliable: it answers once the kubelet knows all pods. Without the Pods API the API server
// is the source. After an error the previous facts remain; an unknown pod counts as running.
func (r *recordedPods) update(ctx context.Context, recorded kubelet.Checkpoint, pods map[string]bool) error {
	all := map[string]bool{} // includes pods whose devices the node lacks at the moment
	for container := range recorded.Containers() {
		all[podOf(container)] = true
	}
	maps.DeleteFunc(r.pods, func(uid string, _ recordedPod) bool { return !all[uid] })
	for uid := range pods {
		if _, known := r.pods[uid]; !known {
			r.pods[uid] = recordedPod{}
		}
	}
	if len(pods) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recordedLimit)
	defer cancel()
	listed, err := kubelet.ListPods(ctx, r.kubeletDir)
	switch {
	case errors.Is(err, kubelet.ErrNoPodsAPI):
		return r.confirm(ctx, recorded, pods)
	case err != nil:
		return err
	default:
		return r.adopt(listed)
	}
}

// adopt applies the kubelet's list of pods. It rejects a list without the driver's own pod.
func (r *recordedPods) adopt(listed []corev1.Pod) error {
	living := holders.OfKubelet(listed)
	if _, own := living.Names[r.ownUID]; r.ownUID != "" && !own {
		return errors.New("list pods of the kubelet: the driver's own pod is not among them")
	}
	for uid := range r.pods {
		name, lives := living.Names[uid]
		r.pods[uid] = recordedPod{Name: name, Ended: !lives}
	}
	return nil
}

// confirm asks the API server for pods. The checkpoint contains only UIDs; PodResources gives the name of a
// UID while the pod lives, and the API server confirms the name.
func (r *recordedPods) confirm(ctx context.Context, recorded kubelet.Checkpoint, pods map[string]bool) error {
	candidates, err := r.candidates(ctx, recorded)
	problems := []error{err}
	for uid := range pods {
		known := r.pods[uid]
		confirmed := known != recordedPod{}
		name := known.Name
		if !confirmed {
			name = candidates[uid]
		}
		if known.Ended || name.Name == "" {
			continue
		}
		pod, err := r.client.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case err == nil && string(pod.UID) == uid:
			r.pods[uid] = recordedPod{Name: name, Ended: kubelet.HasEnded(pod)}
		case err == nil && pod.Annotations[configHash] == uid:
			r.pods[uid] = recordedPod{Name: name, Static: true}
		case err != nil && !apierrors.IsNotFound(err):
			problems = append(problems, fmt.Errorf("ask for pod %s/%s: %w", name.Namespace, name.Name, err))
		case confirmed && !known.Static:
			r.pods[uid] = recordedPod{Name: name, Ended: true}
		}
	}
	return errors.Join(problems...)
}

// configHash is the annotation of a static pod's mirror object with the UID that the kubelet uses
// (pkg/kubelet/types/pod_update.go).
const configHash = "kubernetes.io/config.hash"

// candidates returns names for pods without a name: those that PodResources lists with the same devices. List
// can make a kubelet assign a device twice during an allocation (see package kubelet), so the call is limited
// to the time in which a pod has no name.
func (r *recordedPods) candidates(
	ctx context.Context, recorded kubelet.Checkpoint,
) (map[string]kubelet.Pod, error) {
	if !slices.Contains(slices.Collect(maps.Values(r.pods)), recordedPod{}) {
		return nil, nil
	}
	resources, err := kubelet.NewPodResources(r.kubeletDir)
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

// living returns the pods with devices of the node that are not known to have ended.
func (r *recordedPods) living() *holders.Pods {
	living := &holders.Pods{Names: map[string]kubelet.Pod{}, All: true}
	for uid, pod := range r.pods {
		if !pod.Ended {
			living.Names[uid] = pod.Name
		}
	}
	return living
}

// podOf returns the UID of the pod of a container in the checkpoint.
func podOf(container string) string {
	uid, _, _ := strings.Cut(container, "/")
	return uid
}
