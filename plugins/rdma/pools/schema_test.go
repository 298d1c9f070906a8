// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/golden"
)

// TestSchemaOfChart: the chart's schema has the keys and types that ReadConfig decodes. A key matches
// regardless of case, as in encoding/json. Selectors have the keys of all device types.
func TestSchemaOfChart(t *testing.T) {
	const file = "../../../deployments/helm/tandem/values.schema.json"
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Definitions struct {
			Config json.RawMessage `json:"rdmaConfig"`
		} `json:"definitions"`
	}
	if err := json.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	config, err := json.MarshalIndent(schemaOfConfig(t), "    ", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, file, strings.Replace(string(content), string(values.Definitions.Config), string(config), 1))
}

type schema map[string]any

func schemaOfConfig(t *testing.T) schema {
	tandem := schemaOf(t, reflect.TypeFor[Tandem](), map[string]schema{
		"variables": {"type": "array", "items": schema{"enum": PairVariables}},
	})
	selector := schemaOf(t, reflect.TypeFor[Selector](), nil)
	selectors := schema{"type": []string{"object", "array"}, "minItems": 1, "items": selector}
	for key, value := range selector {
		if key != "type" {
			selectors[key] = value
		}
	}
	resource := schemaOf(t, reflect.TypeFor[resource](), map[string]schema{
		"selectors": selectors, "tandem": tandem,
		"deviceType": {"enum": []DeviceType{"", NetDevice, Accelerator, AuxNetDevice}},
	})
	shared := schemaOf(t, reflect.TypeFor[sharedResource](), map[string]schema{
		"selectors": schemaOf(t, reflect.TypeFor[sharedSelector](), nil), "tandem": tandem,
	})
	for _, element := range []schema{resource, shared} {
		element["required"] = []string{"resourceName"}
	}
	config := schemaOf(t, reflect.TypeFor[topLevel](), map[string]schema{
		"resourceList": {"type": "array", "minItems": 1, "items": resource},
		"configList":   {"type": "array", "minItems": 1, "items": shared},
	})
	config["anyOf"] = []schema{{"required": []string{"resourceList"}}, {"required": []string{"configList"}}}
	return config
}

// schemaOf returns the schema of an object with the keys of a struct; own has the schemas of some keys.
func schemaOf(t *testing.T, object reflect.Type, own map[string]schema) schema {
	keys := schema{}
	for _, field := range reflect.VisibleFields(object) {
		key := field.Tag.Get("json")
		if key == "" || key == "-" {
			continue
		}
		value, ok := own[key]
		if !ok {
			value = schemaOfValue(t, field.Type)
		}
		keys[fmt.Sprintf("^(?i:%s)$", key)] = value
	}
	return schema{"type": "object", "patternProperties": keys, "additionalProperties": false}
}

func schemaOfValue(t *testing.T, value reflect.Type) schema {
	t.Helper()
	switch {
	case value == reflect.TypeFor[exclusion]():
		return schema{"enum": []any{true, false, "auto"}}
	case value == reflect.TypeFor[any]():
		return schema{}
	case value == reflect.TypeFor[vfItem](), value.Kind() == reflect.String:
		return schema{"type": "string"}
	case value.Kind() == reflect.Bool:
		return schema{"type": "boolean"}
	case value.Kind() == reflect.Int, value == reflect.TypeFor[*int]():
		return schema{"type": "integer", "minimum": 0}
	case value.Kind() == reflect.Slice && value.Elem().Kind() != reflect.Uint8:
		return schema{"type": "array", "items": schemaOfValue(t, value.Elem())}
	case value.Kind() == reflect.Map:
		return schema{"type": "object", "additionalProperties": schemaOfValue(t, value.Elem())}
	default:
		t.Fatalf("no schema for a value of type %s", value)
		return nil
	}
}
