// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// recordedLimit is the timeout of the kubelet and the API server for the facts about all pods.
const recordedLimit = 5 * time.Second

// recordedPods tracks names and ends of the pods in the kubelet's device checkpoint, and in that of a kubelet
// before that has lost its records. Package holders itself is a pure function.
type recordedPods struct {
	client  kubernetes.Interface
	kubelet Kubelet
	ownUID  string // UID of the driver's pod, "" if unknown
	now     func() time.Time

	pods map[string]recordedPod // by UID; includes pods whose devices the node lacks at the moment
}

// recordedPod contains the known facts about a pod in the checkpoint; the zero value means none.
type recordedPod struct {
	Name  kubelet.Pod
	Ended bool // no container runs or will run
	// Grace is the time for which containers may run after the pod's deletion from the API server.
	Grace   time.Duration
	Missing time.Time // when the API server first lacked the pod; zero while the API server has the pod
}

// update refreshes names and ends of the holders' pods; it asks for those with devices of the node. Absence
// from a list of a starting kubelet, or of a kubelet without connection to the API server, does not mean that
// a pod has ended. The Pods API is reliable: it answers once the kubelet knows all pods. Without the Pods
// API, or with another version of it, the API server is the source. After an error the previous facts remain;
// an unknown pod counts as running.
func (r *recordedPods) update(
	ctx context.Context, recorded kubelet.Reading[kubelet.Checkpoint], holding holders.Holders,
	pods map[string]bool,
) error {
	all := map[string]bool{}
	for _, h := range holding {
		all[h.UID] = true
	}
	maps.DeleteFunc(r.pods, func(uid string, _ recordedPod) bool { return !all[uid] })
	for uid := range all {
		if _, known := r.pods[uid]; !known {
			r.pods[uid] = recordedPod{}
		}
	}
	if len(pods) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recordedLimit)
	defer cancel()
	listed, err := r.kubelet.Pods(ctx)
	switch {
	case errors.Is(err, kubelet.ErrNoPodsAPI), status.Code(err) == codes.Unimplemented: // or another version
		read, err := recorded.Get()
		if err != nil {
			return err
		}
		return r.confirm(ctx, read, pods)
	case err != nil:
		return err
	default:
		return r.adopt(listed)
	}
}

// adopt applies the kubelet's list of pods. It rejects a list without the driver's own pod.
func (r *recordedPods) adopt(listed []corev1.Pod) error {
	living := holders.OfKubelet()
	for i := range listed {
		living.Add(&listed[i])
	}
	if _, own := living.Names[r.ownUID]; r.ownUID != "" && !own {
		return errors.New("list pods of the kubelet: the driver's own pod is not among them")
	}
	for uid := range r.pods {
		name, lives := living.Names[uid]
		r.pods[uid] = recordedPod{Name: name, Ended: !lives}
	}
	return nil
}

// candidates returns names for pods without a name: those that PodResources lists with the same devices. List
// can make a kubelet assign a device twice during an allocation (see package kubelet), so the call is limited
// to the time in which a pod has no name.
func (r *recordedPods) candidates(
	ctx context.Context, recorded kubelet.Checkpoint, pods map[string]bool,
) (map[string]kubelet.Pod, error) {
	unnamed := func(uid string) bool { return r.pods[uid] == recordedPod{} }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(pods)), unnamed) {
		return nil, nil
	}
	view, err := r.kubelet.List(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]kubelet.Pod{}
	found, _ := holders.Find(holders.Sources{
		Recorded: kubelet.Read(recorded, nil), View: kubelet.Read(view, nil),
	})
	for _, h := range found {
		names[h.UID] = h.Pod
	}
	return names, nil
}

// told returns the pods that a list has named and that are not known to have ended.
func (r *recordedPods) told() map[string]holders.Known {
	told := map[string]holders.Known{}
	for uid, pod := range r.pods {
		told[uid] = holders.Known{Told: pod.Name != kubelet.Pod{} && !pod.Ended}
	}
	return told
}

// living returns the pods that are not known to have ended.
func (r *recordedPods) living() holders.Pods {
	living := holders.Pods{Names: map[string]kubelet.Pod{}, All: true}
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

// containerOf returns the name of a container in the checkpoint.
func containerOf(container string) string {
	_, name, _ := strings.Cut(container, "/")
	return name
}

// sameDevices compares lists of device IDs in any order.
func sameDevices(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
