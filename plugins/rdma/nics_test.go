// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/recording"
)

const (
	efaMachine = "nv-h100-aws-p5"
	efaPreset  = "../../deployments/helm/tandem/presets/aws-efa.yaml"
)

// preset returns the configuration of VFs in a preset of the chart.
func preset(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		RDMA struct{ Config json.RawMessage }
	}
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	return string(values.RDMA.Config)
}

// load returns a recorded machine without VFs.
func load(t *testing.T, name string) (*recording.Machine, *topology.Tree) {
	t.Helper()
	recorded, err := machines.Load(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(recorded.FS())
	if err != nil {
		t.Fatal(err)
	}
	return recorded, tree
}

// The preset for EFA offers all EFA devices of the recorded p5, and neither the ENA NICs nor the disks of the
// same vendor. A container gets the verbs devices of its EFA devices and no others.
func TestEFAPreset(t *testing.T) {
	recorded, tree := load(t, efaMachine)
	vfs := find(t, recorded.FS(), preset(t, efaPreset), "intel.com", nil)
	pool, _ := vfs.latestPool("vpc.amazonaws.com/efa")
	if len(pool.Devices) != 32 {
		t.Fatalf("%s: %d devices: %v", vfs.Names(), len(pool.Devices), ids(pool))
	}
	for _, offered := range pool.Devices {
		if d, ok := tree.Device(offered.Address); !ok || d.Driver != "efa" || d.IsVF() {
			t.Errorf("%s is %+v", offered.ID, d)
		}
	}
	p := place(t, efaMachine, preset(t, efaPreset))
	answer, err := respond(t.Context(), p.Plugin, []string{"0000:52:00.0", "0000:4f:00.0"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/dev/infiniband/uverbs0 /dev/infiniband/uverbs0 rw", "/dev/infiniband/uverbs3 /dev/infiniband/uverbs3 rw",
	}
	got := nodes(answer)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("device nodes %q; want %q", got, want)
	}
	if listed := strings.Split(answer.Envs["PCIDEVICE_VPC_AMAZONAWS_COM_EFA"], ","); len(listed) != 2 {
		t.Errorf("variables %v", answer.Envs)
	}
}

// NICs that are no VFs are placed as VFs are: each of eight containers gets a GPU and the NICs of the GPU's
// switch, whichever plugin the kubelet asks first, and the container's pairs file says so. The Pods API
// reports the requests: without a source of requests a container counts as having equal numbers of GPUs and
// NICs. On a busy host the coordinator can be late for the kubelet, and an answer then does without the
// coordinator or the source: such a run is repeated.
func TestNICsOfTheGPU(t *testing.T) {
	const options = `"tandem": {"pairs": true}, "selectors": {"drivers": ["mlx5_core", "bnxt_en"]`
	for name, c := range map[string]nicsOfGPUs{
		"EFA devices": {efaMachine, preset(t, efaPreset), "nvidia.com/gpu", "vpc.amazonaws.com/efa", 4},
		"PFs": {"oci-mi300x-derived", resources(`{"resourceName": "hostdev", ` + options + `, "isRdma": true}}`),
			"amd.com/gpu", "nvidia.com/hostdev", 1},
		"shared HCAs": {"oci-mi300x-derived", sharing(`{"resourceName": "hca", "rdmaHcaMax": 3, ` + options + `}}`),
			"amd.com/gpu", "rdma/hca", 1},
	} {
		for _, gpuFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, GPU first %t", name, gpuFirst), func(t *testing.T) {
				for range 10 {
					wrong, late := c.admit(t, gpuFirst)
					if late {
						continue
					}
					for _, one := range wrong {
						t.Error(one)
					}
					return
				}
				t.Error("the coordinator was late in every run")
			})
		}
	}
}

// nicsOfGPUs is a pool of NICs on a machine with eight GPUs.
type nicsOfGPUs struct {
	machine, config, gpus, nics string
	each                        int // NICs for each GPU
}

// admit admits eight containers. It returns what is wrong with the devices of one, and whether an answer was
// late: without the coordinator, or without the source of requests.
func (c *nicsOfGPUs) admit(t *testing.T, gpuFirst bool) (wrong []string, late bool) {
	t.Helper()
	_, tree := load(t, c.machine)
	var living atomic.Pointer[[]corev1.Pod]
	living.Store(&[]corev1.Pod{})
	pods := func(context.Context) ([]corev1.Pod, error) { return *living.Load(), nil }
	var isLate atomic.Bool
	p := placeWith(t, c.machine, c.config, coordination.Config{
		Intent: intent.Config{Readers: map[intent.Source]intent.Reader{intent.PodsAPI: pods}},
		Observer: func(event any) {
			_, isAlone := event.(admission.Call)
			source, isAnswer := event.(admission.Answered)
			if isAlone || isAnswer && source != admission.Answered(intent.PodsAPI) {
				isLate.Store(true)
			}
		},
	})
	gpus := c.announceGPUs(t, p, tree)
	for i := range 8 {
		all := append(slices.Clone(*living.Load()), c.pod(i))
		for earlier := range i {
			all[earlier].Status.Phase = corev1.PodRunning
		}
		living.Store(&all)
		if gpuFirst {
			gpus.take(t)
		}
		chosen, file := p.takeNICs(t, c.each)
		if !gpuFirst {
			gpus.take(t)
		}
		for _, id := range chosen {
			if got, want := switchOf(t, tree, id), switchOf(t, tree, gpus.last); got != want {
				wrong = append(wrong, fmt.Sprintf("GPU %s is below %s, its NIC %s below %s", gpus.last, want, id, got))
			}
		}
		if file == "" {
			continue
		}
		told, err := pairs.Read(file)
		if err != nil || len(told.Pairs) != 1 || told.Pairs[0].GPU == nil || told.Pairs[0].VF.ID != chosen[0] ||
			told.Pairs[0].GPU.Address.String() != gpus.last {
			wrong = append(wrong,
				fmt.Sprintf("GPU %s with %v, and the pairs file has %+v, %v", gpus.last, chosen, told, err))
		}
	}
	return wrong, isLate.Load()
}

// pod is a pod that waits for its devices.
func (c *nicsOfGPUs) pod(i int) corev1.Pod {
	limits := corev1.ResourceList{
		corev1.ResourceName(c.gpus): resource.MustParse("1"),
		corev1.ResourceName(c.nics): *resource.NewQuantity(int64(c.each), resource.DecimalSI),
	}
	name := fmt.Sprintf("train-%d", i)
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "worker", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// takeNICs takes devices as the kubelet does for a container. It returns the container's pairs file too.
func (p *placed) takeNICs(t *testing.T, count int) (chosen []string, file string) {
	t.Helper()
	chosen = choose(t, p, p.name, p.free, nil, uint32(count))
	answer, err := p.Allocate(t.Context(), chosen)
	if err != nil || len(chosen) != count {
		t.Fatalf("allocate NICs: %v, %v", chosen, err)
	}
	p.free = slices.DeleteFunc(p.free, func(id string) bool { return slices.Contains(chosen, id) })
	for _, mount := range answer.Mounts {
		file = mount.Host
	}
	return chosen, file
}

// gpuPlugin is the plugin of the GPUs, as far as the coordination goes.
type gpuPlugin struct {
	*coordination.Member
	name, last string
	free       []string
}

// take takes a GPU as the kubelet does for a container.
func (g *gpuPlugin) take(t *testing.T) {
	t.Helper()
	chosen := choose(t, g, g.name, g.free, nil, 1)
	_, _, err := g.Allocated(t.Context(), g.StartAllocate(t.Context(), chosen))
	if err != nil || len(chosen) != 1 {
		t.Fatalf("allocate a GPU: %v, %v", chosen, err)
	}
	g.last = chosen[0]
	g.free = slices.DeleteFunc(g.free, func(id string) bool { return id == g.last })
}

// announceGPUs joins the coordination of the node with all GPUs.
func (c *nicsOfGPUs) announceGPUs(t *testing.T, p *placed, tree *topology.Tree) *gpuPlugin {
	t.Helper()
	g := &gpuPlugin{Member: p.node.Member(c.gpus, device.GPU), name: c.gpus}
	var all device.Announcement
	for d := range tree.Devices() {
		if d.Class.IsGPU() && (d.Vendor == 0x10de || d.Vendor == 0x1002) { // not the display of the guest
			g.free = append(g.free, d.Address.String())
			all.Devices = append(all.Devices,
				device.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA, Healthy: true})
		}
	}
	if len(g.free) != 8 {
		t.Fatalf("GPUs %v", g.free)
	}
	g.Publish(all)
	g.AwaitTaken(t.Context())
	return g
}

func switchOf(t *testing.T, tree *topology.Tree, id string) string {
	t.Helper()
	function, _, _ := strings.Cut(id, "::")
	address, err := topology.ParseAddress(function)
	if err != nil {
		t.Fatal(err)
	}
	return tree.Switch(address)
}
