// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"os"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// Classes are the DeviceClasses of a cluster, by name.
type Classes map[string]*resourceapi.DeviceClass

// List returns all classes.
func (c Classes) List() ([]*resourceapi.DeviceClass, error) {
	list := make([]*resourceapi.DeviceClass, 0, len(c))
	for _, class := range c {
		list = append(list, class)
	}
	return list, nil
}

// Get returns a class by name.
func (c Classes) Get(name string) (*resourceapi.DeviceClass, error) {
	class, ok := c[name]
	if !ok {
		return nil, fmt.Errorf("no DeviceClass %s", name)
	}
	return class, nil
}

// ReadClasses reads the DeviceClasses of a file of manifests, and ignores other objects.
func ReadClasses(file string) (Classes, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read classes: %w", err)
	}
	classes := Classes{}
	for document := range strings.SplitSeq("\n"+string(content), "\n---") {
		var class resourceapi.DeviceClass
		if err := yaml.Unmarshal([]byte(document), &class); err != nil {
			return nil, fmt.Errorf("read classes %s: %w", file, err)
		}
		if class.Kind == "DeviceClass" {
			classes[class.Name] = &class
		}
	}
	return classes, nil
}
