// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
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
	return all
}

// extendedResources are the extended resources that device classes offer.
func extendedResources(t *testing.T) (names []string) {
	t.Helper()
	for _, class := range readAll[resourceapi.DeviceClass](t, "dra/deviceclasses.yaml", "DeviceClass") {
		if class.Spec.ExtendedResourceName != nil {
			names = append(names, *class.Spec.ExtendedResourceName)
		}
	}
	return names
}

// TestClaimsOfExamples: the claims are of templates that there are, containers use them all, and what is
// verified is as much as is asked for.
func TestClaimsOfExamples(t *testing.T) {
	counts := map[string]int64{}
	for _, template := range readAll[resourceapi.ResourceClaimTemplate](t, "dra/claim-templates/*.yaml",
		"ResourceClaimTemplate") {
		for _, r := range template.Spec.Spec.Devices.Requests {
			if r.Exactly != nil {
				counts[template.Name] += r.Exactly.Count
			}
		}
	}
	for _, job := range readAll[batchv1.Job](t, "examples/dra-*.yaml", "Job") {
		pod, asked := job.Spec.Template.Spec, int64(0)
		container := pod.Containers[0]
		for _, claim := range pod.ResourceClaims {
			if claim.ResourceClaimTemplateName == nil || counts[*claim.ResourceClaimTemplateName] == 0 {
				t.Errorf("%s: claim %s is of no template that there is", job.Name, claim.Name)
				continue
			}
			asked += counts[*claim.ResourceClaimTemplateName]
			if !slices.ContainsFunc(container.Resources.Claims,
				func(used corev1.ResourceClaim) bool { return used.Name == claim.Name }) {
				t.Errorf("%s: the container does not use claim %s", job.Name, claim.Name)
			}
		}
		for _, quantity := range container.Resources.Limits {
			asked += quantity.Value()
		}
		if want := fmt.Sprintf("tandem verify --gpus %d --vfs %[1]d\n", asked); asked == 0 ||
			!strings.HasSuffix(container.Command[2], want) {
			t.Errorf("%s asks for %d pairs and runs %s", job.Name, asked, container.Command[2])
		}
	}
}
