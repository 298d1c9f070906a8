// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// apart is a node on which a claim gets a pair that is apart: the VF of the first GPU is taken.
func apart(t *testing.T) (*node, *claimOf) {
	t.Helper()
	n := newNode(t, "oci-mi300x-derived", 1, toldVFs, true)
	n.allocate(pool.TypeVF, 1)
	return n, n.extended("train", [2]int{4, 4})
}

// refused is that a claim is not prepared, for these reasons, and leaves nothing.
func (n *node) refused(claim *claimOf, reasons ...string) {
	n.t.Helper()
	before := n.alive()
	err := n.Prepare(n.t.Context(), n.state, list(claim))[claim.UID].Err
	if err == nil {
		n.t.Fatal("prepared")
	}
	for _, reason := range reasons {
		if !strings.Contains(err.Error(), reason) {
			n.t.Errorf("error %q, want %q in it", err, reason)
		}
	}
	if lines := strings.Count(err.Error(), "\n"); lines > 0 {
		n.t.Errorf("error %q has %d lines too many", err, lines)
	}
	n.check(before...)
}

// alive are the claims that are prepared.
func (n *node) alive() (claims []*claimOf) {
	n.t.Helper()
	known, err := n.Prepared(n.state.Machine)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, c := range known {
		claims = append(claims, &claimOf{ObjectMeta: metav1.ObjectMeta{UID: c.UID}})
	}
	return claims
}

// While it is not known who has which devices no claim is prepared, and one that was keeps its devices.
func TestRefusedWhileUnread(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 1, toldVFs, true)
	before := n.extended("before", [2]int{1, 1})
	n.ready(before)
	n.state.Unread = errors.New("it is not known which devices pods have")
	n.ready(before)
	n.refused(n.extended("train", [2]int{1, 1}), "prepare claims: it is not known which devices pods have")
	n.state.Unread = nil
	n.ready(n.extended("after", [2]int{1, 1}))
}

func (n *node) annotate(annotations map[string]string) {
	n.pods["team/pod"] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "pod", UID: "pod", Annotations: annotations,
	}}
}

func parameters(claim *claimOf, driver, text string) {
	config := resourceapi.DeviceAllocationConfiguration{}
	config.Opaque = &resourceapi.OpaqueDeviceConfiguration{
		Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(text)},
	}
	claim.Status.Allocation.Devices.Config = append(claim.Status.Allocation.Devices.Config, config)
}

// Alignment can be required by the pod, the claim or the node. Then a pair that is apart is refused with the
// reason, and with what could be otherwise.
func TestAlignment(t *testing.T) {
	required := map[string]string{intent.AlignmentKey: "required"}
	sentence := "refuse claim team/train: alignment is required and only 3 of 4 pairs are on one switch: GPU " +
		"0000:11:00.0 and VF "
	for name, c := range map[string]struct {
		pod        map[string]string // annotations; nil where the pod is not known
		parameters string
		policy     intent.Policy
		want       []string // of the refusal; none where it is prepared
	}{
		"nobody asks": {nil, "", intent.Policy{}, nil},
		"the pod": {required, "", intent.Policy{},
			[]string{sentence, intent.Relaxation}},
		"the pod, misspelt": {map[string]string{intent.AlignmentKey: "requird"}, "", intent.Policy{},
			[]string{sentence, intent.Relaxation}},
		"the claim": {nil, `{"alignment": "required"}`, intent.Policy{},
			[]string{sentence, "in the parameters of the claim or its class"}},
		"in full": {nil, `{"apiVersion": "tandem.dev/v1", "kind": "ClaimParameters", "alignment": "required"}`,
			intent.Policy{}, []string{sentence}},
		"the node": {nil, "", intent.Policy{Alignment: intent.Required},
			[]string{sentence, "--alignment=required asks that of every pod"}},
		"the claim does not": {nil, `{"alignment": "preferred"}`, intent.Policy{}, nil},
		"the pod is exempt": {map[string]string{intent.AlignmentKey: "preferred"}, "",
			intent.Policy{Alignment: intent.Required, OptOut: intent.AllNamespaces}, nil},
		"the pod would like to be": {map[string]string{intent.AlignmentKey: "preferred"}, "",
			intent.Policy{Alignment: intent.Required}, []string{sentence}},
		"misspelt": {nil, `{"alignement": "required"}`, intent.Policy{},
			[]string{"read the parameters of driver tandem.dev in claim team/train", "alignement",
				`want {"alignment": "required"}`}},
		"of another kind": {nil, `{"kind": "GpuConfig"}`, intent.Policy{},
			[]string{"want apiVersion tandem.dev/v1"}},
		"a wrong value": {nil, `{"alignment": "always"}`, intent.Policy{},
			[]string{"want preferred or required"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, claim := apart(t)
			n.Policy = c.policy
			if c.pod != nil {
				n.annotate(c.pod)
			}
			parameters(claim, "gpu.example.com", `{"not": "ours"}`)
			if c.parameters != "" {
				parameters(claim, pool.Driver, c.parameters)
			}
			if c.want == nil {
				n.ready(claim)
				n.check(claim)
				return
			}
			n.refused(claim, c.want...)
		})
	}
}

// A requirement counts for all devices of a container: the GPU and the VF of separate claims, and the further
// VFs of a container with a pair.
func TestAlignmentOfContainer(t *testing.T) {
	required := map[string]string{intent.AlignmentKey: "required"}
	separate := func(pod string) func(n *node) []*claimOf {
		return func(n *node) []*claimOf {
			n.allocate(pool.TypeVF, 1) // on the switch of the first GPU
			n.pods["team/pod"] = running(pod)
			return list(n.need("gpu", want{"g", pool.TypeGPU, 1}), n.need("vf", want{"v", pool.TypeVF, 1}))
		}
	}
	pairAndVFs := func(n *node) []*claimOf {
		claim := n.need("train", want{"container-0-request-0", pool.TypePair, 1},
			want{"container-0-request-1", pool.TypeVF, 3})
		claim.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
		n.annotate(nil)
		return list(claim)
	}
	for name, c := range map[string]struct {
		vfs    int
		claims func(*node) []*claimOf
		apart  bool
	}{
		"separate claims":                   {1, separate("gpu vf"), true},
		"separate claims by their requests": {1, separate("gpu/g vf/v"), true},
		"a pair and further VFs":            {2, pairAndVFs, true},
		"separate claims on one switch": {1, func(n *node) []*claimOf {
			n.pods["team/pod"] = running("gpu vf")
			return list(n.need("gpu", want{"g", pool.TypeGPU, 1}), n.need("vf", want{"v", pool.TypeVF, 1}))
		}, false},
		"claims of two containers": {1, func(n *node) []*claimOf {
			claims := separate("")(n)
			n.pods["team/pod"] = running("gpu", "vf")
			return claims
		}, false},
	} {
		for by, require := range map[string]func(*node, []*claimOf){
			"nobody":     nil,
			"flag":       func(n *node, _ []*claimOf) { n.Policy.Alignment = intent.Required },
			"annotation": func(n *node, _ []*claimOf) { n.pods["team/pod"].Annotations = required },
			"claim": func(_ *node, claims []*claimOf) {
				parameters(claims[0], pool.Driver, `{"alignment": "required"}`)
			},
		} {
			t.Run(name+" by "+by, func(t *testing.T) {
				t.Parallel()
				n := newNode(t, "oci-mi300x-derived", c.vfs, plainVFs, true)
				claims := c.claims(n)
				if require != nil {
					require(n, claims)
				}
				answers := n.Prepare(t.Context(), n.state, claims)
				for _, claim := range claims {
					err := answers[claim.UID].Err
					if refused := err != nil; refused != (c.apart && require != nil) {
						t.Errorf("%s: %v", claim.Name, err)
					}
				}
			})
		}
	}
}

// A claim that is prepared already, for which the kubelet does not call again, counts as well, and so does
// its requirement.
func TestAlignmentWithPreparedClaim(t *testing.T) {
	for by, refused := range map[string]bool{"nobody": false, "pod": true, "claim": true} {
		n := newNode(t, "oci-mi300x-derived", 1, plainVFs, true)
		n.allocate(pool.TypeVF, 1)
		gpu, vf := n.need("gpu", want{"g", pool.TypeGPU, 1}), n.need("vf", want{"v", pool.TypeVF, 1})
		if by == "claim" {
			parameters(gpu, pool.Driver, `{"alignment": "required"}`)
		}
		n.pods["team/pod"] = running("gpu")
		n.ready(gpu)
		n.pods["team/pod"] = running("gpu vf")
		if by == "pod" {
			n.pods["team/pod"].Annotations = map[string]string{intent.AlignmentKey: "required"}
		}
		if refused {
			n.refused(vf, "refuse claim team/vf: alignment is required")
		} else {
			n.ready(vf)
		}
	}
}

// The last line of defence: what somebody has is handed out to nobody else, and what is ill or gone is not.
func TestNobodyGetsWhatIsNotFree(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	first := n.need("first", want{"pairs", pool.TypePair, 2})
	n.ready(first)
	n.release(devicesOf(first)) // the scheduler errs
	second := n.need("second", want{"pairs", pool.TypePair, 1})
	n.refused(second, "claim team/second was allocated device pair-11-00-0", "is in use by claim team/first")

	admin := true
	second.Status.Allocation.Devices.Results[0].AdminAccess = &admin
	n.ready(second) // looks at it
	n.check(first, second)
	if err := n.end(second); err != nil {
		t.Fatal(err)
	}

	if err := n.end(first); err != nil {
		t.Fatal(err)
	}
	second.Status.Allocation.Devices.Results[0].AdminAccess = nil
	state := n.state
	n.state.Machine.GPUs = append(state.Machine.GPUs[:0:0], state.Machine.GPUs...)
	n.state.Machine.GPUs[0].Held = "pod team/old, by the device plugin"
	n.refused(second, "is in use by pod team/old, by the device plugin", "handed out once that ends")
	n.state.Machine.GPUs[0].Held, n.state.Machine.GPUs[0].Healthy = "", false
	n.refused(second, "its GPU 0000:11:00.0 is unhealthy")
	n.state.Machine.GPUs = state.Machine.GPUs[1:]
	n.refused(second, "its GPU 0000:11:00.0 is gone: delete the pod")
	n.state = state
	second.Status.Allocation.Devices.Results[0].Device = "pair-of-old"
	n.refused(second, "the node has no such device any more: delete the pod")
	second.Status.Allocation.Devices.Results[0].Device = "pair-11-00-0"
	n.ready(second)
	n.check(second)
}

// TestTwoClaimsOfOneCall: two claims of a pod with the same device are both refused, for the second one.
func TestTwoClaimsOfOneCall(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	first := n.need("first", want{"pairs", pool.TypePair, 1})
	n.release(devicesOf(first)) // the scheduler errs
	second := n.need("second", want{"pairs", pool.TypePair, 1})
	const reason = "claim team/second was allocated device pair-11-00-0, and its GPU 0000:11:00.0 is in use " +
		"by claim team/first"
	for uid, answer := range n.Prepare(t.Context(), n.state, list(first, second)) {
		if answer.Err == nil || !strings.HasPrefix(answer.Err.Error(), reason) {
			t.Errorf("%s: %v", uid, answer.Err)
		}
	}
	n.check()
}

// A device of a name has another VF since the node's VFs have changed: a claim that has this VF by itself too
// gets another one of the switch in its place. Without one it gets neither, in place of a VF less than it
// requests.
func TestNoDeviceCountsTwiceInAClaim(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	claim := n.need("train", want{"devices", pool.TypePair, 1}, want{"vfs", pool.TypeVF, 1})
	results := claim.Status.Allocation.Devices.Results
	vf, moved := n.state.Pool.Devices[results[0].Device].VFs[0], n.state.Pool.Devices[results[1].Device]
	moved.VFs = []string{vf}
	n.state.Pool.Devices[results[1].Device] = moved
	n.ready(claim)
	if d := n.prepared(claim.UID).Devices; d[0].VFs[0] == d[1].VFs[0] {
		t.Errorf("the claim has %v twice", d[0].VFs)
	}
	if err := n.end(claim); err != nil {
		t.Fatal(err)
	}
	n.state.Machine.VFs = slices.DeleteFunc(slices.Clone(n.state.Machine.VFs), func(v pool.VF) bool {
		return v.ID != vf
	})
	n.refused(claim, "claim team/train was allocated devices pair-11-00-0 and vf-", "and both have "+vf+" now")
}

// A token stands for one VF of one claim, also if another VF is assigned in its place: the name of the device
// is published with one VF.
func TestNobodyGetsTheTokenOfAnother(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	n.allocate(pool.TypeVF, 1) // the VF on the switch of the first GPU
	first := n.need("first", want{"vfs", pool.TypeVF, 1})
	n.ready(first)
	n.release(devicesOf(first)) // the scheduler errs, as after a forced deletion
	second := n.extended("second", [2]int{1, 1})
	n.refused(second, "is in use by claim team/first: it is handed out once that claim ends")
	if err := n.end(first); err != nil {
		t.Fatal(err)
	}
	n.ready(second)
	if token := n.prepared(second.UID).Devices[1].Token; token == "" {
		t.Error("no other VF is assigned: this shows nothing")
	}
}

// A claim that was allocated anew is prepared anew.
func TestAllocatedAnew(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	before := n.need("train", want{"pairs", pool.TypePair, 2})
	n.ready(before)
	after := n.need("train", want{"pairs", pool.TypePair, 2})
	answer := n.ready(after)
	n.check(after)
	if answer[0].DeviceName != devicesOf(after)[0] || answer[0].DeviceName == devicesOf(before)[0] {
		t.Errorf("answer %v", answer)
	}
}

// A claim of other drivers' devices alone is none of ours.
func TestNotOurs(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	claim := n.need("train", want{"pairs", pool.TypePair, 1})
	claim.Status.Allocation.Devices.Results[0].Driver = "gpu.example.com"
	if devices := n.ready(claim); len(devices) != 0 {
		t.Errorf("answer %v", devices)
	}
	n.check()
}
