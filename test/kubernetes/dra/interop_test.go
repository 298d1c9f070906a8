// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"maps"
	"os"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/scheduler"
)

// A claim takes GPUs of another vendor's driver and a VF for each from this one. All that both publish
// is the PCIe root: GPU and VF then have the same root, always, and the same switch where each root has
// one switch. Other NICs on the root, or a root without switches, make it a matter of chance. Selectors
// on the VF's attributes, which say its switch and PF, are the claim's way out; a switch that both
// publish is the driver's.
func TestForeignGPUs(t *testing.T) {
	const noStorage = `device.attributes["tandem.dev"].pf != "0000:30:00.0" && device.attributes["tandem.dev"].pf != "0000:30:00.1"`
	const busy = `device.attributes["tandem.dev"].pf == "0000:23:00.0"` // the NIC of the GPU on the same root
	for _, c := range []struct {
		name, driver, machine string
		match                 resourceapi.FullyQualifiedName
		told                  bool   // the other driver publishes the switch too
		taken, wanted         string // selectors of VFs
		pairs                 int    // that are found, all of them with one root where that is matched
		near                  int    // of these: on one switch
	}{
		{"a switch on each root", "gpu.nvidia.com", "nv-h100-oci", claim.PCIeRoot, false, "", "", 8, 8},
		{"a storage NIC on one root", "gpu.amd.com", "amd-mi300x-smc-thor2", claim.PCIeRoot, false, busy, "", 8, 7},
		{"not the storage NIC", "gpu.amd.com", "amd-mi300x-smc-thor2", claim.PCIeRoot, false,
			busy, noStorage, 7, 7},
		{"one root for all", "gpu.nvidia.com", "nv-h200-vm-flat", claim.PCIeRoot, false, "", "", 8, 0},
		{"both publish the switch", "gpu.amd.com", "amd-mi300x-smc-thor2", claim.PCIeSwitch, true, busy, "", 7, 7},
		{"one publishes the switch", "gpu.amd.com", "amd-mi300x-smc-thor2", claim.PCIeSwitch, false, "", "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := node.Read(c.machine, 2)
			if err != nil {
				t.Fatal(err)
			}
			n := newForeign(t, m, c.driver, c.machine, c.told)
			if c.taken != "" {
				others := claim.Spec{VFs: 2}.Claim("others")
				choose(others.Spec.Devices.Requests[0].Exactly, c.taken)
				result, _, err := n.Within(found, others)
				if err != nil || result == nil {
					t.Fatalf("%s: %v, %v", others.Name, result, err)
				}
				n.Take(result)
			}
			pairs, near := 0, 0
			for range len(m.GPUs) {
				request := claim.Matched("claim", 1, c.match, func(vf *resourceapi.ExactDeviceRequest) {
					choose(vf, c.wanted)
				})
				request.Spec.Devices.Requests[0].Exactly.DeviceClassName = c.driver
				result, _, err := n.Within(found, request)
				if err != nil {
					t.Fatal(err)
				}
				if result == nil {
					continue
				}
				n.Take(result)
				pairs++
				gpu, vf := n.at(result.Devices.Results[0]), n.at(result.Devices.Results[1])
				if gpu.root != vf.root {
					t.Errorf("%v and %v have different roots", gpu, vf)
				}
				if gpu.on == vf.on && gpu.on != gpu.root {
					near++
				}
			}
			if pairs != c.pairs || near != c.near {
				t.Errorf("%d pairs, %d of them on one switch; want %d and %d", pairs, near, c.pairs, c.near)
			}
		})
	}
}

// foreign is a node whose GPUs another driver publishes.
type foreign struct {
	*scheduler.Scheduler
	machine pool.Machine
	address map[string]string // of the devices of both drivers
}

func newForeign(t *testing.T, m pool.Machine, driver, machine string, told bool) *foreign {
	t.Helper()
	n := &foreign{machine: m, address: map[string]string{}}
	file := "testdata/" + driver + "-" + machine + ".yaml"
	theirs := readSlice(t, file)
	theirClasses, err := scheduler.ReadClasses(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range theirs.Spec.Devices {
		d := &theirs.Spec.Devices[i]
		at := d.Attributes["pciAddr"]
		if driver == "gpu.nvidia.com" {
			at = d.Attributes["resource.kubernetes.io/pciBusID"]
		}
		n.address[driver+"/"+d.Name] = *at.StringValue
		if told {
			on := n.where(*at.StringValue).on
			d.Attributes[resourceapi.QualifiedName(claim.PCIeSwitch)] = resourceapi.DeviceAttribute{StringValue: &on}
		}
	}
	m.GPUs = nil // they are the other driver's
	ours := build(m, pool.Options{Counters: scheduler.Minor >= 36})
	for name, d := range ours.Devices {
		n.address[pool.Driver+"/"+name] = d.VFs[0]
	}
	all := maps.Clone(classes(t))
	maps.Copy(all, theirClasses)
	published := append(scheduler.Publish(pool.Driver, ours.Slices), theirs)
	n.Scheduler = scheduler.New(published, all, scheduler.Defaults())
	return n
}

// choose has a request be for devices that an expression selects.
func choose(request *resourceapi.ExactDeviceRequest, expression string) {
	if expression != "" {
		selector := resourceapi.CELDeviceSelector{Expression: expression}
		request.Selectors = []resourceapi.DeviceSelector{{CEL: &selector}}
	}
}

// place is where a device is.
type place struct{ root, on string }

func (n *foreign) at(r resourceapi.DeviceRequestAllocationResult) place {
	return n.where(n.address[r.Driver+"/"+r.Device])
}

func (n *foreign) where(address string) place {
	for d := range n.machine.Tree.Devices() {
		if d.Address.String() == address {
			return place{d.RootComplex(), n.machine.Tree.Switch(d.Address)}
		}
	}
	return place{}
}

func readSlice(t *testing.T, file string) *resourceapi.ResourceSlice {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	document, _, _ := strings.Cut(string(content), "\n---")
	var slice resourceapi.ResourceSlice
	if err := yaml.UnmarshalStrict([]byte(document), &slice); err != nil {
		t.Fatal(err)
	}
	return &slice
}
