// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/machines"
)

// loseGPU takes the GPU of a claim's first device from the node. The next GPU has its nodes now, and its ID
// where the ID is not the GPU's address. It returns the lost unit.
func (n *node) loseGPU(claim *resourceapi.ResourceClaim) (unit string) {
	n.t.Helper()
	id := n.prepared(claim.UID).Devices[0].GPUs[0]
	gpus := slices.Clone(n.state.Machine.GPUs)
	i := slices.IndexFunc(gpus, func(g pool.GPU) bool { return g.ID == id })
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
// claim alone, nor with another claim of the call. The GPU's return prepares the claim as before.
func TestNameOfGoneDevice(t *testing.T) {
	sys, tree := machines.Read(t, "nv-h100-oci", 1)
	n := newNodeOf(t, disk.New(1), sys, tree, namedGPUs{nvidiaGPUs{tree}}, plainVFs, true)
	claim := n.need("train", want{"gpu", pool.TypeGPU, 1})
	first := n.ready(claim)
	whole := n.state
	lost := n.loseGPU(claim)
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
// claim has no CDI spec, from the moment of the loss, and the claim stays prepared. Other claims of the call
// are told as prepared. The device's return brings the spec back.
func TestNodesOfGoneDevice(t *testing.T) {
	for name, lose := range map[string]func(*node, *resourceapi.ResourceClaim) string{
		"a GPU":       (*node).loseGPU,
		"a partition": (*node).loseGPU,
		"a VF": func(n *node, claim *resourceapi.ResourceClaim) string {
			id := n.prepared(claim.UID).Devices[0].VFs[0]
			n.Host.Sys = without{n.sys, id}
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
			if _, err := os.Stat(n.specPath(claim.UID)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the CDI spec: %v", err)
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

// without is a sysfs without a function.
type without struct {
	fs.FS
	function string
}

// Stat implements fs.StatFS.
func (s without) Stat(name string) (fs.FileInfo, error) {
	if strings.Contains(name, s.function) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return fs.Stat(s.FS, name)
}
