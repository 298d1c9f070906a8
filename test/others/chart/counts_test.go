// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"strings"
	"testing"
)

// exactly and first are requests of a claim, in YAML.
func exactly(class string, count int, more string) string {
	return fmt.Sprintf("{name: r%d, exactly: {deviceClassName: %s, count: %d%s}}", count, class, count, more)
}

func first(alternatives ...string) string {
	return "{name: f, firstAvailable: [" + strings.Join(alternatives, ", ") + "]}"
}

// TestCounts: a claim may ask for up to 12 devices of one of our classes, or for any number that selectors
// tell apart.
func TestCounts(t *testing.T) {
	const pair, selector = "pair.tandem.dev", ", selectors: [{cel: {expression: 'true'}}]"
	near := func(n int) string { return fmt.Sprintf("{name: a%d, deviceClassName: %s, count: %[1]d}", n, pair) }
	objects := install(t, ofDRA)
	policy := policyNamed(t, objects, "dra-counts")
	for _, c := range []struct{ requests, want string }{
		{exactly(pair, 12, ""), ""},
		{exactly(pair, 13, ""), "more than 12 devices of pair.tandem.dev"},
		{exactly(pair, 13, ""), "ResourceClaimTemplate tandem-pairs-16"},
		{exactly(pair, 13, selector), ""},
		{exactly(pair, 8, selector) + ", " + exactly(pair, 9, selector), ""},
		{exactly(pair, 8, "") + ", " + exactly(pair, 5, ""), pair},
		{exactly("gpu.tandem.dev", 12, "") + ", " + exactly("vf.tandem.dev", 11, ""), ""},
		{exactly("gpu.tandem.dev", 12, "") + ", " + exactly("vf.tandem.dev", 13, ""), "vf.tandem.dev"},
		{exactly("bundle.tandem.dev", 16, ""), "bundle.tandem.dev"},
		{exactly("gpu.tandem.dev", 7, "") + ", " + exactly("amd.com-gpu.tandem.dev", 6, ""), "gpu.tandem.dev"},
		{exactly("amd.com-gpu.tandem.dev", 7, "") + ", " + exactly("nvidia.com-gpu.tandem.dev", 6, ""),
			"gpu.tandem.dev"},
		{exactly("vf.tandem.dev", 7, "") + ", " + exactly("tandem.dev-rdma-vf.tandem.dev", 6, ""),
			"vf.tandem.dev"},
		{exactly("amd.com-gpu.tandem.dev", 12, "") + ", " + exactly("tandem.dev-rdma-vf.tandem.dev", 11, ""), ""},
		{exactly("gpu.nvidia.com", 16, ""), ""},
		{first(near(8), near(6)), ""},
		{first(near(13), near(1)), pair},
		{first(near(8), near(6)) + ", " + exactly(pair, 5, ""), pair},
		{"{name: all, exactly: {deviceClassName: " + pair + ", allocationMode: All}}", ""},
		{"", ""},
	} {
		devices := "{devices: {requests: [" + c.requests + "]}}"
		claimOf := func(more string) string {
			return "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: x, namespace: team" +
				more + "}, spec: " + devices + "}"
		}
		claim := claimOf("")
		template := "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, " +
			"metadata: {name: x, namespace: team}, spec: {spec: " + devices + "}}"
		for _, text := range []string{claim, template} {
			w := write{on("jane", ""), text, ""}
			expect(t, judge(t, policy, w), c.want, text)
		}
		// what a scheduler, whatever it is called, writes for the extended resources of a pod
		extended := claimOf(", annotations: {resource.kubernetes.io/extended-resource-claim: 'true'}")
		w := write{on("any-scheduler", ""), extended, ""}
		expect(t, judge(t, policy, w), "", extended)
	}
}

// TestCountsOfEveryClass: the policy knows each class that the manifests have, whatever the resources are
// called.
func TestCountsOfEveryClass(t *testing.T) {
	const others = "{mode: dra, dra: {gpuResources: [amd.com/gpu, amd.com/cpx_nps4], " +
		"vfResources: [nvidia.com/mlnx_vf, example.com/B]}}"
	for _, values := range []string{ofDRA, others} {
		objects := install(t, values)
		policy, all := policyNamed(t, objects, "dra-counts"), classes(t, objects)
		if len(all) < 7 {
			t.Errorf("%d classes", len(all))
		}
		for class := range all {
			claim := "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: x, namespace: team}, " +
				"spec: {devices: {requests: [" + exactly(class, 13, "") + "]}}}"
			w := write{on("jane", ""), claim, ""}
			expect(t, judge(t, policy, w), "more than 12 devices", claim)
		}
	}
}

// TestCountsOfPods: the same for pods that ask for pairs or bundles without a claim.
func TestCountsOfPods(t *testing.T) {
	const refused, bundles = "more than 12 of tandem.dev/pair", "more than 12 of tandem.dev/bundle"
	objects := install(t, ofDRA)
	policy := policyNamed(t, objects, "dra-counts-pods")
	for _, c := range []struct{ spec, want string }{
		{"containers: [{name: a}]", ""},
		{"containers: [{name: a, resources: {}}]", ""},
		{"containers: [{name: a, resources: {limits: {cpu: 13, amd.com/gpu: 16}}}]", ""},
		{"containers: [{name: a, resources: {limits: {tandem.dev/pair: 12}}}]", ""},
		{"containers: [{name: a, resources: {limits: {tandem.dev/pair: '13'}}}]", refused},
		{"containers: [{name: a, resources: {limits: {tandem.dev/pair: '8'}}}, " +
			"{name: b, resources: {limits: {tandem.dev/pair: '8'}}}]", refused},
		{"containers: [{name: a, resources: {limits: {tandem.dev/pair: '8'}}}], " +
			"initContainers: [{name: b, resources: {limits: {tandem.dev/pair: '8'}}}]", ""},
		{"containers: [{name: a}], " +
			"initContainers: [{name: b, resources: {limits: {tandem.dev/pair: 16}}}]", refused},
		{"containers: [{name: a, resources: {limits: {tandem.dev/bundle: 12}}}]", ""},
		{"containers: [{name: a, resources: {limits: {tandem.dev/bundle: 16}}}]", bundles},
		{"containers: [{name: a, resources: {limits: {tandem.dev/pair: 8, tandem.dev/bundle: 8}}}]", ""},
		{"containers: [{name: a, resources: {limits: {tandem.dev/pair: '8'}}}], " +
			"initContainers: [{name: b, restartPolicy: Always, resources: {limits: {tandem.dev/pair: 8}}}]", refused},
		{"containers: [{name: a}], initContainers: [" +
			"{name: b, restartPolicy: Always, resources: {limits: {tandem.dev/pair: 8}}}, " +
			"{name: c, resources: {limits: {tandem.dev/pair: 5}}}]", refused},
	} {
		pod := "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: team}, spec: {" + c.spec + "}}"
		expect(t, judge(t, policy, write{on("jane", ""), pod, ""}), c.want, pod)
	}
}
