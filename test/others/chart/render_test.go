// SPDX-License-Identifier: Apache-2.0

// Package chart_test checks the manifests with the code of the tools that people install them with: the Helm
// chart against golden files and against the kustomize base, everything against Kubernetes' published
// OpenAPI.
package chart_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	helm "github.com/tandem-k8s/tandem/test/others/chart/render"
)

const (
	chartDir  = "../../../deployments/helm/tandem"
	namespace = "kube-system"
)

// object is one manifest.
type object map[string]any

// at follows keys and indexes; nil where there is nothing.
func (o object) at(path ...string) any {
	var value any = map[string]any(o)
	for _, key := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = fields[key]
	}
	return value
}

func (o object) name() string {
	kind, _ := o.at("kind").(string)
	name, _ := o.at("metadata", "name").(string)
	return kind + "/" + name
}

func ready(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// render is "helm template tandem" with values in YAML.
func render(t *testing.T, values string) (string, error) {
	t.Helper()
	return renderOn(t, helm.Newest, values)
}

// install returns the objects of a release with values in YAML.
func install(t *testing.T, values string) []object {
	t.Helper()
	rendered, err := render(t, values)
	if err != nil {
		t.Fatalf("%s: %v", values, err)
	}
	return parse(t, rendered)
}

// renderOn is render for a cluster with a version of Kubernetes.
func renderOn(t *testing.T, kubernetes, values string) (string, error) {
	t.Helper()
	c, files, err := helm.Files(chartDir, namespace, kubernetes, given(t, values))
	if c == nil {
		t.Fatal(err)
	}
	if err != nil {
		return "", err
	}
	return helm.Manifests(c, files), nil
}

// renderFile renders one template.
func renderFile(t *testing.T, values, name string) string {
	t.Helper()
	c, files, err := helm.Files(chartDir, namespace, helm.Newest, given(t, values))
	ready(t, err)
	return files[c.Name()+"/templates/"+name]
}

// given reads values in YAML.
func given(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	ready(t, yaml.Unmarshal([]byte(text), &values))
	return values
}

// parse splits a stream of manifests, sorted by kind and name.
func parse(t *testing.T, stream string) []object {
	t.Helper()
	var objects []object
	for document := range strings.SplitSeq("\n"+stream, "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if len(o) > 0 {
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(a, b object) int { return strings.Compare(a.name(), b.name()) })
	return objects
}

// kustomize is "kustomize build".
func kustomize(t *testing.T, dir string) string {
	t.Helper()
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	ready(t, err)
	stream, err := result.AsYaml()
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return string(stream)
}
