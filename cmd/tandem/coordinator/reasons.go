// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// apart is a GPU of a container without a VF of the container on the GPU's switch.
type apart struct {
	gpu  Device
	free []Device // VFs on the switch without a container
	held []Device // VFs on the switch of other containers
	all  int      // VFs on the switch
}

// containersOf returns the containers of decisions as namespace/pod/container, without duplicates.
func containersOf(decisions []Decision) []string {
	var names []string
	for _, d := range decisions {
		if d.Container != "" && !slices.Contains(names, d.Container) {
			names = append(names, d.Container)
		}
	}
	return names
}

// writeReasons explains a degraded or refused container by the present state of the node: for each GPU
// without a VF the switch, the NUMA node and the owners of the VFs there; and one next step. Writes nothing
// and returns false for other containers.
func (s Status) writeReasons(out *cli.Text, container string, decisions []Decision) bool {
	isHeld := func(d Device) bool { return d.Owner == container }
	gpus, vfs := s.devicesOf(device.GPU, isHeld), s.devicesOf(device.VF, isHeld)
	verb := cli.Doubtful.Of("is degraded")
	without, wanted := gpusWithoutVF(gpus, vfs), len(vfs)/max(len(gpus), 1)
	if wasRefused(container, decisions) {
		pairs := lastPairs(container, decisions)
		isFar := func(d Device) bool {
			return slices.ContainsFunc(pairs, func(p machine.Pair) bool {
				return p.GPU == d.ID && !p.Distance.Direct()
			})
		}
		verb, vfs = cli.Bad.Of("was refused"), nil
		without, wanted = s.devicesOf(device.GPU, isFar), wantedVFs(pairs)
	}
	if len(without) == 0 {
		return false
	}
	var list []apart
	for _, gpu := range without {
		list = append(list, s.vfsAround(gpu, container))
	}
	out.Line(container, " ", verb, ": for ", cli.Count(len(without), "GPU"),
		" there is no VF of its own on its switch")
	out.Line("   next: ", nextStep(container, list, wanted))
	out.Line()
	out.Row("   GPU", "SWITCH", "NUMA", "VFS FREE NOW", "VFS HELD BY")
	for _, a := range list {
		out.Row("   "+a.gpu.ID, a.gpu.Switch, numaText(a.gpu.NUMA), Count{len(a.free), a.all},
			cmp.Or(strings.Join(ownersOf(a.held), " "), "-"))
	}
	for _, vf := range farVFs(gpus, vfs) {
		fmt.Fprintf(out, "   VF %s is on switch %s\n", vf.ID, vf.Switch)
	}
	return true
}

// nextStep returns the most helpful step, by the first GPU: each GPU needs a VF. Wanted is the number of VFs
// for each GPU; 0 if GPUs share a VF.
func nextStep(container string, list []apart, wanted int) string {
	for _, a := range list {
		switch holders := ownersOf(a.held); {
		case !topology.IsSwitch(a.gpu.Switch):
			return fmt.Sprintf("GPU %s is on no switch (%s), so that no VF is near; a topology file has the "+
				"switches of a guest", a.gpu.ID, a.gpu.Switch)
		case a.all == 0:
			return fmt.Sprintf("switch %s has no VF that a plugin offers: see \"tandem doctor\", or ask for fewer "+
				"GPUs", a.gpu.Switch)
		case len(a.free) == 0 && len(holders) == 0:
			return fmt.Sprintf("the VFs of switch %s are unhealthy: see \"tandem status -o wide\"", a.gpu.Switch)
		case wanted == 0 || wanted > a.all:
			return fmt.Sprintf("ask for as many VFs as GPUs: the numbers differ, and switch %s has %s", a.gpu.Switch,
				cli.Count(a.all, "VF"))
		case len(a.free) == 0:
			return fmt.Sprintf("end %s, which has VFs of switch %s, then create %s again", holders[0], a.gpu.Switch,
				podOf(container))
		}
	}
	return fmt.Sprintf("VFs are free on these switches now: create %s again", podOf(container))
}

// devicesOf returns the devices of a kind that fit.
func (s Status) devicesOf(kind device.Kind, fits func(Device) bool) (list []Device) {
	for _, r := range s.Resources {
		for _, d := range r.Devices {
			if r.Kind == string(kind) && fits(d) {
				list = append(list, d)
			}
		}
	}
	return list
}

// gpusWithoutVF returns the GPUs of a container with too few VFs of the container on their switches. A
// container without VFs requests no pairs.
func gpusWithoutVF(gpus, vfs []Device) []Device {
	if len(vfs) == 0 {
		return nil
	}
	left := map[string]int{}
	for _, vf := range vfs {
		left[vf.Switch]++
	}
	shared := len(vfs) < len(gpus) // a VF serves several GPUs
	return slices.DeleteFunc(slices.Clone(gpus), func(gpu Device) bool {
		has := left[gpu.Switch] > 0 && topology.IsSwitch(gpu.Switch)
		if has && !shared {
			left[gpu.Switch]--
		}
		return has
	})
}

// farVFs returns the VFs of a container without a GPU of the container on their switches.
func farVFs(gpus, vfs []Device) []Device {
	return slices.DeleteFunc(slices.Clone(vfs), func(vf Device) bool {
		return slices.ContainsFunc(gpus, func(gpu Device) bool { return gpu.Switch == vf.Switch })
	})
}

// wasRefused reports whether the newest decision for a container is a refusal.
func wasRefused(container string, decisions []Decision) bool {
	for _, d := range slices.Backward(decisions) {
		if d.Container == container {
			return d.Refusal != ""
		}
	}
	return false
}

// lastPairs returns the pairs of the last choice for a container.
func lastPairs(container string, decisions []Decision) []machine.Pair {
	for _, d := range slices.Backward(decisions) {
		if d.Container == container && len(d.Pairs) > 0 {
			return d.Pairs
		}
	}
	return nil
}

// wantedVFs returns the greatest number of VFs with which a GPU pairs; 0 if GPUs share a VF.
func wantedVFs(pairs []machine.Pair) int {
	ofGPU, ofVF := map[string]int{}, map[string]int{}
	for _, p := range pairs {
		ofGPU[p.GPU]++
		ofVF[p.VF]++
	}
	if len(ofVF) < len(pairs) {
		return 0
	}
	return slices.Max(append(slices.Collect(maps.Values(ofGPU)), 0))
}

// vfsAround returns the VFs on the switch of a GPU, without the VFs of the GPU's container.
func (s Status) vfsAround(gpu Device, container string) apart {
	a := apart{gpu: gpu}
	for _, r := range s.deviceRows() {
		if r.kind != device.VF || r.Switch != gpu.Switch {
			continue
		}
		a.all++
		switch {
		case r.isFree():
			a.free = append(a.free, r.Device)
		case r.Owner != "" && r.Owner != container:
			a.held = append(a.held, r.Device)
		}
	}
	return a
}

// ownersOf returns the owners of devices, each once.
func ownersOf(devices []Device) []string {
	var names []string
	for _, d := range devices {
		names = insertSorted(names, d.Owner)
	}
	return names
}
