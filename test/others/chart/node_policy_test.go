// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/authentication/user"
)

// oldest is the first version of Kubernetes that a policy is for: that of --publish.
var oldest = version.MustParse("1.30")

// mutating is the first version of Kubernetes that has policies which change objects, without a gate.
var mutating = version.MustParse("1.36")

const draAccount = "system:serviceaccount:kube-system:tandem-dra"

// on is an account whose token was made for a pod on a node; "" for a token of no pod.
func on(account, node string) user.Info {
	info := &user.DefaultInfo{Name: account}
	if node != "" {
		info.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	return info
}

func slice(driver, where string) string {
	return fmt.Sprintf("{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: x}, "+
		"spec: {driver: %s, %s, pool: {name: a, generation: 1, resourceSliceCount: 1}}}", driver, where)
}

// TestOnlyItsOwnSlices: the token of a node's pod is good for the slices of that node and of our driver.
func TestOnlyItsOwnSlices(t *testing.T) {
	const elsewhere, noNode = "is for the slices of that node alone", "names no node"
	const foreign = "devices of the driver tandem.dev alone"
	const pool, holds = "is for the pool of that node alone", "holds up the deletion of nothing else"
	mine, other := slice("tandem.dev", "nodeName: a"), slice("tandem.dev", "nodeName: b")
	// What the scheduler knows a device by is the name of the pool, not the node of the slice.
	theirs := strings.Replace(mine, "pool: {name: a, generation: 1", "pool: {name: b, generation: 9999", 1)
	owned := func(owner string) string {
		return strings.Replace(mine, "{name: x}",
			"{generateName: x-, ownerReferences: [{apiVersion: v1, kind: Node, uid: u, "+owner+"}]}", 1)
	}
	objects := install(t, ofDRA)
	policy := policyNamed(t, objects, "tandem-dra-slices")
	for _, c := range []struct {
		write write
		want  string
	}{
		{write{on(draAccount, "a"), mine, ""}, ""},
		{write{on(draAccount, "a"), mine, mine}, ""},
		{write{on(draAccount, "a"), "", mine}, ""},
		{write{on(draAccount, "a"), other, ""}, elsewhere},
		{write{on(draAccount, "a"), mine, other}, elsewhere},
		{write{on(draAccount, "a"), "", other}, elsewhere},
		{write{on(draAccount, "a"), slice("tandem.dev", "allNodes: true"), ""}, elsewhere},
		{write{on(draAccount, "a"), slice("tandem.dev", "perDeviceNodeSelection: true, "+
			"devices: [{name: d, nodeName: b}]"), ""}, elsewhere},
		{write{on(draAccount, "a"), slice("tandem.dev", "nodeSelector: {nodeSelectorTerms: "+
			"[{matchFields: [{key: metadata.name, operator: In, values: [a, b]}]}]}"), ""}, elsewhere},
		{write{on(draAccount, "a"), other, mine}, elsewhere},
		{write{on(draAccount, "a"), theirs, ""}, pool},
		{write{on(draAccount, "a"), theirs, theirs}, pool},
		{write{on(draAccount, "a"), theirs, mine}, pool},
		{write{on(draAccount, "a"), "", theirs}, ""}, // the fewer of them the better
		{write{on(draAccount, "b"), "", theirs}, elsewhere},
		{write{on(draAccount, "a"), owned("name: a, controller: true"), ""}, ""},
		{write{on(draAccount, "a"), owned("name: b, blockOwnerDeletion: true"), ""}, holds},
		{write{on(draAccount, "a"), slice("tandem.dev", "nodeName: a"),
			slice("gpu.nvidia.com", "nodeName: a")}, foreign},
		{write{on(draAccount, "a"), slice("gpu.nvidia.com", "nodeName: a"), ""}, foreign},
		{write{on(draAccount, "a"), "", slice("gpu.nvidia.com", "nodeName: a")}, foreign},
		{write{on(draAccount, ""), mine, ""}, noNode},
		{write{on(draAccount, ""), slice("tandem.dev", "nodeName: ''"), ""}, noNode},
		{write{on("system:node:b", ""), "", mine}, ""},
		{write{on("system:serviceaccount:kube-system:other", "b"), mine, ""}, ""},
	} {
		expect(t, judge(t, policy, c.write), c.want, fmt.Sprint(c.write))
	}
}

// TestOnlyItsOwnDevicesOfAClaim: what the scheduler decided stays, and what other drivers and other nodes
// say.
func TestOnlyItsOwnDevicesOfAClaim(t *testing.T) {
	claim := func(status string) string {
		return "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: x, namespace: team}, " +
			"spec: {}, status: {" + status + "}}"
	}
	const refused = "is for the devices of the driver tandem.dev on that node alone"
	const allocated = "allocation: {devices: {results: [{driver: tandem.dev, pool: a, device: d, request: r}]}}"
	const elsewhere = "allocation: {devices: {results: [{driver: tandem.dev, pool: b, device: d, request: r}, " +
		"{driver: other.dev, pool: b, device: e, request: s}]}}, devices: ["
	onB := func(more string) string { return "{driver: tandem.dev, pool: b, device: d" + more + "}" }
	const nic = "{driver: other.dev, pool: b, device: e}"
	const reserved = ", reservedFor: [{resource: pods, name: p, uid: u}]"
	ours := ", devices: [{driver: tandem.dev, pool: a, device: d}]"
	theirs := ", devices: [{driver: other.dev, pool: a, device: d}]"
	objects := install(t, ofDRA)
	policy := policyNamed(t, objects, "tandem-dra-claims")
	for _, c := range []struct{ before, after, want string }{
		{allocated + reserved, allocated + reserved + ours, ""},
		{allocated + reserved + ours, allocated + reserved, ""},
		{allocated + theirs, allocated + theirs, ""},
		{allocated, "", "the scheduler allocates and reserves a claim"},
		{"", allocated, "the scheduler allocates and reserves a claim"},
		{allocated, allocated + reserved, "the scheduler allocates and reserves a claim"},
		{allocated, allocated + theirs, refused},
		{allocated + theirs, allocated, refused},
		{allocated + theirs, allocated + strings.Replace(theirs, "device: d", "device: d, data: {a: b}", 1),
			refused},
		{allocated + ", devices: [" + nic + ", " + onB("") + "]",
			allocated + ", devices: [" + onB("") + ", {driver: tandem.dev, pool: a, device: d}, " + nic + "]", ""},
		{elsewhere + "]", elsewhere + onB(", networkData: {ips: [10.0.0.1/8]}") + "]", refused},
		{elsewhere + onB("") + "]", elsewhere + onB(", networkData: {ips: [10.0.0.1/8]}") + "]", refused},
		{elsewhere + onB("") + ", " + nic + "]", elsewhere + nic + "]", refused},
		{elsewhere + nic + "]", elsewhere + "]", refused},
	} {
		w := write{on(draAccount, "a"), claim(c.after), claim(c.before)}
		expect(t, judge(t, policy, w), c.want, c.before+" -> "+c.after)
		w.user = on(draAccount, "")
		expect(t, judge(t, policy, w), "names no node", "by a token of no pod: "+c.after)
		w.user = on("system:kube-scheduler", "")
		expect(t, judge(t, policy, w), "", "by the scheduler: "+c.after)
	}
}

func expect(t *testing.T, reasons []string, want, what string) {
	t.Helper()
	if want == "" && len(reasons) > 0 ||
		want != "" && !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(r, want) }) {
		t.Errorf("%s: refused by %q, want %q", what, reasons, want)
	}
}
