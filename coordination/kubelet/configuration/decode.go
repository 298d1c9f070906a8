// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	lenient "sigs.k8s.io/yaml"
)

// Kind and Version are what a file of the kubelet's configuration says that it is. The kubelet does not start
// with one that says something else, nor do drop-ins go without (mergeKubeletConfigurations in
// cmd/kubelet/app/server.go).
const (
	Kind    = "KubeletConfiguration"
	Version = "kubelet.config.k8s.io/v1beta1"
)

// ofKubelet refuses what is of another program, or of a version whose keys are not known here.
func ofKubelet(top *yaml.Node) error {
	says := func(key string) string {
		if value, _ := Lookup(top, key); value != nil && value.Value != "" {
			return value.Value
		}
		return "none"
	}
	if kind, version := says("kind"), says("apiVersion"); kind != Kind || version != Version {
		return fmt.Errorf("it is no %s of %s: its kind is %s, its apiVersion %s", Kind, Version, kind, version)
	}
	return nil
}

// Decode reads a KubeletConfiguration and returns the keys that it sets. Errors name the line.
func Decode(content []byte, into any) (keys []string, err error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, err
	}
	top := Mapping(&document)
	if top == nil {
		return nil, errors.New("it is no object of keys and values")
	}
	if err := ofKubelet(top); err != nil {
		return nil, err
	}
	err = lenient.Unmarshal(content, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		key, _, _ := strings.Cut(wrong.Field, ".")
		if _, name := Lookup(top, key); name != nil {
			return nil, fmt.Errorf("line %d: the value of %s cannot be an %s", name.Line, key, wrong.Value)
		}
	}
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		keys = append(keys, top.Content[i].Value)
	}
	return keys, nil
}
