// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is the job of the workflow that makes a release.
type workflow struct {
	Permissions map[string]string
	Env         map[string]string
	Steps       []step
}

type step struct {
	Name, ID, Uses, Run string
	With, Env           map[string]any
}

func readWorkflow(t *testing.T) workflow {
	t.Helper()
	text, err := os.ReadFile("../../.github/workflows/release.yml")
	ready(t, err)
	var file struct {
		Permissions map[string]string
		Jobs        map[string]workflow
	}
	ready(t, yaml.Unmarshal(text, &file))
	if want := map[string]string{"contents": "read"}; !maps.Equal(file.Permissions, want) {
		t.Errorf("the workflow has the permissions %v, want %v", file.Permissions, want)
	}
	if len(file.Jobs) != 1 || len(file.Jobs["release"].Steps) < 8 {
		t.Fatalf("the workflow has other jobs: %+v", file.Jobs)
	}
	return file.Jobs["release"]
}

var (
	pushed = regexp.MustCompile(`(?m)^push (\S+)\.tar (\S+)$`)
	signs  = regexp.MustCompile(`\$COSIGN sign --yes (?:--recursive )?"\$REGISTRY/([\w./$-]+)@\$digest"`)
)

// signed are the images and charts that the workflow signs, by digest, without a tag.
func (w workflow) signed() (names []string) {
	for _, s := range w.Steps {
		for _, sign := range signs.FindAllStringSubmatch(s.Run, -1) {
			if sign[1] != "$2" {
				names = append(names, w.Env["REGISTRY"]+"/"+sign[1])
				continue
			}
			for _, push := range pushed.FindAllStringSubmatch(s.Run, -1) {
				names = append(names, w.Env["REGISTRY"]+"/"+push[2])
			}
		}
	}
	return names
}

// attested are the subjects of attestations by kind: provenance, and SBOM.
func (w workflow) attested() map[string][]string {
	subjects := map[string][]string{}
	for _, s := range w.Steps {
		if !strings.HasPrefix(s.Uses, "actions/attest@") {
			continue
		}
		kind, subject := "provenance", s.With["subject-name"]
		if s.With["sbom-path"] != nil {
			kind = "SBOM"
		}
		if subject == nil {
			subject = s.With["subject-checksums"]
		}
		name, _ := subject.(string)
		subjects[kind] = append(subjects[kind], name)
	}
	return subjects
}

// TestWorkflow: the workflow signs each image and the chart, attests the provenance of these and of all
// files, and the SBOM of each image, with no other permissions than these steps need.
func TestWorkflow(t *testing.T) {
	w := readWorkflow(t)
	want := map[string]string{
		"contents": "write", "packages": "write", "id-token": "write", "attestations": "write",
	}
	if !maps.Equal(w.Permissions, want) {
		t.Errorf("the job has the permissions %v, want %v", w.Permissions, want)
	}
	var all []string
	for _, p := range (images{}).products() {
		all = append(all, "ghcr.io/tandem-k8s/"+p.name)
	}
	if got := w.attested()["SBOM"]; !slices.Equal(got, all) {
		t.Errorf("attests the SBOMs of %q, want %q", got, all)
	}
	all = append(all, "ghcr.io/tandem-k8s/charts/tandem")
	if got := w.signed(); !slices.Equal(got, all) {
		t.Errorf("signs %q, want %q", got, all)
	}
	all = append([]string{"bin/release/" + sumsFile}, all...)
	if got := w.attested()["provenance"]; !slices.Equal(got, all) {
		t.Errorf("attests the provenance of %q, want %q", got, all)
	}
	for _, s := range w.Steps {
		w.checkStep(t, s)
	}
}

var stepOutput = regexp.MustCompile(`steps\.([\w-]+)\.outputs\.([\w-]+)`)

// checkStep expects that a step's script is well formed, and that its inputs are outputs of earlier steps.
func (w workflow) checkStep(t *testing.T, s step) {
	t.Helper()
	parse := exec.Command("sh", "-n")
	parse.Stdin = strings.NewReader(s.Run)
	if out, err := parse.CombinedOutput(); err != nil {
		t.Errorf("step %q: %v\n%s", s.Name, err, out)
	}
	if strings.Contains(s.Run, "$CRANE push --index") {
		t.Errorf("step %q pushes an index of the index of the architectures: Docker, Podman and CRI-O find no "+
			"image for their platform in it", s.Name)
	}
	if strings.Contains(s.Run, "$CRANE digest") {
		t.Errorf("step %q reads a digest by a tag, which may name something else than was pushed", s.Name)
	}
	text, err := yaml.Marshal([]any{s.With, s.Env})
	ready(t, err)
	for _, use := range stepOutput.FindAllStringSubmatch(string(text), -1) {
		if !w.puts(use[1], use[2]) {
			t.Errorf("step %q uses %s, which no step has", s.Name, use[0])
		}
	}
	name, _ := s.With["subject-name"].(string)
	image := strings.TrimPrefix(name, "ghcr.io/tandem-k8s/")
	if path, ok := s.With["sbom-path"].(string); ok &&
		path != "bin/release/"+image+"_${{ steps.release.outputs.version }}.spdx.json" {
		t.Errorf("step %q attests %s for %s", s.Name, path, image)
	}
	if digest, ok := s.With["subject-digest"].(string); ok && image != "charts/tandem" &&
		digest != "${{ steps.images.outputs."+image+" }}" {
		t.Errorf("step %q attests %s with the digest %s", s.Name, image, digest)
	}
}

// puts reports whether a step has an output of this name.
func (w workflow) puts(id, name string) bool {
	i := slices.IndexFunc(w.Steps, func(s step) bool { return s.ID == id })
	if i < 0 {
		return false
	}
	run := w.Steps[i].Run
	if strings.Contains(run, `echo "$2=$digest" >>"$GITHUB_OUTPUT"`) {
		pushes := pushed.FindAllStringSubmatch(run, -1)
		return slices.ContainsFunc(pushes, func(push []string) bool { return push[2] == name })
	}
	return strings.Contains(run, `echo "`+name+`=$`)
}
