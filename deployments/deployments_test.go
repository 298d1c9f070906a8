// SPDX-License-Identifier: Apache-2.0

// Package deployments_test checks what kustomize cannot: that the manifests say what the programs understand.
package deployments_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// gpuResource is what tandem-gpu offers on any AMD node.
const gpuResource = "amd.com/gpu"

func read[T any](t *testing.T, file string) T {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var object T
	if err := yaml.Unmarshal(content, &object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return object
}

// config is the SR-IOV configuration of the base as tandem-rdma reads it.
func config(t *testing.T) *pools.Config {
	t.Helper()
	configMap := read[struct{ Data map[string]string }](t, "base/config.yaml")
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(configMap.Data["config.json"]), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := pools.ReadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfigIsReadWithoutWarning(t *testing.T) {
	if warnings := config(t).Warnings; len(warnings) > 0 {
		t.Errorf("base/config.yaml: %q", warnings)
	}
}

func TestExamplesAskForWhatIsOffered(t *testing.T) {
	offered := append(extendedResources(t), gpuResource, "nvidia.com/gpu")
	for _, r := range config(t).Resources {
		offered = append(offered, r.Prefix+"/"+r.Name)
	}
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		job := read[struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Resources struct{ Limits map[string]any }
						}
					}
				}
			}
		}](t, file)
		containers := job.Spec.Template.Spec.Containers
		if len(containers) == 0 {
			t.Errorf("%s has no container", file)
		}
		for _, container := range containers {
			for name := range container.Resources.Limits {
				if !slices.Contains(offered, name) {
					t.Errorf("%s asks for %s; offered are %q", file, name, offered)
				}
			}
		}
	}
}

// TestQualifyFindsNodes: the Job runs on the nodes of tandem-rdma, however these are labelled.
func TestQualifyFindsNodes(t *testing.T) {
	type workload struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	job, rdma := read[workload](t, "qualify/job.yaml"), read[workload](t, "base/daemonset-rdma.yaml")
	want := rdma.Spec.Template.Spec.Affinity
	if diff := cmp.Diff(want, job.Spec.Template.Spec.Affinity); want == nil || diff != "" {
		t.Errorf("affinity (-tandem-rdma +Job):\n%s", diff)
	}
	if selector := job.Spec.Template.Spec.NodeSelector; len(selector) > 0 {
		t.Errorf("the Job also wants %v", selector)
	}
}
