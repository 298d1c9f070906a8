// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/best"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/machine"
	"github.com/tandem-k8s/tandem/topology"
)

// Placement has the devices of one container of an admitted pod.
type Placement struct {
	Container string
	NUMA      []int            // chosen by the topology manager; none without hints
	Asked     []string         // its resources in the order of the kubelet's allocations
	GPUs, VFs []machine.Device // in the container's order

	Levels  []topology.Level // how far its first GPU is from its first VF, and so on
	Pairs   best.Pairs       // how many there are of each level
	Matched best.Pairs       // the best pairs of these devices in any order
	Best    best.Pairs       // the best pairs of all free devices on the NUMA nodes

	Log []pair.Line // the daemons' log during the admission
}

// IsPaired reports whether the container has both GPUs and VFs.
func (p Placement) IsPaired() bool { return len(p.GPUs) > 0 && len(p.VFs) > 0 }

// Admit admits a pod and returns a placement for each container with devices, in the order of admission. A
// refusal by the kubelet is a *node.Rejection. Any other error is a contradiction between kubelet, daemons
// and rig.
func (r *Rig) Admit(ctx context.Context, pod *v1.Pod) ([]Placement, error) {
	position, start := r.Pair.Log.Len(), time.Now()
	if err := r.Node.Admit(pod); err != nil {
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

// AdmitBlind is Admit for times when daemons or the kubelet may end: it only checks for devices with two
// owners.
func (r *Rig) AdmitBlind(pod *v1.Pod) error {
	if err := r.Node.Admit(pod); err != nil {
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

// Release records the end of a pod. Remove includes it.
func (r *Rig) Release(pod *v1.Pod) { r.held.release(pod.UID) }

// Remove ends a pod.
func (r *Rig) Remove(pod *v1.Pod) error {
	r.held.release(pod.UID)
	return r.Node.Remove(pod)
}

// place judges the placements of all containers.
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

// readLog reads the order in which the kubelet allocated the resources of each container from the daemons'
// logs. Admissions are serial, so the lines in order of time are in order of containers.
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

// allocations returns the resources that the kubelet has allocated since a time, in order of time.
func allocations(lines []pair.Line, since time.Time) []string {
	var allocated []pair.Line
	for _, line := range lines {
		if line.Message == "allocated" && line.Time.After(since) {
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

// resources returns the number of resources with devices in the container.
func (p Placement) resources() int {
	n := 0
	for _, devices := range [][]machine.Device{p.GPUs, p.VFs} {
		n += min(1, len(devices))
	}
	return n
}
