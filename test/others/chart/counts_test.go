package chart_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
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
	for where, objects := range draManifests(t) {
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
			{exactly("gpu.nvidia.com", 16, ""), ""},
			{first(near(8), near(6)), ""},
			{first(near(13), near(1)), pair},
			{first(near(8), near(6)) + ", " + exactly(pair, 5, ""), pair},
			{"{name: all, exactly: {deviceClassName: " + pair + ", allocationMode: All}}", ""},
			{"", ""},
		} {
			devices := "{devices: {requests: [" + c.requests + "]}}"
			claim := "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: x, namespace: team}, " +
				"spec: " + devices + "}"
			template := "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, " +
				"metadata: {name: x, namespace: team}, spec: {spec: " + devices + "}}"
			for _, text := range []string{claim, template} {
				w := write{on("jane", ""), admission.Create, text, ""}
				expect(t, where, judge(t, policy, w), c.want, text)
				w.user = on("system:kube-scheduler", "")
				expect(t, where, judge(t, policy, w), "", "by the scheduler: "+text)
			}
		}
	}
}

// TestCountsOfPods: the same for pods that ask for pairs without a claim.
func TestCountsOfPods(t *testing.T) {
	const refused = "more than 12 of tandem.dev/pair"
	for where, objects := range draManifests(t) {
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
		} {
			pod := "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: team}, spec: {" + c.spec + "}}"
			expect(t, where, judge(t, policy, write{on("jane", ""), admission.Create, pod, ""}), c.want, pod)
		}
	}
}
