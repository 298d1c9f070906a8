// Package config patches files of the kubelet's configuration, whatever node they are of.
package config

import (
	"bytes"
	"errors"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Setting is a key of the kubelet's configuration and the value that it is to have: a string, or an object of
// strings, whose other keys stay.
type Setting struct {
	Key   string
	Value any
}

// Patch gives a kubelet configuration, YAML or JSON, these settings. Comments, the order of keys and all
// other keys stay as they are. What would say anything else than that is an error.
func Patch(content []byte, settings []Setting) ([]byte, error) {
	patch := patchYAML
	if trimmed := bytes.TrimSpace(content); len(trimmed) > 0 && trimmed[0] == '{' {
		patch = patchJSON
	}
	patched, err := patch(content, settings)
	if err != nil {
		return nil, err
	}
	if err := confirm(content, patched, settings); err != nil {
		return nil, err
	}
	return patched, nil
}

// confirm reads both configurations and checks that they differ in the settings alone. Lines of YAML can be
// more than they seem.
func confirm(before, after []byte, settings []Setting) error {
	var a, b map[string]any
	if err := errors.Join(yaml.Unmarshal(before, &a), yaml.Unmarshal(after, &b)); err != nil {
		return err
	}
	if a == nil {
		a = map[string]any{}
	}
	for _, s := range settings {
		fields, nested := s.Value.(map[string]string)
		if !nested {
			a[s.Key] = s.Value
			continue
		}
		options, ok := a[s.Key].(map[string]any)
		if !ok {
			options = map[string]any{}
		}
		for name, value := range fields {
			options[name] = value
		}
		a[s.Key] = options
	}
	if !reflect.DeepEqual(a, b) {
		return errors.New("it is written in a way that cannot be patched line by line: set the keys by hand")
	}
	return nil
}
