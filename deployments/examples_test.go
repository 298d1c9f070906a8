// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/golden"
)

// example is what the Jobs in examples differ in.
type example struct {
	Vendor, Resource, Env, Nodes string
	Size                         int
}

func (e example) file() string {
	return fmt.Sprintf("examples/%s-%dx%d.yaml", e.Vendor, e.Size, e.Size)
}

func examples() []example {
	var list []example
	for _, size := range []int{1, 2, 4, 8} {
		list = append(list,
			example{"amd", gpuResource, "^PCIDEVICE_", "/dev/dri/renderD*", size},
			example{"nvidia", "nvidia.com/gpu", "^(PCIDEVICE|NVIDIA_VISIBLE_DEVICES)", "/dev/nvidia[0-9]*", size})
	}
	return list
}

// TestImagesOfExamples: each names a registry. A name without one is that of an image on Docker Hub, which
// is not the project's.
func TestImagesOfExamples(t *testing.T) {
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("examples %q: %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		images := regexp.MustCompile(`(?m)^ +image: (\S+)`).FindAllStringSubmatch(string(content), -1)
		if len(images) == 0 {
			t.Errorf("%s has no image", file)
		}
		for _, image := range images {
			// the released image, of which TestOneVersion checks the tag, and an image of the user's
			if !strings.HasPrefix(image[1], "ghcr.io/tandem-k8s/tandem:") &&
				image[1] != "registry.example/perftest:v1" {
				t.Errorf("%s has the image %s", file, image[1])
			}
		}
	}
}

// TestExamplesAreAlike keeps the Jobs from drifting apart; -update writes them.
func TestExamplesAreAlike(t *testing.T) {
	job, err := template.ParseFiles("testdata/job.yaml.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples() {
		var want bytes.Buffer
		if err := job.Execute(&want, e); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, e.file(), want.String())
	}
}

// TestTrafficExample: both pods of the Job run the commands of one release on different nodes, and the client
// asks the name that the Service gives the server.
func TestTrafficExample(t *testing.T) {
	job := readAll[batchv1.Job](t, "examples/traffic-*.yaml", "Job")[0]
	service := readAll[corev1.Service](t, "examples/traffic-*.yaml", "Service")[0]
	pod := job.Spec.Template
	if service.Spec.ClusterIP != corev1.ClusterIPNone || pod.Spec.Subdomain != service.Name ||
		!maps.Equal(service.Spec.Selector, pod.Labels) {
		t.Errorf("Service %+v of pods %+v", service.Spec, pod)
	}
	script := pod.Spec.Containers[0].Command[2]
	client := "--traffic --traffic-wait 8m --client " + job.Name + "-0." + service.Name + "\n"
	for _, want := range []string{"--traffic --traffic-wait 8m --server\n", client} {
		if !strings.Contains(script, want) {
			t.Errorf("%q is not in %s", want, script)
		}
	}
	apart := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
	if !maps.Equal(apart.LabelSelector.MatchLabels, pod.Labels) || *job.Spec.Completions != 2 {
		t.Errorf("%+v of %d pods", apart, *job.Spec.Completions)
	}
}
