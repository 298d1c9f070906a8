// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/machines"
)

// newPartitions returns a node of partitioned GPUs with two claims for a partition each, and prepares the
// first.
func newPartitions(t *testing.T) (n *node, first, second *claimOf) {
	t.Helper()
	n = newNode(t, "amd-mi300x-smc-thor2-cpx-derived", 1, plainVFs, true)
	one := want{"gpu", pool.TypeGPU, 1}
	n.need("zero", one)
	first, second = n.need("first", one), n.need("second", one)
	n.ready(first)
	return n, first, second
}

// indexOf is the index of the GPU of a claim's first device among those of the machine.
func (n *node) indexOf(claim *claimOf) int {
	n.t.Helper()
	id := n.prepared(claim.UID).Devices[0].GPUs[0]
	return slices.IndexFunc(n.state.Machine.GPUs, func(g pool.GPU) bool { return g.ID == id })
}

// Two partitions have each other's ID now, as after a boot. A claim holds the unit that it was given, so that
// its files, written again, give this unit; another claim that gets the other unit has no device node of it.
func TestFilesOfRenamedDevice(t *testing.T) {
	n, first, second := newPartitions(t)
	before, i := n.nodesOf(first), n.indexOf(first)
	n.exchangeIDs(i, i+1)
	n.ready(second)
	after := n.nodesOf(first)
	if !slices.Equal(before, after) {
		t.Errorf("the claim had %v and is given %v now", before, after)
	}
	for _, path := range n.nodesOf(second) {
		if slices.Contains(after, path) {
			t.Errorf("both claims are given %s", path)
		}
	}
	n.exchangeIDs(i, i+1) // after the second claim has written the record
	if again := n.nodesOf(first); !slices.Equal(before, again) {
		t.Errorf("the claim had %v and is given %v after a second boot", before, again)
	}
}

// namedGPUs are GPUs that container runtimes know by name, with the environment of NVIDIA's GPUs in claims.
type namedGPUs struct{ nvidiaGPUs }

func (namedGPUs) Edits(devices []gpu.Device) container.Edits {
	return container.Edits{
		Env:   map[string]string{"NVIDIA_VISIBLE_DEVICES": "void"},
		Named: container.Named{Devices: []string{"nvidia.com/gpu=" + devices[0].ID}},
	}
}

// After a boot the kubelet asks again for a prepared claim: the container runtime gets the name that the GPU
// has now.
func TestNameOfRenamedDevice(t *testing.T) {
	sys, tree := machines.Read(t, "nv-h100-oci", 1)
	n := newNodeOf(t, disk.New(1), sys, tree, namedGPUs{nvidiaGPUs{tree}}, plainVFs, true)
	claim := n.need("train", want{"gpu", pool.TypeGPU, 1})
	before := n.ready(claim)[0].CDIDeviceIDs
	of := n.indexOf(claim)
	n.exchangeIDs(of, (of+1)%len(n.state.Machine.GPUs))
	now := "nvidia.com/gpu=" + n.state.Machine.GPUs[of].ID
	after := n.ready(claim)[0].CDIDeviceIDs
	if now == before[1] || !slices.Equal(after, []string{before[0], now}) {
		t.Errorf("the container runtime gets %v for %s, and got %v", after, now, before)
	}
}

// exchangeIDs boots the node with each other's ID for two partitions, and restores the files.
func (n *node) exchangeIDs(i, j int) {
	n.t.Helper()
	gpus := slices.Clone(n.state.Machine.GPUs)
	gpus[i].ID, gpus[j].ID = gpus[j].ID, gpus[i].ID
	n.state.Machine.GPUs = gpus
	n.state.Pool = pool.Build(n.state.Machine, pool.Options{Counters: true, Taints: true})
	if err := n.Restore(n.t.Context(), n.state); err != nil {
		n.t.Fatal(err)
	}
}

// nodesOf returns the device nodes of a claim's partition.
func (n *node) nodesOf(claim *resourceapi.ResourceClaim) (paths []string) {
	n.t.Helper()
	for _, device := range n.spec(claim).Devices {
		for _, one := range device.ContainerEdits.DeviceNodes {
			if one.Path != "/dev/kfd" {
				paths = append(paths, one.Path)
			}
		}
	}
	return paths
}

// The version before has prepared a claim, without units; this version has started, restored the files and
// prepared another claim. After a boot with each other's ID for the partitions of both, no partition is given
// to both.
func TestUpgradeThenBoot(t *testing.T) {
	n, first, second := newPartitions(t)
	i := n.indexOf(first)
	_, known, err := n.loadClaims()
	if err != nil {
		t.Fatal(err)
	}
	known[0].Devices[0].Units = nil
	content, err := coordination.EncodeClaims(known)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.claimsPath(), content, 0o600); err != nil {
		t.Fatal(err)
	}
	n.Preparer = New(n.Options)
	if err := n.Restore(t.Context(), n.state); err != nil {
		t.Fatal(err)
	}
	n.ready(second)
	before := n.nodesOf(first)
	n.exchangeIDs(i, i+1)
	n.ready(first)
	n.ready(second)
	for _, path := range n.nodesOf(second) {
		if slices.Contains(n.nodesOf(first), path) {
			t.Errorf("both claims are given %s; the first had %v", path, before)
		}
	}
}

// Two partitions have each other's ID after a boot, and the kubelet asks again for a prepared claim. The
// version before, test/before, reads the IDs alone on the way back: they are those of the claim's partition.
func TestRenamedDeviceOnTheWayBack(t *testing.T) {
	n, claim, _ := newPartitions(t)
	i := n.indexOf(claim)
	n.exchangeIDs(i, i+1)
	n.ready(claim)
	content, _, err := n.loadClaims()
	if err != nil {
		t.Fatal(err)
	}
	type claimBefore struct{ Devices []struct{ GPUs []string } }
	read, err := coordination.DecodeClaims[claimBefore](n.claimsPath(), content)
	if err != nil {
		t.Fatal(err)
	}
	if has, now := read[0].Devices[0].GPUs[0], n.state.Machine.GPUs[i].ID; has != now {
		t.Errorf("the claim has partition %s, and the version before reads %s, which is another one", now, has)
	}
}

// loseGPU takes the GPU of a claim's first device from the node. The next GPU has its nodes now, and its ID
// where the ID is not the GPU's address. It returns the lost unit.
func (n *node) loseGPU(claim *resourceapi.ResourceClaim) (unit string) {
	n.t.Helper()
	i := n.indexOf(claim)
	gpus := slices.Clone(n.state.Machine.GPUs)
	lost, next := gpus[i], &gpus[(i+1)%len(gpus)]
	next.Nodes = lost.Nodes
	if next.ID != next.Card.String() {
		next.ID = lost.ID
	}
	n.state.Machine.GPUs = slices.Delete(gpus, i, i+1)
	n.state.Pool = pool.Build(n.state.Machine, pool.Options{Counters: true, Taints: true})
	return lost.Unit().Name
}

// isRefused: the kubelet is told why a claim is not prepared, and nothing else.
func (n *node) isRefused(answer kubeletplugin.PrepareResult, reason string) {
	n.t.Helper()
	if answer.Err == nil || !strings.Contains(answer.Err.Error(), reason) || len(answer.Devices) > 0 {
		n.t.Errorf("the kubelet is told %v, %v; want %q", answer.Devices, answer.Err, reason)
	}
}

// The name of a gone GPU, which container runtimes know as another GPU's, is told to nobody: neither with the
// claim alone, nor with another claim of the call, and no container starts again by the names that it has.
// The GPU's return prepares the claim as before.
func TestNameOfGoneDevice(t *testing.T) {
	sys, tree := machines.Read(t, "nv-h100-oci", 1)
	n := newNodeOf(t, disk.New(1), sys, tree, namedGPUs{nvidiaGPUs{tree}}, plainVFs, true)
	claim := n.need("train", want{"gpu", pool.TypeGPU, 1})
	first := n.ready(claim)
	whole := n.state
	lost := n.loseGPU(claim)
	err := n.Restore(t.Context(), n.state)
	if left := n.cdiDevices(claim); err == nil || len(left) > 0 || len(first[0].CDIDeviceIDs) < 2 {
		t.Errorf("%v; a container starts again with %v and %v", err, first[0].CDIDeviceIDs, left)
	}
	reason := fmt.Sprintf("claim team/train has device %s with GPU %s, which is gone: its containers that run "+
		"continue, and none starts before the device is back; or delete the pods of the claim",
		claim.Status.Allocation.Devices.Results[0].Device, lost)
	other := n.need("other", want{"gpu", pool.TypeGPU, 1})
	for _, called := range [][]*resourceapi.ResourceClaim{list(claim), list(other, claim)} {
		for _, answer := range n.Prepare(t.Context(), n.state, called) {
			n.isRefused(answer, reason)
		}
	}
	n.ready(other)
	n.state = whole
	if again := n.ready(claim); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("first %v, then %v", first, again)
	}
}

// While a device of a claim is gone no container gets the device's nodes, which can be another device's: the
// claim has no CDI device, from the moment of the loss, and stays prepared. Other claims of the call are
// told as prepared. The device's return brings the spec back.
func TestNodesOfGoneDevice(t *testing.T) {
	for name, lose := range map[string]func(*node, *resourceapi.ResourceClaim) string{
		"a GPU":       (*node).loseGPU,
		"a partition": (*node).loseGPU,
		"a VF": func(n *node, claim *resourceapi.ResourceClaim) string {
			id := n.prepared(claim.UID).Devices[0].VFs[0]
			n.Host.Sys = without(n.sys, id)
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine, of := "oci-mi300x-derived", pool.TypePair
			if name == "a partition" {
				machine, of = "amd-mi300x-smc-thor2-cpx-derived", pool.TypeGPU
			}
			n := newNode(t, machine, 4, toldVFs, true)
			claim, other := n.need("train", want{"request", of, 1}), n.need("other", want{"request", of, 1})
			n.ready(claim)
			n.ready(other)
			before, sys := n.state, n.Host.Sys
			spec, err := os.ReadFile(n.specPath(claim.UID))
			if err != nil {
				t.Fatal(err)
			}
			lost := lose(n, claim)
			for range 2 {
				err := n.Restore(t.Context(), n.state)
				if err == nil || !strings.Contains(err.Error(), lost+", which is gone") {
					t.Errorf("restore: %v, want %s in it", err, lost)
				}
			}
			if left := n.cdiDevices(claim); len(left) > 0 {
				t.Errorf("the CDI spec has %v", left)
			}
			answers := n.Prepare(t.Context(), n.state, list(other, claim))
			if err := answers[other.UID].Err; err != nil {
				t.Error(err)
			}
			n.isRefused(answers[claim.UID], lost+", which is gone")
			if held := n.prepared(claim.UID).Devices; len(held) != 1 {
				t.Errorf("the claim has %v", held)
			}
			n.state, n.Host.Sys = before, sys
			n.restored()
			if content, err := os.ReadFile(n.specPath(claim.UID)); string(content) != string(spec) {
				t.Errorf("%v: %s", err, content)
			}
			n.ready(claim)
		})
	}
}

// Two claims of one pod are in one group. The error about the claim that has lost nothing names it as the one
// that has the device.
func TestGoneDeviceOfAnotherClaim(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, plainVFs, true)
	one := want{"gpu", pool.TypeGPU, 1}
	first, second := n.need("first", one), n.need("second", one)
	for _, claim := range list(first, second) {
		claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", UID: "pod"}}
	}
	n.pods["team/pod"] = running("first second")
	n.ready(first, second)
	device := second.Status.Allocation.Devices.Results[0].Device
	lost := n.loseGPU(second)
	answers := n.Prepare(t.Context(), n.state, list(first))
	err := answers[first.UID].Err
	if err == nil || !strings.Contains(err.Error(), lost) {
		t.Fatalf("no group: %v", err)
	}
	if strings.Contains(err.Error(), "claim team/first has device "+device) {
		t.Error(err)
	}
}

// A boot resets the partitioning of AMD's GPUs. Until it is set again the first partition is gone like the
// others, and its unit has the name of the whole GPU: the container of an eighth is given all of it.
func TestFirstPartitionIsTheWholeGPU(t *testing.T) {
	n := newNode(t, "amd-mi300x-smc-thor2-cpx-derived", 1, plainVFs, true)
	var claims []*resourceapi.ResourceClaim
	var whole pool.GPU
	for i := range 8 {
		claim := n.need(fmt.Sprint("claim-", i), want{"gpu", pool.TypeGPU, 1})
		claims = append(claims, claim)
		n.ready(claim)
		for _, g := range n.state.Machine.GPUs {
			if g.ID == n.prepared(claim.UID).Devices[0].GPUs[0] && g.Part == "" {
				whole = g
			}
		}
	}
	if whole.Parts < 8 {
		t.Fatalf("not a first partition: %+v", whole)
	}
	whole.Parts = 1
	n.boot()
	n.state.Machine.GPUs = []pool.GPU{whole}
	n.state.Pool = pool.Build(n.state.Machine, pool.Options{Counters: true, Taints: true})
	_ = n.Restore(t.Context(), n.state)
	for _, claim := range claims {
		if answer := n.Prepare(t.Context(), n.state, list(claim))[claim.UID]; answer.Err == nil {
			t.Errorf("%s of one of 8 partitions is given the whole GPU: %v", claim.Name, answer.Devices)
		}
	}
}

// A partition that is missing for a moment makes the others no other GPUs.
func TestPartitionMissing(t *testing.T) {
	t.Parallel()
	for parts, want := range map[[2]int]bool{
		{8, 8}: false, {8, 7}: false, {7, 8}: false, {8, 4}: true, {2, 8}: true, {1, 2}: true, {0, 8}: false,
	} {
		if got := (Prepared{Parts: parts[0]}).isPartitionedAnew(parts[1]); got != want {
			t.Errorf("%d partitions, then %d: %t", parts[0], parts[1], got)
		}
	}
}

// The CDI specs say that claims are prepared where claims.json is lost, also of the claim that has lost its
// VF: else the GPU of its running pod is given to another claim.
func TestGoneDeviceThenLostCheckpoint(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, plainVFs, true)
	claim := n.need("train", want{"pair", pool.TypePair, 1})
	n.ready(claim)
	held := n.prepared(claim.UID).Devices[0]
	n.Host.Sys = without(n.sys, held.VFs[0])
	_ = n.Restore(t.Context(), n.state) // reports the loss
	if err := os.Remove(n.claimsPath()); err != nil {
		t.Fatal(err)
	}
	next := New(n.Options) // the next process
	if err := next.Restore(t.Context(), n.state); !errors.Is(err, coordination.ErrUnknownClaims) {
		t.Errorf("restored: %v", err)
	}
	n.used = map[string]string{}
	another := n.need("another", want{"gpu", pool.TypeGPU, 1})
	answer := n.prepareBy(next, n.state, another)[another.UID]
	known, err := next.Prepared(n.state.Machine)
	c, _ := FindClaim(known, another.UID)
	if answer.Err == nil && err == nil && slices.Equal(c.Devices[0].GPUs, held.GPUs) {
		t.Errorf("GPU %v of the running pod is given to another claim", held.GPUs)
	}
}

// cdiDevices returns the CDI devices of a claim's spec, which a file has, as a record of the claim.
func (n *node) cdiDevices(claim *resourceapi.ResourceClaim) []specs.Device {
	n.t.Helper()
	content, err := os.ReadFile(n.specPath(claim.UID))
	var spec specs.Spec
	if err := errors.Join(err, json.Unmarshal(content, &spec)); err != nil {
		n.t.Error(err)
	}
	return spec.Devices
}

// without is a sysfs without a function.
func without(sys fs.FS, function string) fs.FS {
	return functions.Faulty{Files: sys, Fail: func(call, name string) error {
		if call == "stat" && strings.Contains(name, function) {
			return fs.ErrNotExist
		}
		return nil
	}}
}
