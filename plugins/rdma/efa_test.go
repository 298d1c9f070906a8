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

// Each of eight containers gets a GPU and the four EFA devices of the GPU's switch, whichever plugin the
// kubelet asks first. The Pods API reports the requests: without a source of requests a container counts as
// having equal numbers of GPUs and NICs. On a busy host the coordinator can be late for the kubelet, and an
// answer then does without the coordinator or the source: such a run is repeated.
func TestEFADevicesOfTheGPU(t *testing.T) {
	for name, first := range map[string]bool{"GPU first": true, "EFA devices first": false} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				far, late := efaContainers(t, first)
				if late {
					continue
				}
				for _, one := range far {
					t.Error(one)
				}
				return
			}
			t.Error("the coordinator was late in every run")
		})
	}
}

// efaContainers admits eight containers on a p5. It returns the EFA devices on other switches than the
// container's GPU, and whether an answer was late.
func efaContainers(t *testing.T, gpuFirst bool) (far []string, late bool) {
	t.Helper()
	_, tree := load(t, efaMachine)
	var pod atomic.Pointer[corev1.Pod]
	pod.Store(efaPod(0))
	pods := func(context.Context) ([]corev1.Pod, error) { return []corev1.Pod{*pod.Load()}, nil }
	observer := &lateness{DecisionObserver: admission.OrNobody(nil)}
	p := placeWith(t, efaMachine, preset(t, efaPreset), coordination.Config{
		Intent:   coordination.Intent{Readers: map[intent.Source]intent.Reader{intent.PodsAPI: pods}},
		Observer: observer,
	})
	gpus := announceGPUs(t, p, tree)
	for i := range 8 {
		pod.Store(efaPod(i))
		if gpuFirst {
			gpus.take(t)
		}
		chosen := p.takeEFA(t)
		if !gpuFirst {
			gpus.take(t)
		}
		for _, id := range chosen {
			if got, want := switchOf(t, tree, id), switchOf(t, tree, gpus.last); got != want {
				far = append(far, fmt.Sprintf("GPU %s is below %s, its EFA device %s below %s", gpus.last, want, id, got))
			}
		}
	}
	if len(p.free)+len(gpus.free) > 0 {
		t.Errorf("left: %v, %v", gpus.free, p.free)
	}
	return far, observer.late.Load()
}

// lateness notes answers without the coordinator or without the source of requests.
type lateness struct {
	admission.DecisionObserver
	late atomic.Bool
}

// Alone notes an answer without the coordinator.
func (l *lateness) Alone(admission.Call) { l.late.Store(true) }

// QuestionAnswered notes an answer without the source.
func (l *lateness) QuestionAnswered(source intent.Source) {
	if source != intent.PodsAPI {
		l.late.Store(true)
	}
}

// efaPod is a pod that waits for its devices.
func efaPod(i int) *corev1.Pod {
	limits := corev1.ResourceList{
		"nvidia.com/gpu": resource.MustParse("1"), "vpc.amazonaws.com/efa": resource.MustParse("4"),
	}
	name := fmt.Sprintf("train-%d", i)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "worker", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// takeEFA takes four devices as the kubelet does for a container.
func (p *placed) takeEFA(t *testing.T) []string {
	t.Helper()
	chosen := choose(t, p, p.name, p.free, nil, 4)
	if _, err := p.Allocate(t.Context(), chosen); err != nil || len(chosen) != 4 {
		t.Fatalf("allocate EFA devices: %v, %v", chosen, err)
	}
	p.free = slices.DeleteFunc(p.free, func(id string) bool { return slices.Contains(chosen, id) })
	return chosen
}

// gpuPlugin is the plugin of the GPUs, as far as the coordination goes.
type gpuPlugin struct {
	*coordination.Member
	free []string
	last string
}

// take takes a GPU as the kubelet does for a container.
func (g *gpuPlugin) take(t *testing.T) {
	t.Helper()
	chosen := choose(t, g, "nvidia.com/gpu", g.free, nil, 1)
	if _, _, err := g.Allocated(t.Context(), chosen); err != nil || len(chosen) != 1 {
		t.Fatalf("allocate a GPU: %v, %v", chosen, err)
	}
	g.last = chosen[0]
	g.free = slices.DeleteFunc(g.free, func(id string) bool { return id == g.last })
}

// announceGPUs joins the coordination of the node with all GPUs.
func announceGPUs(t *testing.T, p *placed, tree *topology.Tree) *gpuPlugin {
	t.Helper()
	g := &gpuPlugin{Member: p.node.Member("nvidia.com/gpu", device.GPU)}
	var all device.Announcement
	for d := range tree.Devices() {
		if d.Class.IsGPU() && d.Vendor == 0x10de { // not the display of the guest
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
	address, err := topology.ParseAddress(id)
	if err != nil {
		t.Fatal(err)
	}
	return tree.Switch(address)
}
