// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"errors"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// checkpointSubject is the kubelet's device checkpoint as a subject of errors, next to the names of its other
// files.
const checkpointSubject = "device checkpoint"

// assignments are the assignments of pods as read last, each nil if never read. An unreadable file changes
// nothing: without a pod's assignment the pod's devices would count as free.
type assignments struct {
	checkpoint *kubelet.CheckpointReader
	devices    *deviceHolders
	cpus       *CPUState
	memory     *MemoryState
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
	known   bool // by this attempt or an earlier one
	err     error
}

// read reads the assignments, with the kubelet's list of pods, and adds them to facts.
func (a *assignments) read(kubeletDir string, list func() ([]corev1.Pod, bool), f *Facts) (all []attempt) {
	err := a.readDevices(kubeletDir, list)
	all = append(all, attempt{checkpointSubject, a.devices != nil, err})
	if a.devices != nil {
		f.Devices, f.Gone, f.Exclusive = a.devices.devices, a.devices.gone, a.devices.exclusive
	}
	if f.HasCPUs() {
		err := readState(kubeletDir, CPUStateFile, &a.cpus)
		all = append(all, attempt{CPUStateFile, a.cpus != nil, err})
		f.CPUs = valueOf(a.cpus)
	}
	if f.HasMemory() {
		err := readState(kubeletDir, MemoryStateFile, &a.memory)
		all = append(all, attempt{MemoryStateFile, a.memory != nil, err})
		f.Memory = valueOf(a.memory)
	}
	return all
}

func valueOf[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// readDevices reads the devices of pods. An absent checkpoint is empty, because no pod has had a device yet.
func (a *assignments) readDevices(kubeletDir string, list func() ([]corev1.Pod, bool)) error {
	recorded, err := a.checkpoint.Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", kubelet.CheckpointPath(kubeletDir), err)
	}
	read := &deviceHolders{devices: held(recorded)}
	var living *holders.Pods
	if pods, told := list(); told { // after the checkpoint
		living, read.exclusive = holders.OfKubelet(pods), exclusive(pods)
	}
	read.gone = gone(recorded, living)
	a.devices = read
	return nil
}
