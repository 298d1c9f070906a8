// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

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
}

// deviceHolders are facts of one moment, which belong together: a list of pods with a pod that the checkpoint
// lacks would tell schedulers that the pod's devices are included.
type deviceHolders struct {
	devices   []Held
	gone      Gone
	exclusive Exclusive
}

// attempt is the result of reading a subject.
type attempt struct {
	subject string
	err     error
}

// read reads the assignments, with the kubelet's list of pods, and adds them to facts.
func (a *assignments) read(kubeletDir string, list podLister, f *Facts) (all []attempt) {
	devices, err := a.readDevices(kubeletDir, list)
	all = append(all, keep(&a.devices, checkpointSubject, devices, err))
	known, unknown := a.devices.Get()
	if unknown != nil {
		f.Unread = fmt.Errorf("%w: %w", ErrUnread, err)
	}
	f.Devices, f.Gone, f.Exclusive = known.devices, known.gone, known.exclusive
	if f.Kubelet.CPUManagerPolicy == CPUStatic {
		cpus, err := kubelet.ReadCPUState(kubeletDir)
		all = append(all, keep(&a.cpus, kubelet.CPUStateFile, cpus, err))
		f.CPUs = a.cpus
	}
	if f.Kubelet.MemoryManagerPolicy == MemoryStatic {
		memory, err := kubelet.ReadMemoryState(kubeletDir)
		all = append(all, keep(&a.memory, kubelet.MemoryStateFile, memory, err))
		f.Memory = a.memory
	}
	return all
}

// keep replaces the last state by that of an attempt to read. After an error, a state that was read stays.
func keep[T any](last *kubelet.Reading[T], subject string, read T, err error) attempt {
	if err == nil || !last.IsKnown() {
		*last = kubelet.Read(read, err)
	}
	return attempt{subject, err}
}

// readDevices reads the devices of pods.
func (a *assignments) readDevices(kubeletDir string, list podLister) (read deviceHolders, err error) {
	recorded, err := a.checkpoint.Read()
	if err != nil {
		return read, fmt.Errorf("%s: %w", kubelet.CheckpointPath(kubeletDir), err)
	}
	read.devices = held(recorded)
	living, exclusive := holders.OfKubelet(), Exclusive{}
	told := list(func(pod *corev1.Pod) { // after the checkpoint
		living.Add(pod)
		exclusive.add(pod)
	})
	var pods kubelet.Reading[holders.Pods]
	if told {
		read.exclusive, pods = exclusive, kubelet.Read(*living, nil)
	}
	read.gone = gone(recorded, pods)
	return read, nil
}
