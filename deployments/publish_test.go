// SPDX-License-Identifier: Apache-2.0

package deployments

import (
	"bytes"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// schema is a part of an OpenAPI schema.
type schema struct {
	Type       string
	Required   []string
	Properties map[string]schema
	Items      *schema
	Additional *schema `json:"additionalProperties"`
	Enum       []string
	Format     string

	MaxItems, MaxLength, MaxProperties, Minimum, Maximum *int
}

// limit is the one that a value of its type needs; nil if it is missing.
func (s schema) limit() *int {
	switch {
	case s.Type == "array":
		return s.MaxItems
	case s.Type == "string":
		return s.MaxLength
	case s.Additional != nil:
		return s.MaxProperties
	case s.Minimum == nil:
		return nil // no number is negative
	default:
		return s.Maximum
	}
}

// bounded complains of what has no maximum. Numbers of bytes have none: nothing is made for each byte.
func bounded(t *testing.T, at string, s schema) {
	t.Helper()
	free := s.Type == "boolean" || s.Format == "int64" || s.Enum != nil
	if fields := s.Type == "object" && s.Additional == nil; !free && !fields && s.limit() == nil {
		t.Errorf("%s has no limit", at)
	}
	for name, p := range s.Properties {
		bounded(t, at+"."+name, p)
	}
	for _, of := range []*schema{s.Items, s.Additional} {
		if of != nil {
			bounded(t, at+"[]", *of)
		}
	}
}

// at is the part of a schema below the names of properties; "[]" are the items of a list.
func (s schema) at(path string) schema {
	for name := range strings.SplitSeq(path, ".") {
		name, list := strings.CutSuffix(name, "[]")
		if s = s.Properties[name]; list {
			s = *s.Items
		}
	}
	return s
}

// TestDefinition: the definition of NodeTopology has the fields of the Go type, of the same types, and
// requires those that are always written. All that it lets a node write has a maximum, the one that readers
// have. The chart has the same definition.
func TestDefinition(t *testing.T) {
	content, err := os.ReadFile("publish/crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if chart, err := os.ReadFile("helm/tandem/files/nodetopologies.yaml"); err != nil ||
		!bytes.Equal(chart, content) {
		t.Errorf("helm/tandem/files/nodetopologies.yaml is another than publish/crd.yaml: copy it, %v", err)
	}
	var definition struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group, Scope string
			Names        struct{ Plural, Kind string }
			Versions     []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema schema }
			}
		}
	}
	if err := yaml.Unmarshal(content, &definition); err != nil {
		t.Fatal(err)
	}
	s := definition.Spec
	if s.Group != v1alpha1.GroupVersion.Group || s.Names.Plural != v1alpha1.Plural || s.Scope != "Cluster" ||
		s.Versions[0].Name != v1alpha1.GroupVersion.Version || s.Names.Kind != "NodeTopology" {
		t.Errorf("definition of %+v", s.Names)
	}
	spec := s.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	agree(t, "spec", spec, reflect.TypeFor[v1alpha1.Spec]())
	bounded(t, "spec", spec)
	for path, want := range map[string]int{
		"resources": v1alpha1.MaxResources, "resources[].devices": v1alpha1.MaxDevices,
		"resources[].functions": v1alpha1.MaxFunctions, "resources[].hints": v1alpha1.MaxDeviceNodes,
		"switches": v1alpha1.MaxPlaces, "switches[].below": v1alpha1.MaxPlaces,
		"switches[].redirected": v1alpha1.MaxDepth, "numaNodes": v1alpha1.MaxNUMANodes,
		"numaNodes[].number": v1alpha1.MaxNUMANodes - 1, "numaNodes[].cores": v1alpha1.MaxCPUs,
		"numaNodes[].memory": v1alpha1.MaxMemoryKinds, "kubelet.reservedCPUs": v1alpha1.MaxCPUs,
		"kubelet.cpuManagerPolicyOptions": v1alpha1.MaxOptions, "links": v1alpha1.MaxLinks,
		"held": v1alpha1.MaxPods, "held[].containers": v1alpha1.MaxContainers,
		"held[].containers[].memory": v1alpha1.MaxMemoryKinds, "memoryReserved": v1alpha1.MaxNUMANodes,
	} {
		if got := spec.at(path).limit(); got == nil || *got != want {
			t.Errorf("spec.%s may be %v, and %d in Go", path, got, want)
		}
	}
}

// agree compares a schema with a Go type.
func agree(t *testing.T, at string, s schema, goType reflect.Type) {
	t.Helper()
	if goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	kinds := map[reflect.Kind]string{
		reflect.Struct: "object", reflect.Map: "object", reflect.Slice: "array", reflect.String: "string",
		reflect.Bool: "boolean", reflect.Int: "integer", reflect.Uint64: "integer",
	}
	if want := kinds[goType.Kind()]; want == "" || s.Type != want {
		t.Errorf("%s is %q, and %s in Go", at, s.Type, goType)
		return
	}
	switch goType.Kind() {
	case reflect.Slice:
		agree(t, at+"[]", *s.Items, goType.Elem())
	case reflect.Map:
		agree(t, at+"{}", *s.Additional, goType.Elem())
	case reflect.Struct:
		var names, always []string
		for field := range goType.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			names = append(names, name)
			if options != "omitempty" && options != "omitzero" {
				always = append(always, name)
			}
			agree(t, at+"."+name, s.Properties[name], field.Type)
		}
		slices.Sort(names)
		if has := slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(has, names) {
			t.Errorf("%s has %v, and %v in Go", at, has, names)
		}
		if !slices.Equal(slices.Sorted(slices.Values(s.Required)), slices.Sorted(slices.Values(always))) {
			t.Errorf("%s requires %v, and Go writes %v always", at, s.Required, always)
		}
	}
}
