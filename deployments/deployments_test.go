// SPDX-License-Identifier: Apache-2.0

// Package deployments_test checks what kustomize cannot: that the manifests say what the programs understand.
package deployments_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

// readAll reads the manifests of a kind, each strictly.
func readAll[T any](t *testing.T, pattern, kind string) (all []T) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			var head struct{ Kind string }
			if err := yaml.Unmarshal([]byte(document), &head); err != nil || head.Kind != kind {
				continue
			}
			var object T
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all = append(all, object)
		}
	}
	if len(all) == 0 {
		t.Fatalf("no %s in %s", kind, pattern)
	}
	return all
}

// TestQualifyFindsNodes: the Job runs on the nodes of tandem-rdma, however these are labelled.
func TestQualifyFindsNodes(t *testing.T) {
	job := readAll[batchv1.Job](t, "qualify/job.yaml", "Job")[0].Spec.Template.Spec
	want := readAll[appsv1.DaemonSet](t, "base/daemonset-rdma.yaml", "DaemonSet")[0].Spec.Template.Spec.Affinity
	if diff := cmp.Diff(want, job.Affinity); want == nil || diff != "" || len(job.NodeSelector) > 0 {
		t.Errorf("the Job also wants %v, affinity (-tandem-rdma +Job):\n%s", job.NodeSelector, diff)
	}
}

// TestPoliciesPermitUnrelatedUpdates: a policy that validates updates by every user compares the object with
// the old one. Otherwise it denies also the update that adds or removes a finalizer of an object from before
// the policy, so that the object is never allocated nor deleted.
func TestPoliciesPermitUnrelatedUpdates(t *testing.T) {
	for name, pattern := range map[string]string{
		"alignment": "alignment/*.yaml", "publish": "publish/*.yaml", "dra": "dra/*.yaml",
		"chart": "../test/others/chart/testdata/*.golden.yaml",
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range readAll[admissionv1.ValidatingAdmissionPolicy](t, pattern, "ValidatingAdmissionPolicy") {
				if updated := validatesEveryUpdate(p); updated != nil {
					t.Errorf("%s validates every update of %v", p.Name, updated)
				}
			}
		})
	}
}

// validatesEveryUpdate returns the resources whose updates by every user a policy validates, without regard
// to the old object; none for a policy that does not.
func validatesEveryUpdate(p admissionv1.ValidatingAdmissionPolicy) (resources []string) {
	var expressions, conditions []string
	for _, c := range p.Spec.MatchConditions {
		conditions = append(conditions, c.Expression)
	}
	for _, v := range p.Spec.Variables {
		expressions = append(expressions, v.Expression)
	}
	for _, v := range p.Spec.Validations {
		expressions = append(expressions, v.Expression)
	}
	if strings.Contains(strings.Join(conditions, "\n"), "request.userInfo.username") ||
		strings.Contains(strings.Join(slices.Concat(conditions, expressions), "\n"), "oldObject") {
		return nil
	}
	for _, r := range p.Spec.MatchConstraints.ResourceRules {
		if slices.Contains(r.Operations, admissionv1.Update) ||
			slices.Contains(r.Operations, admissionv1.OperationAll) {
			resources = append(resources, r.Resources...)
		}
	}
	return resources
}
