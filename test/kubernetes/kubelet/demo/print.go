// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/test/kubernetes/machine"
)

// printer writes for people.
type printer struct{ out io.Writer }

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }

func (p *printer) legend() {
	p.printf(
		`The kubelet's own managers (topology manager: policy restricted, scope container) admit pods on recorded
machines and ask the two plugins in random order. A line below is a pair as a container finds it: its i-th GPU by the device
node (/dev/dri/renderD* of AMD, /dev/nvidia* of NVIDIA, whose library NVML is a stand-in here), where that GPU is, the i-th VF
of its variable PCIDEVICE_..., and how far apart they are:

  PIX  same switch           PXB   a switch further up        C2C  NVLink-C2C, NUMA node of Grace or Vera
  PHB  same host bridge      NODE  same NUMA node             SYS  other NUMA node

Below it the same request without coordination: no plugin prefers a device and the kubelet chooses at random. (The VFs
are still listed in the order of the GPUs, which stock plugins do not do.)
`)
}

func (p *printer) setup(s setup, r *rig.Rig) {
	p.printf("\n== %s\n%s (%s, %s)\n", s, s.about, count(r.GPUs(), "GPU device"), count(r.VFs(), "VF"))
}

// leftOut prints the machines that are not shown, and the reason.
func (p *printer) leftOut(machines []string) {
	if len(machines) > 0 {
		p.printf("\n== Left out\n%s\nNVIDIA GPUs are shown by a stand-in for NVIDIA's library, which is C, "+
			"and there is no C compiler (--nvml is not given).\n", strings.Join(machines, "\n"))
	}
}

// result prints a request: the first pod's devices for each order of the kubelet's calls.
func (p *printer) result(r result) {
	if r.refused {
		p.printf("\n  %s\n    The kubelet refuses it (TopologyAffinityError): the VFs want fewer NUMA nodes.\n"+
			"    excludeTopology takes their wish away.\n", r.request())
		return
	}
	for _, first := range []string{machine.GPUsOf(r.setup.Machine), rig.VF} {
		tandem, uncoordinated := r.tandem.first[first], r.uncoordinated.first[first]
		if len(tandem) == 0 || len(uncoordinated) == 0 {
			continue
		}
		p.printf("\n  %s, %s asked first (%d of %d pods)\n", r.request(), plural(first), len(tandem),
			r.tandem.pods())
		p.devices("Tandem", tandem[0])
		p.devices("uncoordinated", uncoordinated[0])
		for _, placed := range tandem {
			p.fault(placed)
		}
	}
}

// fault prints a placement that is not optimal, and the daemons' log of it.
func (p *printer) fault(placed rig.Placement) {
	if placed.Pairs == placed.Best {
		return
	}
	p.printf("\n    NOT the best, which is %v:\n", placed.Best)
	p.devices("Tandem", placed)
	p.printf("%s", pair.Text(placed.Log))
}

// devices prints the devices of a container.
func (p *printer) devices(who string, placed rig.Placement) {
	p.printf("    %s%s\n", who, numa(placed.NUMA))
	for i, gpu := range placed.GPUs {
		partner := ""
		switch {
		case i < len(placed.VFs):
			partner = fmt.Sprintf("  %s  %v", placed.VFs[i].ID, placed.Levels[i])
		case gpu.Name != gpu.Address.String():
			partner = "  of " + gpu.Address.String()
		}
		p.printf("%s\n", strings.TrimRight(fmt.Sprintf("    %-10s  %-13s%s", gpu.Node, gpu.Name, partner), " "))
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func plural(resource string) string {
	if resource == rig.VF {
		return "VFs"
	}
	return "GPUs"
}

func numa(nodes []int) string {
	switch len(nodes) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(", NUMA node %d", nodes[0])
	default:
		return ", NUMA nodes " + strings.Trim(fmt.Sprint(nodes), "[]")
	}
}
