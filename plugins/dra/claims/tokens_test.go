// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/machines"
)

// extended is a claim that the scheduler makes of extended resources, of so many GPUs and VFs for each
// container.
func (n *node) extended(name string, containers ...[2]int) *claimOf {
	var wants []want
	for i, c := range containers {
		wants = append(wants, want{fmt.Sprintf("container-%d-request-0", i), pool.TypeGPU, c[0]})
		wants = append(wants, want{fmt.Sprintf("container-%d-request-1", i), pool.TypeVF, c[1]})
	}
	claim := n.claim(name, wants...)
	n.made = n.made[:len(n.made)-1] // no container names it
	if claim != nil {
		claim.Annotations = map[string]string{"resource.kubernetes.io/extended-resource-claim": "true"}
	}
	return claim
}

// A pod that asks for GPUs and VFs in the old way gets a pair for each, wherever the VFs suffice, whichever
// the scheduler took: on all machines whose GPUs have VFs reserved for them, after others have taken some.
func TestTokensBecomePairs(t *testing.T) {
	split := 0 // pairs that the scheduler made, by itself
	for _, machine := range machines.Names() {
		for _, taken := range []int{0, 1, 3} {
			n := newNode(t, machine, 8, toldVFs, true)
			for _, device := range n.allocate(pool.TypeVF, taken) {
				t.Logf("%s is taken", device)
			}
			claim := n.extended("train", [2]int{4, 4})
			if claim == nil {
				continue
			}
			var named []Prepared
			for _, r := range driverResults(claim) {
				d := n.state.Pool.Devices[r.Device]
				named = append(named, Prepared{GPUs: d.GPUs, VFs: d.VFs})
			}
			pairs, together := n.together(named)
			split += pairs - together
			if len(newDecision(n.state, nil, nil).reservedVFs()) < 4 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", machine, taken), func(t *testing.T) {
				n.t = t
				n.ready(claim)
				n.check(claim)
				n.aligned(claim, 4)
				n.bindings(claim)
			})
		}
	}
	if split == 0 {
		t.Error("nothing had to be mended: this shows nothing")
	}
}

// bindings is that exactly the tokens are published as what was handed out for them, and that containers and
// Multus find it.
func (n *node) bindings(claim *claimOf) {
	n.t.Helper()
	c := n.prepared(claim.UID)
	bound, _ := Bound([]Claim{c})
	for _, d := range c.Devices {
		own := n.state.Pool.Devices[d.Device].VFs
		switch {
		case len(own) != 1:
		case d.Token != "" && (d.Token != own[0] || d.VFs[0] == own[0]), d.Token == "" && d.VFs[0] != own[0]:
			n.t.Errorf("%+v stands for %v", d, own)
		case bound[d.Device] != d.VFs[0]:
			n.t.Errorf("%s is bound to %q, and %s was handed out", d.Device, bound[d.Device], d.VFs[0])
		}
		for _, vf := range d.VFs {
			if name := n.Host.DevinfoPath("tandem.dev/rdma_vf", vf); !exists(name) {
				n.t.Errorf("Multus finds no %s", name)
			}
		}
	}
	if fmt.Sprint(n.published) != fmt.Sprint(bound) {
		n.t.Errorf("published %v, bound %v", n.published, bound)
	}
	edits := n.edits(claim, "container-0-request-0")
	listed := strings.Split(variable(edits, "PCIDEVICE_TANDEM_DEV_RDMA_VF"), ",")
	for _, vf := range listed {
		if !slices.ContainsFunc(c.Devices, func(d Prepared) bool { return slices.Contains(d.VFs, vf) }) {
			n.t.Errorf("VF %s is in the environment and not handed out", vf)
		}
	}
	told, err := pairs.Read(edits.Mounts[0].HostPath)
	if err != nil || len(told.Pairs) != len(listed) {
		n.t.Fatalf("pairs %v, %v", told, err)
	}
	for i, pair := range told.Pairs {
		if pair.VF.ID != listed[i] || pair.GPU == nil {
			n.t.Errorf("pair %d is %+v, and VF %s is listed", i, pair, listed[i])
		}
	}
}

// What is handed out for tokens, where the scheduler took what is first.
func TestTokens(t *testing.T) {
	for _, c := range []struct {
		name, machine string
		vfs           int
		taken         int // VFs that others have
		containers    [][2]int
		together      int // pairs on one switch each
		all           int
	}{
		{"two containers", "oci-mi300x-derived", 4, 0, [][2]int{{2, 2}, {2, 2}}, 4, 4},
		{"fewer VFs than GPUs: each serves its share", "amd-mi300x-smc-thor2-cpx-derived", 16, 0,
			[][2]int{{12, 3}}, 12, 12},
		{"more VFs than GPUs", "oci-mi300x-derived", 4, 0, [][2]int{{1, 3}}, 1, 3},
		{"VFs alone", "oci-mi300x-derived", 4, 0, [][2]int{{0, 3}}, 0, 0},
		{"GPUs in one container, VFs in the other", "oci-mi300x-derived", 4, 0, [][2]int{{2, 0}, {0, 2}}, 0, 0},
		{"no VF is reserved: as good as the VFs are", "oci-mi300x-derived", 1, 0, [][2]int{{4, 4}}, 4, 4},
		{"none is reserved and the first is taken", "oci-mi300x-derived", 1, 1, [][2]int{{4, 4}}, 3, 4},
		{"containers exchange VFs", "oci-mi300x-derived", 1, 0, [][2]int{{1, 0}, {1, 1}, {1, 1}}, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, c.machine, c.vfs, toldVFs, true)
			n.allocate(pool.TypeVF, c.taken)
			claim := n.extended("train", c.containers...)
			if claim == nil {
				t.Fatal("the machine has not so many devices")
			}
			n.ready(claim)
			n.check(claim)
			prepared, all, together := n.prepared(claim.UID), 0, 0
			for _, first := range prepared.firstOfGroups() {
				a, b := n.together(inGroup([]Claim{prepared}, first.Group))
				all, together = all+a, together+b
			}
			if all != c.all || together != c.together {
				t.Errorf("%d of %d pairs are on one switch; want %d of %d: %+v", together, all, c.together, c.all,
					prepared.Devices)
			}
			if n.asked.Load() > 0 != (len(c.containers) > 1 || c.containers[0][0] > 0) {
				t.Errorf("asked for %d pods", n.asked.Load())
			}
			if err := n.end(claim); err != nil {
				t.Fatal(err)
			}
			n.check()
		})
	}
}

// What cannot be published is not reported as prepared: Multus would take another VF than the container has.
func TestNotPublished(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	n.allocate(pool.TypeVF, 1)
	claim := n.extended("train", [2]int{4, 4})
	n.refusal = fmt.Errorf("API server is away")
	if err := n.Prepare(t.Context(), n.state, list(claim))[claim.UID].Err; err == nil ||
		!strings.Contains(err.Error(), "API server is away") {
		t.Errorf("error %v", err)
	}
	n.check(claim) // for the next call
	if err := n.end(claim); err != nil {
		t.Error(err)
	}
	n.check()
	if err := n.Prepare(t.Context(), n.state, list(claim))[claim.UID].Err; err == nil {
		t.Error("says that it is prepared, again")
	}
	n.refusal = nil
	n.ready(claim)
	n.check(claim)
	// The kubelet restarts: what is prepared stays, and has to be published before it says so.
	n.refusal = fmt.Errorf("API server is away")
	if err := n.Prepare(t.Context(), n.state, list(claim))[claim.UID].Err; err == nil {
		t.Error("says that it is prepared")
	}
	n.check(claim)
	if err := n.end(claim); err != nil { // nothing is lost by what is published too long
		t.Error(err)
	}
	n.check()
}

// A reserved VF that is broken, or of another resource with another network, is not handed out, and another
// VF not twice for it.
func TestUnusableReservedVFs(t *testing.T) {
	for name, c := range map[string]struct {
		count int
		spoil func(vf *pool.VF)
	}{
		"broken":              {1, func(vf *pool.VF) { vf.Fault = "link is down" }},
		"of another resource": {3, func(vf *pool.VF) { vf.Pool = "tandem.dev/storage" }},
	} {
		n := newNode(t, "amd-mi300x-smc-thor2-cpx-derived", 16, toldVFs, true)
		n.allocate(pool.TypeVF, 8) // those that are left are of another switch than the GPUs
		claim := n.extended("train", [2]int{3, 3})
		reserved := newDecision(n.state, nil, nil).reservedVFs()
		var spoilt, given []string
		for _, r := range driverResults(claim)[:c.count] {
			spoilt = append(spoilt, reserved[n.state.Pool.Devices[r.Device].GPUs[0]])
		}
		for i, vf := range n.state.Machine.VFs {
			if slices.Contains(spoilt, vf.ID) {
				c.spoil(&n.state.Machine.VFs[i])
			}
		}
		n.ready(claim)
		n.check(claim)
		for _, d := range n.prepared(claim.UID).Devices {
			given = append(given, d.VFs...)
		}
		isSpoilt := func(id string) bool { return slices.Contains(spoilt, id) }
		if len(given) != 3 || len(removeDuplicates(given)) != 3 || slices.ContainsFunc(given, isSpoilt) ||
			slices.Contains(spoilt, "") {
			t.Errorf("%s: VFs %v, spoilt %v", name, given, spoilt)
		}
	}
}
