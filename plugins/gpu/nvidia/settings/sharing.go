// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

const (
	// Vendor is NVIDIA's prefix of resource names.
	Vendor = "nvidia.com/"
	// SharedSuffix is the end of the name of a renamed shared resource.
	SharedSuffix = ".shared"

	maxName = 63 // characters of a resource name, NVIDIA's prefix included
)

// Sharing configures replicas of devices.
type Sharing struct {
	Replicas   map[string]int // of every device, by resource name
	Rename     bool           // shared resources are called <name>.shared
	RefuseMany bool           // limits a container to one replica
}

// replicated is the sharing section of the file.
type replicated struct {
	RenameByDefault bool  `json:"renameByDefault"`
	RefuseMany      *bool `json:"failRequestsGreaterThanOne"`
	Resources       []struct {
		Name     string `json:"name"`
		Rename   string `json:"rename"`
		Devices  any    `json:"devices"`
		Replicas *int   `json:"replicas"`
	} `json:"resources"`
}

// sharing converts the section of the file at a path, with warnings of settings without effect.
func (r *replicated) sharing(path string) (Sharing, []string, error) {
	bad := func(format string, args ...any) (Sharing, []string, error) {
		return Sharing{}, nil, fmt.Errorf("read the configuration %s: %s", path, fmt.Sprintf(format, args...))
	}
	if len(r.Resources) == 0 {
		return bad("sharing.timeSlicing.resources is empty: name the resources to share, " +
			"or remove sharing.timeSlicing")
	}
	s := Sharing{
		Replicas: map[string]int{}, Rename: r.RenameByDefault, RefuseMany: r.RefuseMany != nil && *r.RefuseMany,
	}
	var warnings []string
	ignored := func(key string) {
		warnings = append(warnings,
			fmt.Sprintf("%s: sharing.timeSlicing.resources[].%s is not supported and is ignored, "+
				"as by NVIDIA's own plugin", path, key))
	}
	for i, resource := range r.Resources {
		name, err := resourceName(resource.Name)
		if err != nil {
			return bad("sharing.timeSlicing.resources[%d].name: %v", i, err)
		}
		if resource.Replicas == nil || *resource.Replicas < 2 {
			return bad("sharing.timeSlicing.resources[%d].replicas of %s has to be 2 or more", i, name)
		}
		if err := checkDevices(resource.Devices); err != nil {
			return bad("sharing.timeSlicing.resources[%d].devices of %s: %v", i, name, err)
		}
		rename := strings.TrimPrefix(resource.Rename, Vendor)
		if resource.Rename != "" &&
			(!r.RenameByDefault || rename != strings.TrimPrefix(name, Vendor)+SharedSuffix) {
			ignored("rename")
		}
		if resource.Devices != nil && resource.Devices != "all" {
			ignored("devices")
		}
		s.Replicas[name] = *resource.Replicas
	}
	return s, warnings, nil
}

var subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// resourceName completes a resource name by NVIDIA's prefix.
func resourceName(name string) (string, error) {
	name = strings.TrimPrefix(name, Vendor)
	switch {
	case name == "":
		return "", fmt.Errorf("there is none")
	case len(Vendor+name) > maxName:
		return "", fmt.Errorf("%s%s has more than %d characters", Vendor, name, maxName)
	case !subdomain.MatchString(name):
		return "", fmt.Errorf("%q is not a name for a resource: want lower-case letters, digits, dots and dashes",
			name)
	}
	return Vendor + name, nil
}

const uuidPattern = `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`

var deviceReference = regexp.MustCompile(`^(\d+(:\d+)?|GPU-` + uuidPattern + `|MIG-` + uuidPattern +
	`|MIG-GPU-` + uuidPattern + `/\d+/\d+)$`)

// checkDevices rejects the values that NVIDIA's own plugin rejects; neither plugin uses them.
func checkDevices(devices any) error {
	switch d := devices.(type) {
	case nil:
		return nil
	case string:
		if d == "all" {
			return nil
		}
	case float64:
		if d > 0 && d == float64(int(d)) {
			return nil
		}
	case []any:
		for _, item := range d {
			if number, ok := item.(float64); ok && number >= 0 && number == float64(int(number)) {
				continue
			}
			if reference, ok := item.(string); !ok || !deviceReference.MatchString(reference) {
				return fmt.Errorf("%v is no index and no UUID of a device", item)
			}
		}
		return nil
	}
	text, _ := json.Marshal(devices)
	return fmt.Errorf("%s is not \"all\", a number above 0 or a list of devices", text)
}
