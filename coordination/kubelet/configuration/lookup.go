// SPDX-License-Identifier: Apache-2.0

package configuration

import "go.yaml.in/yaml/v3"

// Mapping is the top of the document, nil where it is empty.
func Mapping(document *yaml.Node) *yaml.Node {
	if document.Kind == yaml.DocumentNode && len(document.Content) == 1 &&
		document.Content[0].Kind == yaml.MappingNode {
		return document.Content[0]
	}
	return nil
}

// Lookup finds a key of a YAML object: its value and its name, nil for none.
func Lookup(object *yaml.Node, key string) (value, name *yaml.Node) {
	if object == nil {
		return nil, nil
	}
	for i := 0; i+1 < len(object.Content); i += 2 {
		if object.Content[i].Value == key {
			return object.Content[i+1], object.Content[i]
		}
	}
	return nil, nil
}
