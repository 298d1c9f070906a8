// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"testing"
)

const account = "system:serviceaccount:kube-system:tandem"

// TestOnlyItsOwnObjects: the token of a node's pod is good for the objects that describe that node, and for
// labels of Tandem's own domains.
func TestOnlyItsOwnObjects(t *testing.T) {
	const elsewhere, noNode = "is for the objects of that node alone", "names no node"
	const foreign, features = "labels of tandem.dev and numa.kubenexus.io alone", "tells NFD no features"
	const holds = "holds up the deletion of nothing else"
	topology := func(name string) string {
		return "{apiVersion: tandem.dev/v1alpha1, kind: NodeTopology, metadata: {" + name + "}, spec: {}}"
	}
	zones := func(name string) string {
		return "{apiVersion: topology.node.k8s.io/v1alpha2, kind: NodeResourceTopology, metadata: {" + name +
			"}, zones: []}"
	}
	feature := func(name, node, spec string) string {
		return "{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeature, metadata: {namespace: team, name: " +
			name + ", labels: {app.kubernetes.io/managed-by: tandem" + node + "}}, spec: {" + spec + "}}"
	}
	ofNode := func(node string) string { return ", nfd.node.kubernetes.io/node-name: " + node }
	owner := func(more string) string {
		return ", ownerReferences: [{apiVersion: v1, kind: Node, name: a, uid: u" + more + "}]"
	}
	const none = "features: {flags: {}, attributes: {}, instances: {}}, labels: {tandem.dev/switches: '8'}"
	mine := feature("tandem-a", ofNode("a"), none)
	objects := install(t, "{publish: [tandem, nrt, nfd]}")
	policy := policyNamed(t, objects, "publish")
	for _, c := range []struct{ before, after, want string }{
		{"", topology("name: a" + owner("")), ""},
		{topology("name: a"), topology("name: a"), ""},
		{"", topology("name: b"), elsewhere},
		{topology("name: b"), topology("name: b"), elsewhere},
		{"", topology("generateName: a, name: a7x9k"), elsewhere},
		{"", topology("name: tandem-a"), elsewhere},
		{"", topology("name: a" + owner(", blockOwnerDeletion: true")), holds},
		{topology("name: a"), topology("name: a" + owner(", blockOwnerDeletion: true")), holds},
		{"", zones("name: a" + owner("")), ""},
		{zones("name: b"), zones("name: b"), elsewhere},
		{"", zones("name: b"), elsewhere},
		{"", zones("name: a" + owner(", blockOwnerDeletion: true")), holds},
		{"", mine, ""},
		{mine, mine, ""},
		{feature("tandem-a", "", none), mine, ""}, // somebody has removed the label
		{"", feature("tandem-b", ofNode("b"), none), elsewhere},
		{"", feature("tandem-b", ofNode("a"), none), elsewhere},
		{"", feature("tandem-a", ofNode("b"), none), elsewhere},
		{"", feature("tandem-a", "", none), elsewhere},
		{mine, feature("tandem-a", ofNode("b"), none), elsewhere},
		// NFD calls that of a node as the node: this is the one of node tandem-a.
		{feature("tandem-a", ofNode("tandem-a"), none), mine, elsewhere},
		{"", feature("tandem-a", ofNode("a"), "labels: {node-role.kubernetes.io/control-plane: ''}"), foreign},
		{mine, feature("tandem-a", ofNode("a"), "labels: {tandem.dev.example/x: ''}"), foreign},
		{"", feature("tandem-a", ofNode("a"), "features: {flags: {kernel.x: {elements: {y: {}}}}}"), features},
		{"", feature("tandem-a", ofNode("a"), "features: {attributes: {cpu.x: {elements: {y: z}}}}"), features},
		{mine, feature("tandem-a", ofNode("a"), "features: {instances: {pci.device: {elements: []}}}"), features},
		{"", feature("tandem-a", ofNode("a"), ""), ""},
	} {
		w := write{on(account, "a"), c.after, c.before}
		expect(t, judge(t, policy, w), c.want, c.before+" -> "+c.after)
		w.user = on(account, "")
		expect(t, judge(t, policy, w), noNode, "by a token of no pod: "+c.after)
		w.user = on("jane", "b")
		expect(t, judge(t, policy, w), "", "by somebody else: "+c.after)
	}
}
