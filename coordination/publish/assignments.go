// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// checkpointSubject is the kubelet's device checkpoint as a subject of errors, next to the names of its other
// files.
const checkpointSubject = "device checkpoint"

// assignments are the assignments of pods as read last. An unreadable file changes nothing: without a pod's
// assignment the pod's devices would count as free.
type assignments struct {
	checkpoint *kubelet.CheckpointReader
	devices    kubelet.Reading[deviceHolders]
	cpus       kubelet.Reading[kubelet.CPUState]
	memory     kubelet.Reading[kubelet.MemoryState]
	kubelet    string                     // that ran at the last read of the checkpoint; "" if unknown
	recorded   map[string]kubelet.Devices // by that read, by "pod UID/container"
	ended      map[string]bool            // last holders that the running kubelet has had in its checkpoint
}

// deviceHolders are facts of one moment, which belong together: a list of pods with a pod that the checkpoint
// lacks would tell schedulers that the pod's devices are included.
type deviceHolders struct {
	devices   map[string]kubelet.Devices // by "pod UID/container"
	gone      Gone
	exclusive Exclusive
}

// attempt is the result of reading a subject.
type attempt struct {
	subject string
	err     error
}

// readAll reads the assignments, with the kubelet's list of pods, and adds them to facts. It returns the
// devices of containers, by "pod UID/container".
func (a *assignments) readAll(
	kubeletDir string, list podLister, before holders.Sources, f *Facts,
) (held map[string]kubelet.Devices, all []attempt) {
	devices, err := a.readDevices(kubeletDir, list, before)
	all = append(all, keepLast(&a.devices, checkpointSubject, devices, err))
	known, unknown := a.devices.Get()
	if unknown != nil {
		f.Unread = fmt.Errorf("%w: %w", ErrUnread, err)
	}
	f.Gone, f.Exclusive = known.gone, known.exclusive
	if f.Spec.Kubelet.CPUManagerPolicy == cpuStatic {
		cpus, err := kubelet.ReadCPUState(kubeletDir)
		all = append(all, keepLast(&a.cpus, kubelet.CPUStateFile, cpus, err))
		f.CPUs = a.cpus
	}
	if f.Spec.Kubelet.MemoryManagerPolicy == memoryStatic {
		memory, err := kubelet.ReadMemoryState(kubeletDir)
		all = append(all, keepLast(&a.memory, kubelet.MemoryStateFile, memory, err))
		f.Memory = a.memory
	}
	return known.devices, all
}

// keep replaces the last state by that of an attempt to read. After an error, a state that was read stays.
func keepLast[T any](last *kubelet.Reading[T], subject string, read T, err error) attempt {
	if err == nil || !last.IsKnown() {
		*last = kubelet.Read(read, err)
	}
	return attempt{subject, err}
}

// readDevices reads the devices of pods: those in the checkpoint, and those that the kubelet has lost its
// records of.
func (a *assignments) readDevices(
	kubeletDir string, list podLister, sources holders.Sources,
) (read deviceHolders, err error) {
	recorded, err := a.checkpoint.Read()
	if err != nil {
		return read, fmt.Errorf("%s: %w", kubelet.CheckpointPath(kubeletDir), err)
	}
	read.devices = maps.Clone(recorded.Containers())
	living, exclusive := holders.OfKubelet(), Exclusive{}
	told := list(func(pod *corev1.Pod) { // after the checkpoint
		living.Add(pod)
		exclusive.addPod(pod)
	})
	if told {
		read.exclusive, sources.Pods = exclusive, kubelet.Read(*living, nil)
	}
	sources.Checkpoint = kubelet.Read(recorded, nil)
	sources.Before = a.withoutEnded(recorded, sources)
	read.addHolders(sources)
	return read, nil
}

// withoutEnded returns the last holders without those that the running kubelet has had in its checkpoint, and
// that the checkpoint lacks: they have ended, and their records are not lost. The coordinator looks for
// holders at a question alone, and may last have done so under an earlier kubelet.
func (a *assignments) withoutEnded(
	recorded kubelet.Checkpoint, sources holders.Sources,
) (left holders.Holders) {
	isSame := sources.Life != "" && sources.Life == a.kubelet
	ended := map[string]bool{}
	for _, h := range sources.Before {
		name := h.UID + "/" + h.Name
		_, had := a.recorded[name]
		_, has := recorded.Containers()[name]
		ended[name] = !has && (isSame && had || a.ended[name])
		if !ended[name] {
			left = append(left, h)
		}
	}
	a.kubelet, a.recorded, a.ended = sources.Life, recorded.Containers(), ended
	return left
}

// Gone has the UIDs of pods in the checkpoint that no longer hold anything. An unknown pod still holds the
// checkpoint's devices.
type Gone map[string]bool

// Exclusive are the kubelet's pods with requests for exclusive resources; nil if unknown. The selection is
// that of NodeResourceTopologyMatch, which compares it with its own list: running pods, and ended pods until
// their deletion (pkg/noderesourcetopology/podprovider in sigs.k8s.io/scheduler-plugins, informer mode
// Dedicated).
type Exclusive []types.NamespacedName

// addHolders adds the pods that hold nothing any more, and the containers without a record, according to
// package holders, which the coordinator uses too.
func (d *deviceHolders) addHolders(sources holders.Sources) {
	d.gone = Gone{}
	for container := range d.devices {
		uid, _, _ := strings.Cut(container, "/")
		d.gone[uid] = true
	}
	found := holders.Find(sources).Holders
	for _, h := range found {
		delete(d.gone, h.UID)
		if h.Lost {
			d.devices[h.UID+"/"+h.Name] = h.Devices
		}
	}
}

// podLister calls each with every pod of the kubelet, and returns false if the kubelet does not list pods.
type podLister func(each func(*corev1.Pod)) (told bool)

// addPod adds a pod of the kubelet's list, if the pod requests exclusive resources.
func (e *Exclusive) addPod(p *corev1.Pod) {
	if phase := p.Status.Phase; phase != "" && phase != corev1.PodPending && asksExclusive(p) {
		*e = append(*e, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	}
}

// asksExclusive reports whether a container of a pod asks for devices or, in a pod of class Guaranteed, for
// whole CPUs, memory or huge pages, whichever managers the kubelet has (pkg/noderesourcetopology/
// resourcerequests in sigs.k8s.io/scheduler-plugins).
func asksExclusive(pod *corev1.Pod) bool {
	guaranteed := pod.Status.QOSClass == corev1.PodQOSGuaranteed
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for name, asked := range c.Resources.Requests {
			if !isNative(name) || guaranteed && isWhole(name, asked) {
				return true
			}
		}
	}
	return false
}

// isNative reports whether a resource is a native one of Kubernetes (IsNativeResource in
// pkg/apis/core/v1/helper).
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") ||
		strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

func isWhole(name corev1.ResourceName, asked resource.Quantity) bool {
	switch {
	case name == corev1.ResourceCPU:
		return asked.MilliValue() > 0 && asked.MilliValue()%1000 == 0
	case name == corev1.ResourceMemory, strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return asked.Value() > 0
	default:
		return false
	}
}
