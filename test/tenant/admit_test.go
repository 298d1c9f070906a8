// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/test/published"
)

// Devices of the machine: a GPU with the VF on its switch, and a GPU and a VF of other switches.
const (
	gpu, vf       = "0000:11:00.0", "0000:0c:00.1"
	farGPU, farVF = "0000:8b:00.0", "0000:58:00.1"
)

// holder is another owner's running pod with all devices that are not free.
const holder = "holder"

// newPod returns a pod of another owner than the tenant. It wants GPUs and VFs, in pairs on one switch each.
func newPod(name string, gpus, vfs int) corev1.Pod {
	now := metav1.Now()
	wanted := corev1.ResourceList{
		gpuName: *resource.NewQuantity(int64(gpus), resource.DecimalSI),
		vfName:  *resource.NewQuantity(int64(vfs), resource.DecimalSI),
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: now,
			Annotations: map[string]string{intent.AlignmentKey: string(intent.Required)},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Limits: wanted, Requests: wanted},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// record writes the kubelet's checkpoint: the holder has its devices.
func (n *node) record(t testing.TB, held map[string][]string) {
	t.Helper()
	var entries []published.Entry
	for resource, ids := range held {
		entries = append(entries, published.Give("uid-"+holder, "c", resource, ids...))
	}
	if err := published.WriteCheckpoint(n.dir, entries...); err != nil {
		t.Fatal(err)
	}
}

// leave leaves only some devices of the node free.
func (n *node) leave(t testing.TB, free ...string) {
	t.Helper()
	held := map[string][]string{}
	for resource, ids := range n.ids {
		isFree := func(id string) bool { return slices.Contains(free, id) }
		held[resource] = slices.DeleteFunc(slices.Clone(ids), isFree)
	}
	pod := newPod(holder, len(held[gpuName]), len(held[vfName]))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &pod.CreationTimestamp}
	n.change(func() {
		n.others, n.held = []corev1.Pod{pod}, map[string]map[string][]string{holder: held}
	})
	n.record(t, held)
}

// admit admits a pod for one GPU and one VF as the kubelet does, and returns what it was given. An error is
// the refusal of a plugin.
func (n *node) admit(t testing.TB, gpus, vfs []string) (gpu, vf, file string, refusal error) {
	t.Helper()
	n.leave(t, slices.Concat(gpus, vfs)...)
	pod := newPod(n.newName(), 1, 1)
	n.change(func() { n.others = append(n.others, pod) })
	gpu = n.prefer(t, gpuName, gpus)
	if _, err := n.plugins[gpuName].Allocate(t.Context(), gpu); err != nil {
		return gpu, "", "", err
	}
	n.change(func() { n.held[pod.Name] = map[string][]string{gpuName: {gpu}} })
	vf = n.prefer(t, vfName, vfs)
	answer, err := n.plugins[vfName].Allocate(t.Context(), vf)
	if err != nil {
		return gpu, vf, "", err
	}
	for _, m := range answer.GetMounts() {
		if m.GetContainerPath() == pairs.Mount {
			file = m.GetHostPath()
		}
	}
	return gpu, vf, file, nil
}

// isRight admits two pods, and returns an error unless the first gets the pair of free devices on one switch
// and a file with it, and the second, for which there is none, is refused.
func (n *node) isRight(t testing.TB) error {
	t.Helper()
	gotGPU, gotVF, file, refusal := n.admit(t, []string{farGPU, gpu}, []string{vf, farVF})
	if refusal != nil {
		return fmt.Errorf("another owner's pod is refused: %w", refusal)
	}
	if gotGPU != gpu || gotVF != vf {
		return fmt.Errorf("another owner's pod gets GPU %s and VF %s, want %s and %s", gotGPU, gotVF, gpu, vf)
	}
	written, err := pairs.Read(file)
	if err != nil {
		return err
	}
	if w := written.Pairs; len(w) != 1 || w[0].GPU == nil || w[0].GPU.ID != gpu || w[0].VF.ID != vf {
		return fmt.Errorf("another owner's pairs file has %+v, want the pair of %s and %s", w, gpu, vf)
	}
	if gotGPU, gotVF, _, refusal = n.admit(t, []string{gpu}, []string{farVF}); refusal == nil {
		return fmt.Errorf("another owner's pod gets GPU %s and VF %s of different switches", gotGPU, gotVF)
	}
	return nil
}

// patience is how long another owner's pods come before their answers count as wrong: on a busy machine a
// source of requests is late at times, and a plugin does without it until the end of a pause.
const patience = time.Minute

// becomesRight returns the last error unless the answers to others become right.
func (n *node) becomesRight(t testing.TB) (err error) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = n.isRight(t); err == nil {
			return nil
		}
	}
	return err
}

// judge fails the test unless the answers to others are right beside a tenant's pods. Without the pods the
// answers are right as soon as the machine has time for it.
func (n *node) judge(t testing.TB, pods []corev1.Pod) {
	t.Helper()
	n.setTenant(nil)
	if err := n.becomesRight(t); err != nil {
		t.Fatalf("without a tenant: %v", err)
	}
	n.setTenant(pods)
	if err := n.becomesRight(t); err != nil {
		t.Errorf("beside a tenant's pods: %v", err)
	}
}
