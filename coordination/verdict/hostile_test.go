// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	testserver "github.com/tandem-k8s/tandem/test/server"
	"github.com/tandem-k8s/tandem/topology"
)

// An object beyond the limits is refused first.
func TestHostileObjects(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*v1alpha1.Spec){
		"devices":   func(s *v1alpha1.Spec) { s.Resources[0].Devices = 1 << 60 },
		"negative":  func(s *v1alpha1.Spec) { s.Resources[1].Devices = -1 },
		"numbers":   func(s *v1alpha1.Spec) { s.Resources[0].Unhealthy = "0-99999999999" },
		"hints":     func(s *v1alpha1.Spec) { s.Resources[0].Hints["0"] = "0-99999999999" },
		"held":      func(s *v1alpha1.Spec) { s.Held[0].Containers[0].Devices[gpus] = "0-99999999999" },
		"redirect":  func(s *v1alpha1.Spec) { s.Switches[0].Redirected = -1 },
		"a CPU":     func(s *v1alpha1.Spec) { s.Resources[0].Name = "cpu" },
		"the same":  func(s *v1alpha1.Spec) { s.Resources[0].Name = vfs },
		"NUMA node": func(s *v1alpha1.Spec) { s.NUMANodes[1].Number = 1 << 40 },
		"40 NUMA nodes": func(s *v1alpha1.Spec) {
			for i := range 40 {
				s.Resources[0].Hints[fmt.Sprint(i)] = "0"
			}
		},
	} {
		topology := testserver.Topology("a", 1, true)
		testserver.Hold(topology, "pod", "0", "")
		if _, err := New(topology, nil); err != nil {
			t.Fatal(err)
		}
		spoil(&topology.Spec)
		if _, err := New(topology, nil); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
}

// FuzzObject modifies an object, then reads and queries it, quickly and without a panic.
func FuzzObject(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		seed := make([]byte, 8+i%24)
		for k := range seed {
			seed[k] = byte(random.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := testserver.Topology("a", 2, true)
		testserver.Hold(o, "pod", "0-1", "0,3")
		testserver.Spoil(&o.Spec, data)
		began := time.Now()
		n, err := New(o, nil)
		if err == nil {
			s := n.State(func(types.UID) bool { return true })
			for _, pod := range []int{1, 8} {
				s.Ask(testserver.Pod("asks", pod, pod))
				s.Admit(testserver.Pod(fmt.Sprint("comes-", pod), pod, pod))
			}
			s.Room()
			s.Stranded()
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%v", took)
		}
	})
}

const root = "pci0000:00/0000:00:01.0"

// spec returns an object with GPUs and VFs on one switch.
func spec(gpus, vfs v1alpha1.Resource) *v1alpha1.Spec {
	gpus.Name, gpus.Kind, vfs.Name, vfs.Kind = "a/gpu", v1alpha1.GPU, "b/vf", v1alpha1.VF
	all := func(r v1alpha1.Resource) v1alpha1.Set { return v1alpha1.Set(fmt.Sprintf("0-%d", r.Devices-1)) }
	return &v1alpha1.Spec{
		Resources: []v1alpha1.Resource{gpus, vfs},
		Switches: []v1alpha1.Switch{{Name: "0000:00:01.0", Path: root, Devices: map[string]v1alpha1.Set{
			gpus.Name: all(gpus), vfs.Name: all(vfs),
		}}},
	}
}

// Each device belongs to one physical function: 1,024 functions with all devices each would be 33 million.
func TestFunctionsOverlap(t *testing.T) {
	t.Parallel()
	for want, functions := range map[string][]v1alpha1.Set{
		"device 2 is of two": {"0-2", "2-3"},
		"3 of 4 devices":     {"0-1", "3"},
		"device 4 of 4":      {"0-4"},
	} {
		vfs := v1alpha1.Resource{Devices: 4, Functions: functions}
		_, err := newShape(spec(v1alpha1.Resource{Devices: 1}, vfs))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("functions %v: %v, want %q", functions, err, want)
		}
	}
}

// Functions without addresses are distinct, in any number.
func TestUnnamedFunctions(t *testing.T) {
	t.Parallel()
	s := spec(v1alpha1.Resource{Devices: 600}, v1alpha1.Resource{Devices: 400})
	s.Resources[1].Kind = v1alpha1.GPU
	m, err := newShape(s)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[topology.Address]string{}
	for i := range s.Resources {
		for _, d := range devicesOf(m, i) {
			if seen[d.Address] != "" {
				t.Fatalf("%s and %s have address %s", seen[d.Address], d.ID, d.Address)
			}
			seen[d.Address] = d.ID
		}
	}
}

// A PF shared 2,000 times leaves other functions their addresses.
func TestSharedFunction(t *testing.T) {
	t.Parallel()
	gpus := v1alpha1.Resource{Devices: 1, Addresses: []string{"0000:0d:00.0"}}
	vfs := v1alpha1.Resource{
		Devices: 2000, Functions: []v1alpha1.Set{"0-1999"}, Addresses: []string{"0000:0c:00.0"},
	}
	m, err := newShape(spec(gpus, vfs))
	if err != nil {
		t.Fatal(err)
	}
	gpu, _ := m.tree.Device(devicesOf(m, 0)[0].Address)
	if gpu == nil || gpu.IsVF() {
		t.Errorf("the GPU is %+v", gpu)
	}
	seen := map[topology.Address]bool{}
	for _, d := range devicesOf(m, 1) {
		vf, _ := m.tree.Device(d.Address)
		if seen[d.Address] || vf == nil || vf.Function() != (topology.Address{Bus: 0x0c}) {
			t.Fatalf("%s at %s is %+v", d.ID, d.Address, vf)
		}
		seen[d.Address] = true
	}
}
