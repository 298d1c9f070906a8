// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	kubernetes "k8s.io/apimachinery/pkg/util/version"
)

// versions of Kubernetes whose OpenAPI everything is checked against; it is part of their Go module.
var versions = []string{"v1.34.4", "v1.35.0", "v1.36.3", "v1.37.1"}

// published returns the schemas of a version, made strict: a field that Kubernetes does not know is a
// mistake.
func published(t *testing.T, version string) func(apiVersion, kind string) (*jsonschema.Schema, error) {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes@"+version)
	download.Dir = t.TempDir() // outside any module
	answer, err := download.Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(answer, &module)
	}
	if err != nil {
		t.Skipf("download k8s.io/kubernetes@%s: %v %s", version, err, answer)
	}
	content, err := os.ReadFile(filepath.Join(module.Dir, "api/openapi-spec/swagger.json"))
	ready(t, err)
	var swagger struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	ready(t, json.Unmarshal(content, &swagger))
	names := map[string]string{} // "apps/v1 DaemonSet" to the definition
	for name, definition := range swagger.Definitions {
		if _, ok := definition["properties"]; ok && definition["additionalProperties"] == nil {
			definition["additionalProperties"] = false
		}
		delete(definition, "description")
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		for _, kind := range kinds {
			k := kind.(map[string]any)
			names[strings.TrimPrefix(fmt.Sprintf("%v/%v %v", k["group"], k["version"], k["kind"]), "/")] = name
		}
	}
	// What the API server takes as a string or a number.
	for _, name := range []string{
		"io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
	} {
		swagger.Definitions[name] = map[string]any{"type": []any{"string", "number"}}
	}
	definitions := map[string]any{}
	for name, definition := range swagger.Definitions {
		definitions[name] = definition
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft4)
	ready(t, compiler.AddResource("k8s.json", map[string]any{"definitions": definitions}))
	return func(apiVersion, kind string) (*jsonschema.Schema, error) {
		name, ok := names[apiVersion+" "+kind]
		if !ok {
			return nil, fmt.Errorf("Kubernetes %s has no %s %s", version, apiVersion, kind)
		}
		return compiler.Compile("k8s.json#/definitions/" + name)
	}
}

// kustomizations are the folders that people apply.
var kustomizations = []string{
	"deployments/base", "deployments/privileged", "deployments/intent-kubelet",
	"deployments/monitoring", "deployments/dra", "deployments/dra/claim-templates",
	"deployments/publish", "deployments/alignment",
	"deployments/scheduler",
}

// manifests are all that there are: what the chart renders for each of the values, what kustomize builds, and
// the examples.
func manifests(t *testing.T) map[string][]object {
	t.Helper()
	all := map[string][]object{}
	for name, values := range everyValues(t) {
		all["chart "+name] = install(t, values)
	}
	for _, dir := range kustomizations {
		all["kustomize "+dir] = parse(t, kustomize(t, "../../../"+dir))
	}
	examples, err := filepath.Glob("../../../deployments/examples/*.yaml")
	if err != nil || len(examples) != 11 {
		t.Fatalf("examples %q: %v", examples, err)
	}
	for _, file := range append(examples, "../../../deployments/qualify/job.yaml") {
		content, err := os.ReadFile(file)
		ready(t, err)
		all[file] = parse(t, string(content))
	}
	return all
}

func TestPublishedSchemas(t *testing.T) {
	all := manifests(t)
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			schema := published(t, version)
			for where, objects := range all {
				for _, o := range objects {
					if known, err := operators(o); known {
						if err != nil {
							t.Errorf("%s: %s: %v", where, o.name(), err)
						}
						continue
					}
					if isMutating(o) && kubernetes.MustParse(version).LessThan(mutating) {
						continue // the chart leaves it out of these versions
					}
					apiVersion, _ := o.at("apiVersion").(string)
					kind, _ := o.at("kind").(string)
					s, err := schema(apiVersion, kind)
					ready(t, err)
					if err := s.Validate(map[string]any(o)); err != nil {
						t.Errorf("%s: %s: %v", where, o.name(), err)
					}
				}
			}
			wrong := object{"apiVersion": "v1", "kind": "ServiceAccount", "automountToken": false}
			if s, err := schema("v1", "ServiceAccount"); err != nil || s.Validate(map[string]any(wrong)) == nil {
				t.Errorf("a field that Kubernetes does not know passes: %v", err)
			}
		})
	}
}
