// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/cluster"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/qualify"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/simulate"
	"github.com/tandem-k8s/tandem/topology"
)

// documented are the JSON documents by the names of their schemas.
var documented = map[string]reflect.Type{
	"cluster-status": reflect.TypeFor[cluster.Status](),
	"doctor":         reflect.TypeFor[doctor.Findings](),
	"explain":        reflect.TypeFor[coordinator.PodExplanation](),
	"pairs":          reflect.TypeFor[pairs.Document](),
	"plan":           reflect.TypeFor[machine.Plan](),
	"qualify":        reflect.TypeFor[qualify.Report](),
	"simulate":       reflect.TypeFor[simulate.Report](),
	"status":         reflect.TypeFor[coordinator.Status](),
	"topo":           reflect.TypeFor[machine.Matrix](),
	"verify":         reflect.TypeFor[verify.Verification](),
	"version":        reflect.TypeFor[cli.Build](),
}

// TestSchemasAreOfTheTypes: a schema has the types of the document, with their comments as descriptions.
func TestSchemasAreOfTheTypes(t *testing.T) {
	t.Parallel()
	for name, of := range documented {
		s := schemas{t: t, comments: map[string]map[string]string{}}
		schema := s.object(of)
		schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
		schema["title"] = name
		text, err := (&cli.Output{Format: cli.AsJSON}).Text(schema, nil)
		ready(t, err)
		golden.Check(t, filepath.Join("../../docs/schemas", name+".json"), text.String())
	}
}

// schemas derives schemas from types. The schemas allow unknown keys, because a later release may add keys to
// a document of this version.
type schemas struct {
	t        *testing.T
	comments map[string]map[string]string // of fields and types, by package
}

// words are the possible texts of a type.
var words = map[reflect.Type][]string{
	reflect.TypeFor[topology.Level]():  {"PIX", "PXB", "C2C", "PHB", "NODE", "SYS", "UNK"},
	reflect.TypeFor[doctor.Severity](): {string(doctor.Error), string(doctor.Warning), string(doctor.Unknown)},
	reflect.TypeFor[qualify.Verdict](): {"passed", "failed", "incomplete"},
}

func (s *schemas) of(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[cli.V1]():
		return map[string]any{"const": 1}
	case t == reflect.TypeFor[topology.NUMANode]():
		return map[string]any{"type": []string{"integer", "null"}}
	case t == reflect.TypeFor[topology.Address]():
		return map[string]any{"type": "string", "pattern": `^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`}
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case words[t] != nil:
		return map[string]any{"type": "string", "enum": words[t]}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Struct:
		return s.object(t)
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{s.of(t.Elem()), map[string]any{"type": "null"}}}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	}
	s.t.Fatalf("a document has a %s", t)
	return nil
}

func (s *schemas) object(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, field := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || field.Anonymous || name == "-" {
			continue
		}
		if name == "" {
			s.t.Errorf("%s.%s has no name in JSON", t, field.Name)
		}
		of := field.Type
		if options != "" && of.Kind() == reflect.Pointer { // omitted if nil
			of = of.Elem()
		}
		schema := s.of(of)
		if name == "version" && of.Kind() == reflect.Int { // pairs.json had a version before the others
			schema = s.of(reflect.TypeFor[cli.V1]())
		}
		if comment := s.comment(t, field); comment != "" {
			schema["description"] = comment
		}
		if properties[name] = schema; options == "" {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// comment returns the comment of a field, before or behind it.
func (s *schemas) comment(t reflect.Type, field reflect.StructField) string {
	owner := t
	for _, i := range field.Index[:len(field.Index)-1] { // of an embedded struct
		owner = owner.Field(i).Type
	}
	folder := strings.TrimPrefix(owner.PkgPath(), "github.com/tandem-k8s/tandem/")
	if s.comments[folder] == nil {
		s.comments[folder] = readComments(s.t, filepath.Join("../..", folder))
	}
	return s.comments[folder][owner.Name()+"."+field.Name]
}

// readComments reads the comments of all fields in a package.
func readComments(t *testing.T, folder string) map[string]string {
	t.Helper()
	comments := map[string]string{}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no source, %v", folder, err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		ready(t, err)
		for node := range ast.Preorder(file) {
			spec, ok := node.(*ast.TypeSpec)
			if !ok {
				continue
			}
			structure, ok := spec.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, field := range structure.Fields.List {
				said := strings.Join(strings.Fields(field.Doc.Text()+" "+field.Comment.Text()), " ")
				for _, name := range field.Names {
					comments[spec.Name.Name+"."+name.Name] = said
				}
			}
		}
	}
	return comments
}

// TestNoOtherSchemas: every schema belongs to a document.
func TestNoOtherSchemas(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("../../docs/schemas")
	ready(t, err)
	for _, e := range entries {
		if name, _ := strings.CutSuffix(e.Name(), ".json"); documented[name] == nil {
			t.Errorf("%s is of no document", e.Name())
		}
	}
	if len(entries) != len(documented) {
		t.Errorf("%d schemas for %d documents", len(entries), len(documented))
	}
}

// otherVersions returns documents that a schema must refuse: with another version, and without a version.
func otherVersions(t *testing.T, text string) []any {
	t.Helper()
	another, without := readObject(t, text), readObject(t, text)
	another["version"] = 2
	delete(without, "version")
	return []any{another, without}
}

// withMore are documents with a key more, at each place.
func withMore(t *testing.T, text string) (list []any) {
	t.Helper()
	for i := range objects(readObject(t, text)) {
		top := readObject(t, text)
		objects(top)[i]["unknown"] = true
		list = append(list, top)
	}
	return list
}

func readObject(t *testing.T, text string) (top map[string]any) {
	t.Helper()
	ready(t, json.Unmarshal([]byte(text), &top))
	return top
}

// closeSchema makes a schema refuse unknown keys.
func closeSchema(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		if _, ok := schema["properties"]; ok && schema["type"] == "object" {
			schema["additionalProperties"] = false
		}
		for _, part := range schema {
			closeSchema(part)
		}
	case []any:
		for _, part := range schema {
			closeSchema(part)
		}
	}
}

// objects returns a document and its inner objects, the first one of each list, without objects keyed by
// resource names.
func objects(v any) (list []map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		list = append(list, v)
		keys := []string{}
		for key := range v {
			if key != "planned" && key != "plan" {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			list = append(list, objects(v[key])...)
		}
	case []any:
		for _, one := range v[:min(len(v), 2)] {
			list = append(list, objects(one)...)
		}
	}
	return list
}
