// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/golden"
)

// gpuResource is what tandem-gpu offers on any AMD node.
const gpuResource = "amd.com/gpu"

// example is what the Jobs in examples differ in.
type example struct {
	Vendor, Resource string
	Size             int
}

func (e example) file() string {
	return fmt.Sprintf("examples/%s-%dx%d.yaml", e.Vendor, e.Size, e.Size)
}

func examples() []example {
	var list []example
	for _, size := range []int{1, 2, 4, 8} {
		list = append(list,
			example{"amd", gpuResource, size}, example{"nvidia", "nvidia.com/gpu", size})
	}
	return list
}

// offered are the resources of the base and of the device classes.
func offered(t *testing.T) []string {
	t.Helper()
	configMap := readAll[corev1.ConfigMap](t, "base/config.yaml", "ConfigMap")[0]
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(configMap.Data["config.json"]), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := pools.ReadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{gpuResource, "nvidia.com/gpu"}
	for _, r := range config.Resources {
		names = append(names, r.Prefix+"/"+r.Name)
	}
	for _, class := range readAll[resourceapi.DeviceClass](t, "dra/deviceclasses.yaml", "DeviceClass") {
		if class.Spec.ExtendedResourceName != nil {
			names = append(names, *class.Spec.ExtendedResourceName)
		}
	}
	return names
}

// TestExamplesAskForWhatIsOffered: containers of examples ask for offered resources, and each image names a
// registry: the released image, of which TestOneVersion checks the tag, or an image of the user's. A name
// without a registry is that of an image on Docker Hub, which is not the project's. In the released image no
// shell is between the runtime and the command, as sh drops the variable of a resource with a hyphen.
func TestExamplesAskForWhatIsOffered(t *testing.T) {
	names := offered(t)
	for _, job := range readAll[batchv1.Job](t, "examples/*.yaml", "Job") {
		for _, c := range slices.Concat(job.Spec.Template.Spec.InitContainers, job.Spec.Template.Spec.Containers) {
			if !strings.HasPrefix(c.Image, "ghcr.io/tandem-k8s/tandem:") && c.Image != "registry.example/perftest:v1" {
				t.Errorf("%s has the image %s", job.Name, c.Image)
			}
			if c.Image != "registry.example/perftest:v1" && c.Command[0] == "sh" {
				t.Errorf("%s starts a shell: %q", job.Name, c.Command)
			}
			for name := range c.Resources.Limits {
				if !slices.Contains(names, string(name)) {
					t.Errorf("%s asks for %s; offered are %q", job.Name, name, names)
				}
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
		runs := strings.Join(container.Command, " ")
		if asked == 0 || runs != fmt.Sprintf("tandem verify --gpus=%d --vfs=%[1]d", asked) {
			t.Errorf("%s asks for %d pairs and runs %s", job.Name, asked, runs)
		}
	}
}
