// SPDX-License-Identifier: Apache-2.0

// Package configuration reads the kubelet's configuration as the kubelet does: a file, drop-ins and flags,
// with the origin of each value.
package configuration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Kind and Version identify a file of the kubelet's configuration. The kubelet does not start with a file or
// drop-in without them (mergeKubeletConfigurations in cmd/kubelet/app/server.go).
const (
	Kind    = "KubeletConfiguration"
	Version = "kubelet.config.k8s.io/v1beta1"
)

// object is a file of the kubelet's configuration.
type object struct {
	top  *yamlnode.Node
	json []byte
}

// parse reads a file: YAML becomes JSON, in which a number is no text (DecodeKubeletConfiguration in
// pkg/kubelet/kubeletconfig/util/codec). Of a repeated key the last one counts.
func parse(content []byte) (o object, err error) {
	if len(content) == 0 {
		return o, errors.New("it is empty, and the kubelet does not start with an empty file: fill or remove it")
	}
	var document yamlnode.Node
	if err := yamlnode.Unmarshal(content, &document); err != nil {
		return o, err
	}
	if document.Kind != yamlnode.DocumentNode || document.Content[0].Kind != yamlnode.MappingNode {
		return o, errors.New("it is no object of keys and values")
	}
	o.top = document.Content[0]
	kind, version := o.value("kind"), o.value("apiVersion")
	if kind != Kind || version != Version {
		return o, fmt.Errorf("it is no %s of %s: its kind is %s, its apiVersion %s", Kind, Version, kind, version)
	}
	o.json, err = yaml.YAMLToJSON(content)
	return o, err
}

// keys returns the keys of the object's top, with their nodes.
func (o object) keys() map[string]*yamlnode.Node {
	keys := map[string]*yamlnode.Node{}
	for i := 0; i+1 < len(o.top.Content); i += 2 {
		keys[o.top.Content[i].Value] = o.top.Content[i]
	}
	return keys
}

func (o object) value(key string) string {
	for i := 0; i+1 < len(o.top.Content); i += 2 {
		if value := o.top.Content[i+1].Value; o.top.Content[i].Value == key && value != "" {
			return value
		}
	}
	return "none"
}

// decode decodes the object: keys in another case are not read, as by the kubelet.
func (o object) decode(into *Settings) error {
	return o.wrong(kubejson.UnmarshalCaseSensitivePreserveInts(o.json, into))
}

// merge merges a drop-in into an object (RFC 7386), and decodes the result. Here the kubelet reads keys in
// any case: of two that differ in their case the last one in the order of their bytes counts
// (mergeKubeletConfigurations in cmd/kubelet/app/server.go).
func (o object) merge(into map[string]any) (merged Settings, err error) {
	var patch map[string]any
	if err := json.Unmarshal(o.json, &patch); err != nil {
		return merged, err
	}
	mergePatch(into, patch)
	content, err := json.Marshal(into)
	if err != nil {
		return merged, err
	}
	return merged, o.wrong(json.Unmarshal(content, &merged))
}

func mergePatch(into, patch map[string]any) {
	for key, value := range patch {
		inner, isObject := value.(map[string]any)
		if value == nil {
			delete(into, key)
			continue
		}
		if !isObject {
			into[key] = value
			continue
		}
		outer, hasObject := into[key].(map[string]any)
		if !hasObject {
			outer = map[string]any{}
			into[key] = outer
		}
		mergePatch(outer, inner)
	}
}

// wrong returns the error of a value's type with the key and the line.
func (o object) wrong(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	field, _, _ := strings.Cut(wrong.Field, ".")
	for key, node := range o.keys() {
		if strings.EqualFold(key, field) {
			return fmt.Errorf("line %d: the value of %s cannot be of type %s", node.Line, key, wrong.Value)
		}
	}
	return err
}
