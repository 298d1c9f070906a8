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

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// updatePods refreshes names and ends of the holders' pods; it asks for those with devices of the node.
// Absence from a list of a starting kubelet, or of a kubelet without connection to the API server, does not
// mean that a pod has ended. The Pods API is reliable: it answers once the kubelet knows all pods. Without
// the Pods API, or with another version of it, the API server is the source. After an error the previous
// facts remain; an unknown pod counts as running.
func (r *recordedPods) updatePods(
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
		return r.confirmPods(ctx, read, pods)
	case err != nil:
		return err
	default:
		return r.adoptList(listed)
	}
}

// adoptList applies the kubelet's list of pods. It rejects a list without the driver's own pod.
func (r *recordedPods) adoptList(listed []corev1.Pod) error {
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

// findCandidates returns names for pods without a name: those that PodResources lists with the same devices.
// List can make a kubelet assign a device twice during an allocation (see package kubelet), so the call is
// limited to the time in which a pod has no name.
func (r *recordedPods) findCandidates(
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
	found := holders.Find(holders.Sources{
		Checkpoint: kubelet.Read(recorded, nil), View: kubelet.Read(view, nil),
	}).Holders
	for _, h := range found {
		names[h.UID] = h.Pod
	}
	return names, nil
}

// toldPods returns the pods that a list has named and that are not known to have ended.
func (r *recordedPods) toldPods() map[string]holders.Known {
	told := map[string]holders.Known{}
	for uid, pod := range r.pods {
		told[uid] = holders.Known{Told: pod.Name != kubelet.Pod{} && !pod.Ended}
	}
	return told
}

// livingPods returns the pods that are not known to have ended.
func (r *recordedPods) livingPods() holders.Pods {
	living := holders.Pods{Names: map[string]kubelet.Pod{}, All: true}
	for uid, pod := range r.pods {
		if !pod.Ended {
			living.Names[uid] = pod.Name
		}
	}
	return living
}

// confirmPods asks the API server for pods. The checkpoint contains only UIDs; PodResources gives the name of
// a UID while the pod lives, and the API server confirms the name.
func (r *recordedPods) confirmPods(
	ctx context.Context, recorded kubelet.Checkpoint, pods map[string]bool,
) error {
	candidates, err := r.findCandidates(ctx, recorded, pods)
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
			r.pods[uid] = recordedPod{Name: name, Ended: kubelet.HasEnded(pod), Grace: graceOf(pod)}
		case err != nil && !apierrors.IsNotFound(err):
			problems = append(problems, fmt.Errorf("ask for pod %s/%s: %w", name.Namespace, name.Name, err))
		case confirmed:
			problems = append(problems, r.confirmDeleted(ctx, recorded, uid))
		}
	}
	return errors.Join(problems...)
}

// graceOf returns the time that the kubelet gives the containers of a deleted pod.
func graceOf(pod *corev1.Pod) time.Duration {
	seconds := pod.Spec.TerminationGracePeriodSeconds
	if pod.DeletionGracePeriodSeconds != nil {
		seconds = pod.DeletionGracePeriodSeconds
	}
	if seconds == nil {
		return 0
	}
	return time.Duration(*seconds) * time.Second
}

// confirmDeleted judges a pod that the API server no longer has. A forced deletion removes the object at
// once, while containers run for their grace period, and longer if the kubelet cannot reach the API server.
// The pod has ended after the grace period, if PodResources does not list the pod's devices.
func (r *recordedPods) confirmDeleted(ctx context.Context, recorded kubelet.Checkpoint, uid string) error {
	pod := r.pods[uid]
	if pod.Missing.IsZero() {
		pod.Missing = r.now()
	}
	listed, err := r.listsPod(ctx, recorded, uid)
	pod.Ended = err == nil && !listed && r.now().Sub(pod.Missing) >= pod.Grace
	r.pods[uid] = pod
	return err
}

// listsPod reports whether PodResources lists a pod with the devices of the checkpoint. It uses Get, which
// changes nothing in the kubelet, unlike List. A kubelet without Get lists nothing.
func (r *recordedPods) listsPod(ctx context.Context, recorded kubelet.Checkpoint, uid string) (bool, error) {
	name := r.pods[uid].Name
	view, err := r.kubelet.Get(ctx, name)
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		return false, err
	}
	for container, devices := range recorded.Containers() {
		pod, its, _ := strings.Cut(container, "/")
		one := kubelet.Container{Pod: name, Name: its}
		if pod == uid && maps.EqualFunc(devices, view.Containers[one], sameDevices) {
			return true, nil
		}
	}
	return false, nil
}

// sameDevices compares lists of device IDs in any order.
func sameDevices(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
