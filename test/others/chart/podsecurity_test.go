// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// TestPodSecurity: docs/install.md says which level of the Pod Security Standards admits pods, and for which
// reasons the API server refuses the pods at the next level.
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	ready(t, err)
	var table strings.Builder
	for _, row := range []struct {
		name string
		pods []corev1.PodTemplateSpec
	}{
		{"`tandem-gpu`", podsOf(t, "", "tandem-gpu")},
		{"`tandem-gpu` with `gpu.privileged`", podsOf(t, "gpu: {privileged: true}", "tandem-gpu")},
		{"`tandem-rdma`", podsOf(t, "", "tandem-rdma")},
		{"`tandem-dra`", podsOf(t, "mode: dra", "tandem-dra")},
		{"`tandem-scheduler`", podsOf(t, "{publish: [tandem], scheduler: {enabled: true}}", "tandem-scheduler")},
		{
			"the chart's test pod, the Jobs in `deployments/examples`",
			append(exampleJobs(t), testPod(t, "gpu: {vendor: amd}")),
		},
	} {
		level, reasons := strictest(evaluator, row.pods)
		fmt.Fprintf(&table, "| %s | `%s` | %s |\n", row.name, level, strings.Join(reasons, ", "))
	}
	content, err := os.ReadFile("../../../docs/install.md")
	ready(t, err)
	const head = "| Pods | Strictest level | Reasons of the next level |\n|---|---|---|\n"
	_, documented, _ := strings.Cut(string(content), head)
	documented, _, _ = strings.Cut(documented, "\n\n")
	if diff := cmp.Diff(documented+"\n", table.String()); diff != "" {
		t.Errorf("the table of docs/install.md (-documented +evaluated):\n%s\n%s", diff, &table)
	}
}

// strictest returns the strictest level that admits pods, and the reasons for which the next level refuses
// one of them.
func strictest(e policy.Evaluator, pods []corev1.PodTemplateSpec) (podsecurity.Level, []string) {
	level := podsecurity.LevelPrivileged
	for _, next := range []podsecurity.Level{podsecurity.LevelBaseline, podsecurity.LevelRestricted} {
		if reasons := refusals(e, next, pods); len(reasons) > 0 {
			return level, reasons
		}
		level = next
	}
	return level, []string{"none"}
}

// refusals returns the reasons for which a level refuses one of the pods.
func refusals(e policy.Evaluator, l podsecurity.Level, pods []corev1.PodTemplateSpec) (reasons []string) {
	for _, pod := range pods {
		at := podsecurity.LevelVersion{Level: l, Version: podsecurity.LatestVersion()}
		for _, check := range e.EvaluatePod(at, &pod.ObjectMeta, &pod.Spec) {
			if !check.Allowed && !slices.Contains(reasons, check.ForbiddenReason) {
				reasons = append(reasons, check.ForbiddenReason)
			}
		}
	}
	return reasons
}

// testPod is the pod of "helm test".
func testPod(t *testing.T, values string) corev1.PodTemplateSpec {
	t.Helper()
	objects := parse(t, renderFile(t, values, "tests/verify.yaml"))
	if len(objects) != 1 || objects[0].at("kind") != "Pod" {
		t.Fatalf("%s: %v", values, objects)
	}
	pod := decode[corev1.Pod](t, objects[0])
	return corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
}

// podsOf are the pods of one workload of the chart.
func podsOf(t *testing.T, values, name string) []corev1.PodTemplateSpec {
	t.Helper()
	return templates(t, install(t, values), name)
}

// exampleJobs are the pods of the Jobs that users start.
func exampleJobs(t *testing.T) (pods []corev1.PodTemplateSpec) {
	t.Helper()
	files, err := filepath.Glob("../../../deployments/examples/*.yaml")
	ready(t, err)
	for _, file := range files {
		pods = append(pods, templates(t, manifest(t, strings.TrimPrefix(file, "../../../")), "")...)
	}
	return pods
}

// templates are the pods of workloads with a name, "" for any.
func templates(t *testing.T, objects []object, name string) (pods []corev1.PodTemplateSpec) {
	t.Helper()
	for _, o := range objects {
		template, ok := o.at("spec", "template").(map[string]any)
		if ok && o.at("kind") != "ResourceClaimTemplate" && (name == "" || o.at("metadata", "name") == name) {
			pods = append(pods, decode[corev1.PodTemplateSpec](t, template))
		}
	}
	if len(pods) == 0 {
		t.Fatalf("there are no pods of %q", name)
	}
	return pods
}
