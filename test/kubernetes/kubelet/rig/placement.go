// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/best"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/topology"
)

// Placement is what one container of an admitted pod got.
type Placement struct {
	Container string
	NUMA      []int    // nodes that the topology manager chose; none where no device has a hint
	Asked     []string // its resources in the order in which the kubelet allocated them
	GPUs, VFs []Device // in the order in which the container finds them

	Levels  []topology.Level // how far its first GPU is from its first VF, and so on
	Pairs   best.Pairs       // how many there are of each level
	Matched best.Pairs       // the best that can be made of these devices in any order
	Best    best.Pairs       // the best of all devices that were free on the NUMA nodes
	ForGPUs best.Pairs       // the best of all such VFs for these GPUs
	ForVFs  best.Pairs       // the best of all such GPUs for these VFs
	PFs     int              // of how many PFs the VFs could have been

	PairsFile error // what is wrong with its pairs file
	Told      bool  // nothing is, and its variables name the same pairs

	Log []pair.Line // what the daemons logged while the pod was admitted
}

// IsPaired reports whether the container has both GPUs and VFs.
func (p Placement) IsPaired() bool { return len(p.GPUs) > 0 && len(p.VFs) > 0 }

// Admit lets the node admit a pod and returns a placement for each container with devices, in the order of
// admission. A refusal by the kubelet is a *node.Rejection. Any other error means that kubelet, daemons or
// rig contradict each other.
func (r *Rig) Admit(ctx context.Context, pod *v1.Pod) ([]Placement, error) {
	position, start := r.Pair.Log.Len(), time.Now()
	if err := r.admit(pod); err != nil {
		return nil, err
	}
	placements, err := r.place(ctx, pod)
	if err != nil {
		lines, _ := r.Pair.Log.Since(position)
		return nil, fmt.Errorf("check pod %s: %w\n%s", pod.Name, err, pair.Text(lines))
	}
	if err := r.readLog(ctx, placements, position, start); err != nil {
		return nil, fmt.Errorf("check pod %s: %w", pod.Name, err)
	}
	return placements, nil
}

// AdmitBlind is Admit for when the daemons or the kubelet may die meanwhile: it finds devices with two owners
// and judges nothing.
func (r *Rig) AdmitBlind(pod *v1.Pod) error {
	if err := r.admit(pod); err != nil {
		return err
	}
	err := r.eachContainer(pod, func(a *admission, c v1.Container, devices map[string][]string) error {
		return a.checkFree(devices)
	})
	if err != nil {
		return fmt.Errorf("check pod %s: %w", pod.Name, err)
	}
	return nil
}

// Release notes that a pod has ended. Remove does that too.
func (r *Rig) Release(pod *v1.Pod) {
	r.held.release(pod.UID)
	if r.API != nil {
		r.API.setStatus(pod, func(status *v1.PodStatus) { status.Phase = v1.PodSucceeded })
	}
}

// Remove ends a pod.
func (r *Rig) Remove(pod *v1.Pod) error {
	r.held.release(pod.UID)
	err := r.Node.Remove(pod)
	if r.API != nil {
		r.API.Delete(pod)
	}
	return err
}

// place judges what every container got.
func (r *Rig) place(ctx context.Context, pod *v1.Pod) ([]Placement, error) {
	var placements []Placement
	err := r.eachContainer(pod, func(a *admission, c v1.Container, devices map[string][]string) error {
		p, err := a.placement(ctx, c.Name, devices)
		placements = append(placements, p)
		return err
	})
	return placements, err
}

// eachContainer follows an admission container by container and keeps the books.
func (r *Rig) eachContainer(
	pod *v1.Pod, judge func(*admission, v1.Container, map[string][]string) error,
) error {
	a := newAdmission(r, pod)
	for i, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		devices := r.Node.Devices(pod, c.Name)
		if len(devices) == 0 {
			continue
		}
		if err := judge(a, c, devices); err != nil {
			return fmt.Errorf("container %s: %w", c.Name, err)
		}
		a.settle(devices, i < len(pod.Spec.InitContainers))
		r.held.take(pod, devices)
	}
	return nil
}

// readLog finds in the daemons' logs in which order the kubelet allocated the resources of each container.
// Admissions are serial, so the lines in the order of time are those of the containers one after the other.
func (r *Rig) readLog(ctx context.Context, placements []Placement, position int, start time.Time) error {
	want := 0
	for _, p := range placements {
		want += p.resources()
	}
	lines, err := r.Pair.Log.Wait(ctx, position, func(lines []pair.Line) bool {
		return len(allocations(lines, start)) >= want
	})
	if err != nil {
		return err
	}
	asked := allocations(lines, start)
	for i := range placements {
		p := &placements[i]
		p.Asked, asked = asked[:p.resources()], asked[p.resources():]
		p.Log = lines
	}
	return nil
}

// allocations are the resources that the kubelet allocated since then, in the order of time.
func allocations(lines []pair.Line, since time.Time) []string {
	var allocated []pair.Line
	for _, line := range lines {
		if line.Message == "allocate" && line.Time.After(since) {
			allocated = append(allocated, line)
		}
	}
	slices.SortFunc(allocated, func(a, b pair.Line) int { return a.Time.Compare(b.Time) })
	var resources []string
	for _, line := range allocated {
		resources = append(resources, line.Resource)
	}
	return resources
}

// resources is the number of resources the container holds devices of.
func (p Placement) resources() int {
	n := 0
	for _, devices := range [][]Device{p.GPUs, p.VFs} {
		n += min(1, len(devices))
	}
	return n
}
