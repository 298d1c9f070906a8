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

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
)

// schema is a part of an OpenAPI schema.
type schema struct {
	Type       string
	Required   []string
	Properties map[string]schema
	Items      *schema
	Additional *schema `json:"additionalProperties"`
}

// TestDefinition: the definition of NodeTopology has the fields of the Go type, of the same types, and
// requires those that are always written. The chart has the same one.
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
	agree(t, "spec", s.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], reflect.TypeFor[v1alpha1.Spec]())
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
			if options != "omitempty" {
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
