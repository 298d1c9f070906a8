// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	cdi "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const poolName = "node-a"

// plain and told are configurations of one resource of VFs; of the second, containers are told of their
// pairs.
const (
	plainVFs = `{"resourceList": [{"resourceName": "rdma_vf", "selectors": {"isRdma": true}}]}`
	toldVFs  = `{"resourceList": [{"resourceName": "rdma_vf", "selectors": {"isRdma": true},
		"tandem": {"pairs": true, "variables": ["NCCL_IB_HCA", "VLLM_GPU_NIC_PCIE_MAPPING"]}}]}`
)

// node is a recorded machine with a Preparer, and a scheduler that gives each device to one claim.
type node struct {
	*Preparer
	t     testing.TB
	sys   fs.FS
	state State
	pods  map[string]*corev1.Pod
	made  []string     // names of claims; a pod that is in no test has a container for each
	asked atomic.Int32 // for pods
	lost  error        // of the API server when it is asked for a pod

	publishing sync.Mutex        // published, which two processes write
	published  map[string]string // what was published last
	refusal    error             // of who publishes

	used map[string]string // by the ID of a GPU or VF, the device of the pool that has it
	log  *strings.Builder
	disk *disk.Disk
}

// nvidiaGPUs are NVIDIA's GPUs of a machine as a backend that needs no library.
type nvidiaGPUs struct{ tree *topology.Tree }

func (b nvidiaGPUs) Discover() (gpu.Inventory, error) {
	found := gpu.Inventory{Resources: map[string][]gpu.Device{}}
	for d := range b.tree.Devices() {
		if gpu.Vendor(d) == "nvidia" {
			found.Resources["nvidia.com/gpu"] = append(found.Resources["nvidia.com/gpu"], gpu.Device{
				ID: "GPU-" + d.Address.String(), Card: d.Address, NUMA: d.NUMA, Healthy: true,
			})
		}
	}
	return found, nil
}

func (nvidiaGPUs) Links() ([]topology.Link, error) { return nil, nil }

func (nvidiaGPUs) Edits(devices []gpu.Device) container.Edits {
	var ids []string
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	return container.Edits{Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(ids, ",")}}
}

func (nvidiaGPUs) Refuse(_ string, _ []gpu.Device, unknown []string) error {
	if len(unknown) > 0 {
		return fmt.Errorf("unknown %v", unknown)
	}
	return nil
}

// newNode makes a node of a recorded machine.
func newNode(t testing.TB, machine string, vfsPerPF int, config string, counters bool) *node {
	t.Helper()
	return newNodeOn(t, disk.New(1), machine, vfsPerPF, config, counters)
}

// newNodeOn makes a node with a disk.
func newNodeOn(
	t testing.TB, d *disk.Disk, machine string, vfsPerPF int, config string, counters bool,
) *node {
	t.Helper()
	sys, tree := machines.Read(t, machine, vfsPerPF)
	var backend gpu.Backend = nvidiaGPUs{tree}
	if strings.Contains(machine, "mi") {
		var err error
		if backend, err = amd.New(sys, amd.Single); err != nil {
			t.Fatal(err)
		}
	}
	return newNodeOf(t, d, sys, tree, backend, config, counters)
}

func newNodeOf(
	t testing.TB, d *disk.Disk, sys fs.FS, tree *topology.Tree, backend gpu.Backend, config string,
	counters bool,
) *node {
	t.Helper()
	n := &node{
		t: t, sys: sys, pods: map[string]*corev1.Pod{}, used: map[string]string{}, log: &strings.Builder{},
	}
	log := slog.New(slog.NewTextHandler(n.log, nil))
	gpus, err := gpu.Discover(backend, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := pools.ReadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	vfs, err := rdma.FindVFs(pools.Finder{Sys: sys, Prefix: "tandem.dev"}, read,
		rdma.Known{File: filepath.Join(t.TempDir(), "vfs.json")}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	resources, links, _, _ := gpus.All()
	all, _ := vfs.All()
	n.state.Machine = pool.NewMachine(pool.MachineSources{
		Sys: sys, Tree: tree, GPUs: resources, Links: links, Pools: all,
	})
	n.state.Pool = pool.Build(n.state.Machine, pool.Options{Counters: counters, Taints: counters})
	dir := t.TempDir()
	n.disk = d
	n.disk.Name(filepath.Join(dir, "plugin"), FileName)
	for _, kind := range []string{"cdi", "devinfo", "pairs"} {
		n.disk.Name(filepath.Join(dir, kind), kind+" file")
	}
	n.Preparer = New(Options{
		Dir: filepath.Join(dir, "plugin"), CDIDir: filepath.Join(dir, "cdi"), GPUs: gpus, Log: log,
		Alone: true,
		Host: rdma.Host{
			Sys: sys, Dev: fstest.MapFS{"infiniband/rdma_cm": &fstest.MapFile{}},
			Disk: n.disk.Disk(), DevinfoDir: filepath.Join(dir, "devinfo"), PairsDir: filepath.Join(dir, "pairs"),
		},
	})
	return n
}

// Prepare prepares claims as the driver does.
func (n *node) Prepare(
	_ context.Context, state State, claims []*resourceapi.ResourceClaim,
) map[types.UID]kubeletplugin.PrepareResult {
	return n.prepareBy(n.Preparer, state, claims...)
}

// prepareBy is Prepare by a process.
func (n *node) prepareBy(
	p *Preparer, state State, claims ...*resourceapi.ResourceClaim,
) map[types.UID]kubeletplugin.PrepareResult {
	prepared, cause := p.Prepare(state, claims, kubelet.Reading[[]*corev1.Pod]{})
	if errors.Is(cause, kubelet.ErrNotRead) {
		prepared, cause = p.Prepare(state, claims, kubelet.Read(n.readPods(claims)))
	}
	if err := n.publish(prepared); err != nil {
		prepared, cause = nil, errors.Join(cause, err)
	}
	answers := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		c, isPrepared := FindClaim(prepared, claim.UID)
		err := cause
		if isPrepared {
			err = nil
		}
		answers[claim.UID] = kubeletplugin.PrepareResult{Devices: c.Answer(), Err: err}
	}
	return answers
}

// publish has the API server have the VFs of claims.
func (n *node) publish(prepared []Claim) error {
	n.checkUnlocked()
	n.publishing.Lock()
	defer n.publishing.Unlock()
	n.published, _ = Bound(prepared)
	return n.refusal
}

// checkUnlocked: nobody waits for the API server but the pod for which it is asked.
func (n *node) checkUnlocked() {
	n.t.Helper()
	release, err := lockFolder(n.Dir) // of another process, for a moment
	if err != nil {
		n.t.Fatal(err)
	}
	release()
}

// readPods asks for the pods of claims.
func (n *node) readPods(claims []*resourceapi.ResourceClaim) (pods []*corev1.Pod, err error) {
	n.checkUnlocked()
	for _, its := range PodsOf(claims...) {
		n.asked.Add(1)
		switch pod := n.pods["team/"+its.Name]; {
		case n.lost != nil:
			return nil, n.lost
		case pod != nil:
			pods = append(pods, pod)
		case its.Name == "pod":
			pods = append(pods, running(n.made...))
		}
	}
	return pods, nil
}

// want is a request of a claim.
type want struct {
	request string
	of      pool.Type
	count   int
}

// claim makes a claim that a scheduler has allocated: the first devices that fit, as they are published. It
// is nil where there are not enough.
func (n *node) claim(name string, wants ...want) *resourceapi.ResourceClaim {
	n.t.Helper()
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Status: resourceapi.ResourceClaimStatus{
			Allocation:  &resourceapi.AllocationResult{},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod", UID: "pod"}},
		},
	}
	n.made = append(n.made, name)
	var devices []string
	for _, w := range wants {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: w.request,
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: string(w.of) + ".tandem.dev", Count: int64(w.count),
			},
		})
		found := n.allocate(w.of, w.count)
		devices = append(devices, found...)
		if len(found) < w.count {
			n.release(devices)
			return nil
		}
		for _, device := range found {
			claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
				resourceapi.DeviceRequestAllocationResult{
					Request: w.request, Driver: pool.Driver, Pool: poolName, Device: device,
				})
		}
	}
	return claim
}

// need is claim where there are enough.
func (n *node) need(name string, wants ...want) *resourceapi.ResourceClaim {
	n.t.Helper()
	claim := n.claim(name, wants...)
	if claim == nil {
		n.t.Fatalf("%s: the machine has not so many devices: %v", name, wants)
	}
	return claim
}

func (n *node) allocate(of pool.Type, count int) (found []string) {
	for _, slice := range n.state.Pool.Slices {
		for _, published := range slice.Devices {
			d := n.state.Pool.Devices[published.Name]
			fits := d.Type == of || d.Type == pool.TypeGPUVF && (of == pool.TypeGPU || of == pool.TypePair)
			isUsed := func(id string) bool { return n.used[id] != "" }
			if len(found) == count || !fits || slices.ContainsFunc(slices.Concat(d.GPUs, d.VFs), isUsed) {
				continue
			}
			for _, id := range slices.Concat(d.GPUs, d.VFs) {
				n.used[id] = d.Name
			}
			found = append(found, d.Name)
		}
	}
	return found
}

func (n *node) release(devices []string) {
	for id, device := range n.used {
		if slices.Contains(devices, device) {
			delete(n.used, id)
		}
	}
}

// end unprepares a claim and has the scheduler forget it.
func (n *node) end(claim *resourceapi.ResourceClaim) error {
	object := kubeletplugin.NamespacedObject{UID: claim.UID}
	object.Namespace, object.Name = claim.Namespace, claim.Name
	err := n.Unprepare([]kubeletplugin.NamespacedObject{object})
	if err == nil {
		var devices []string
		for _, r := range driverResults(claim) {
			devices = append(devices, r.Device)
		}
		n.release(devices)
	}
	return err
}

// ready prepares claims, which has to succeed, and returns what the kubelet is told of the first.
func (n *node) ready(claims ...*resourceapi.ResourceClaim) []kubeletplugin.Device {
	n.t.Helper()
	answers := n.Prepare(n.t.Context(), n.state, claims)
	for _, claim := range claims {
		if err := answers[claim.UID].Err; err != nil {
			n.t.Fatalf("prepare %s: %v", claim.Name, err)
		}
	}
	return answers[claims[0].UID].Devices
}

// spec reads the CDI spec of a claim as container runtimes do.
func (n *node) spec(claim *resourceapi.ResourceClaim) *specs.Spec {
	n.t.Helper()
	spec, err := cdi.ReadSpec(n.specPath(claim.UID), 0)
	if err != nil {
		n.t.Fatalf("CDI spec of %s: %v", claim.Name, err)
	}
	return spec.Spec
}

// edits are those of the CDI device for a request.
func (n *node) edits(claim *resourceapi.ResourceClaim, request string) specs.ContainerEdits {
	n.t.Helper()
	for _, d := range n.spec(claim).Devices {
		if d.Name == cdiDevice(claim.UID, request) {
			return d.ContainerEdits
		}
	}
	n.t.Fatalf("CDI spec of %s has no device for request %s", claim.Name, request)
	return specs.ContainerEdits{}
}

// variable is one of an environment.
func variable(edits specs.ContainerEdits, name string) string {
	for _, v := range edits.Env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// prepared is a claim as the checkpoint has it.
func (n *node) prepared(uid types.UID) Claim {
	n.t.Helper()
	claims, err := n.Prepared(n.state.Machine)
	if err != nil {
		n.t.Fatal(err)
	}
	c, _ := FindClaim(claims, uid)
	return c
}

// Complete reports whether all files exist that were reported to the kubelet.
func (n *node) Complete() bool {
	n.t.Helper()
	known, err := n.Prepared(n.state.Machine)
	return err == nil && !slices.ContainsFunc(known, func(c Claim) bool { return n.findMissing(c) != "" })
}
