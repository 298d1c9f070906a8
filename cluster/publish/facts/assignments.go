// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// checkpoint is the kubelet's device checkpoint as a subject of errors, next to the names of its other files.
const checkpoint = "device checkpoint"

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

// read adds the assignments to facts.
func (a *assignments) read(ctx context.Context, r *Reader, f *Facts) {
	add := func(subject string, known bool, err error) {
		if r.works(subject, err) {
			return
		}
		if known {
			f.Stale = errors.Join(f.Stale, err)
		} else {
			f.Unread = errors.Join(f.Unread, fmt.Errorf("%w: %w", ErrUnread, err))
		}
	}
	err := a.readDevices(ctx, r)
	add(checkpoint, a.devices != nil, err)
	if a.devices != nil {
		f.Devices, f.Gone, f.Exclusive = a.devices.devices, a.devices.gone, a.devices.exclusive
	}
	if f.HasCPUs() {
		err := readState(r.config.KubeletDir, CPUStateFile, &a.cpus)
		add(CPUStateFile, a.cpus != nil, err)
		f.CPUs = valueOf(a.cpus)
	}
	if f.HasMemory() {
		err := readState(r.config.KubeletDir, MemoryStateFile, &a.memory)
		add(MemoryStateFile, a.memory != nil, err)
		f.Memory = valueOf(a.memory)
	}
}

func valueOf[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// readDevices reads the devices of pods. An absent checkpoint is empty, because no pod has had a device yet.
func (a *assignments) readDevices(ctx context.Context, r *Reader) error {
	recorded, err := a.checkpoint.Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", kubelet.CheckpointPath(r.config.KubeletDir), err)
	}
	read := &deviceHolders{devices: held(recorded)}
	var living *holders.Pods
	if pods, told := r.pods(ctx); told { // after the checkpoint
		living, read.exclusive = holders.OfKubelet(pods), exclusive(pods)
	}
	read.gone = gone(recorded, living)
	a.devices = read
	return nil
}
