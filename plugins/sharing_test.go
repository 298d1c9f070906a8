// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// nicsOfGPUs are pools of what is no VF: HCAs that are shared, and PFs that have no VFs, each for itself.
var nicsOfGPUs = map[string]struct{ resource, config string }{
	"shared HCAs": {"rdma/hca", `{"configList": [{"resourceName": "hca", "rdmaHcaMax": 63, "tandem": {"pairs": true}, "excludeTopology": false,
		"selectors": {"drivers": ["mlx5_core", "bnxt_en"]}}]}`},
	"PFs": {"nvidia.com/hostdev", `{"resourceList": [{"resourceName": "hostdev", "tandem": {"pairs": true}, "excludeTopology": false,
		"selectors": {"drivers": ["mlx5_core", "bnxt_en"], "isRdma": true}}]}`},
}

// The i-th HCA or PF of a container hangs where its i-th GPU does, whichever the kubelet asks for first, and
// the container's pairs file says so: they are placed as VFs are.
func TestNICsOfGPUs(t *testing.T) {
	for name, pool := range nicsOfGPUs {
		for _, machine := range []string{"oci-mi300x-derived", "amd-mi250-16gcd-8nic"} {
			t.Run(name+"/"+machine, func(t *testing.T) {
				n := newNode(t, machine, 0)
				if err := os.WriteFile(filepath.Join(n.root, "config.json"), []byte(pool.config), 0o600); err != nil {
					t.Fatal(err)
				}
				n.start(t, "tandem-gpu")
				n.start(t, "tandem-rdma")
				n.await(t)
				n.await(t)
				near := nearestOf(t, machine, n.ids[gpus], n.ids[pool.resource])
				for round, size := range []int{1, 2, 1, 4, 2} {
					chosen, told := n.pair(t, round, size, pool.resource)
					for i, nic := range told {
						if !slices.Contains(near[chosen[i]], nic) {
							t.Errorf("GPU %s has %s; the nearest are %v", chosen[i], nic, near[chosen[i]])
						}
					}
					if len(told) != size {
						t.Errorf("%d GPUs %v with %v", size, chosen, told)
					}
				}
			})
		}
	}
}

// pair gives a new container, the only one of the node, GPUs and NICs in either order. It returns the GPUs,
// ascending, and the addresses of the NICs as the container is told of them in a variable and in its pairs
// file. A container with an answer after the deadline, on a busy machine, gives way to another container.
func (n *node) pair(t *testing.T, round, size int, nics string) (chosen, told []string) {
	t.Helper()
	for attempt := range 10 {
		late := n.lateAnswers(t)
		chosen, told, mount := n.give(t, fmt.Sprintf("%d-%d", round, attempt), round%2 == 1, size, nics)
		if n.lateAnswers(t) == late {
			n.checkFile(t, mount, chosen, told, nics)
			return chosen, told
		}
		t.Logf("round %d: an answer was late", round)
	}
	t.Fatalf("round %d: all containers had late answers", round)
	return nil, nil
}

// lateAnswers counts, by the logs of the daemons, the answers that came too late: of the coordinator, or of
// the kubelet to the coordinator.
func (n *node) lateAnswers(t *testing.T) (count int) {
	t.Helper()
	for _, name := range []string{"tandem-gpu", "tandem-rdma"} {
		log, err := os.ReadFile(filepath.Join(n.logs, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		for _, sign := range []string{
			"source=local", "no answer from the coordinator", "no pairs for the container", "PodResources not read",
			"judge who asks without", "judge whose devices", "source of intent not available",
		} {
			count += strings.Count(string(log), sign)
		}
	}
	return count
}

// give gives a new container GPUs and NICs, and returns the path of its pairs file too.
func (n *node) give(
	t *testing.T, name string, nicsFirst bool, size int, nics string,
) (chosen, told []string, mount string) {
	t.Helper()
	n.pods.begin("pod-" + name)
	order := []string{gpus, nics}
	if nicsFirst {
		slices.Reverse(order)
	}
	variable := "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(nics))
	for _, resource := range order {
		ids, err := n.plugins[resource].Prefer(t.Context(), n.ids[resource], nil, size)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := n.plugins[resource].Allocate(t.Context(), ids...)
		if err != nil {
			t.Fatal(err)
		}
		n.pods.give(resource, ids)
		if resource == gpus {
			chosen = slices.Sorted(slices.Values(ids))
		} else if told = strings.Split(answer.GetEnvs()[variable], ","); len(answer.GetMounts()) > 0 {
			mount = answer.GetMounts()[0].GetHostPath()
		}
	}
	n.record(t, "uid-"+name)
	return chosen, told, mount
}

// checkFile compares a pairs file with the devices of its container.
func (n *node) checkFile(t *testing.T, mount string, chosen, told []string, nics string) {
	t.Helper()
	file, err := pairs.Read(mount)
	if err != nil || len(file.Pairs) != len(chosen) {
		t.Fatalf("pairs file %+v, %v", file, err)
	}
	for i, p := range file.Pairs {
		if p.GPU == nil || p.GPU.Address.String() != chosen[i] || p.VF.Address.String() != told[i] ||
			p.VF.Resource != nics || p.VF.RDMA == "" || p.VF.Netdev == "" {
			t.Errorf("GPUs %v with %v: pair %d of the file is %+v", chosen, told, i, p)
		}
	}
}

// nearestOf are the NICs that are nearest to each GPU.
func nearestOf(t *testing.T, machine string, gpus, nics []string) map[string][]string {
	t.Helper()
	recorded, err := machines.Load(machine, 0)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(recorded.FS())
	if err != nil {
		t.Fatal(err)
	}
	address := func(id string) topology.Address {
		function, _, _ := strings.Cut(id, "::")
		a, err := topology.ParseAddress(function)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	near := map[string][]string{}
	for _, gpu := range gpus {
		distance := func(nic string) topology.Distance { return tree.Distance(address(gpu), address(nic)) }
		best := slices.MinFunc(nics, func(a, b string) int { return distance(a).Compare(distance(b)) })
		for _, nic := range nics {
			if distance(nic).Compare(distance(best)) == 0 {
				near[gpu] = append(near[gpu], address(nic).String())
			}
		}
		near[gpu] = slices.Compact(near[gpu])
	}
	return near
}
