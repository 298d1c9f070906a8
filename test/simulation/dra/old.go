// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// oldPods are the kubelet's records of pods with devices from device plugins, from before the node changed to
// DRA. The checkpoint keeps a pod after its end.
type oldPods struct {
	node *Node

	mu     sync.Mutex
	living []oldPod
	absent bool // no record is answered
	hidden bool // the kubelet has just started, and lists no pod yet
	late   time.Duration
}

// oldPod is a pod with devices.
type oldPod struct {
	kubelet.Pod
	uid     string
	devices kubelet.Devices
}

var errAway = errors.New("away")

func newOldPods(n *Node) *oldPods { return &oldPods{node: n} }

// migrate gives a GPU and a VF each to two pods.
func (o *oldPods) migrate() error {
	gpus, _ := o.node.hardware.GPUs()
	var vfs []string
	for d := range o.node.hardware.Present().Devices() {
		if d.IsVF() && len(d.RDMA) > 0 {
			vfs = append(vfs, d.Address.String())
		}
	}
	for i := range 2 {
		pod := oldPod{
			Pod: kubelet.Pod{Namespace: "team", Name: fmt.Sprint("old-", i)}, uid: fmt.Sprint("old-uid-", i),
			devices: kubelet.Devices{model.GPUs: {gpus[i].Address.String()}, model.VFs: {vfs[i]}},
		}
		o.living = append(o.living, pod)
		o.node.server.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.uid),
		}})
	}
	return o.write()
}

// write writes the kubelet's checkpoint with the living pods. A kubelet does so five minutes after its start,
// or after the end of the device plugins.
func (o *oldPods) write() error {
	type entry struct {
		PodUID, ContainerName, ResourceName string
		DeviceIDs                           map[string][]string
	}
	var file struct {
		Data struct {
			PodDeviceEntries  []entry
			RegisteredDevices map[string][]string
		}
	}
	for _, pod := range o.living {
		for resource, ids := range pod.devices {
			file.Data.PodDeviceEntries = append(file.Data.PodDeviceEntries, entry{
				pod.uid, "main", resource, map[string][]string{"-1": ids},
			})
		}
	}
	content, err := json.Marshal(file)
	if err != nil {
		return fmt.Errorf("encode the kubelet's checkpoint: %w", err)
	}
	return os.WriteFile(kubelet.CheckpointPath(o.node.kubeletDir()), content, 0o600)
}

// end ends the first pod, and returns its name; "" for none.
func (o *oldPods) end() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.living) == 0 {
		return ""
	}
	pod := o.living[0]
	o.living = o.living[1:]
	apiserver.Remove[*corev1.Pod](o.node.server, pod.Namespace, pod.Name)
	return pod.Name
}

// holders returns the holders of devices, for people, as the driver calls them.
func (o *oldPods) holders() map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	held := map[string]string{}
	for _, pod := range o.living {
		for _, ids := range pod.devices {
			for _, id := range ids {
				held[id] = "pod " + pod.Namespace + "/" + pod.Name + ", by a device plugin"
			}
		}
	}
	return held
}

// disturb changes the answers of the records.
func (o *oldPods) disturb(absent bool, late time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.absent, o.late = absent, late
}

// hide makes the records show no pod, or all again.
func (o *oldPods) hide(hidden bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hidden = hidden
}

// answer waits for an answer, and returns the pods, and whether the kubelet lists pods yet.
func (o *oldPods) answer(ctx context.Context) (living []oldPod, lists bool, err error) {
	o.mu.Lock()
	late := o.late
	o.mu.Unlock()
	if late > 0 {
		seeds.Pause(ctx, late)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.absent:
		return nil, false, errAway
	case o.hidden:
		return nil, false, ctx.Err()
	default:
		return slices.Clone(o.living), true, ctx.Err()
	}
}

// Pods returns all pods, with those of the driver.
func (o *oldPods) Pods(ctx context.Context) ([]corev1.Pod, error) {
	if !o.node.options.PodsAPI {
		return nil, kubelet.ErrNoPodsAPI
	}
	living, lists, err := o.answer(ctx)
	if !lists {
		return nil, err
	}
	var pods []corev1.Pod
	add := func(name, uid string) {
		pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(uid),
		}})
	}
	for _, pod := range living {
		add(pod.Name, pod.uid)
	}
	for i := range o.node.started {
		uid := fmt.Sprint("driver-", i+1)
		add(uid, uid)
	}
	return pods, err
}

// List is PodResources List: of all pods, also of that of the driver. The kubelet runs no pod that the API
// server does not have: pods that are deleted by force end.
func (o *oldPods) List(ctx context.Context) (kubelet.View, error) {
	living, lists, err := o.answer(ctx)
	view := kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}}
	if lists {
		for _, pod := range apiserver.List[*corev1.Pod](o.node.server) {
			view.Pods = append(view.Pods, kubelet.Pod{Namespace: pod.Namespace, Name: pod.Name})
		}
		view.Pods = append(view.Pods, kubelet.Pod{Namespace: "kube-system", Name: "driver"})
	}
	for _, pod := range living {
		view.Containers[kubelet.Container{Pod: pod.Pod, Name: "main"}] = pod.devices
	}
	return view, err
}

// Get is PodResources Get.
func (o *oldPods) Get(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
	view, err := o.List(ctx)
	view.Pods = slices.DeleteFunc(view.Pods, func(p kubelet.Pod) bool { return p != pod })
	for container := range view.Containers {
		if container.Pod != pod {
			delete(view.Containers, container)
		}
	}
	return view, err
}
