package nvidia

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/gpu"
)

const (
	vendor       = "nvidia.com/"
	sharedSuffix = ".shared"
	maxName      = 63 // characters of a resource name, NVIDIA's prefix included
)

// replicated is what the file says about sharing.
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

// sharing makes sense of what the file says, and of what it says without effect.
func (f *file) sharing(path string) (Sharing, []string, error) {
	bad := func(format string, args ...any) (Sharing, []string, error) {
		return Sharing{}, nil, fmt.Errorf("read the configuration %s: %s", path, fmt.Sprintf(format, args...))
	}
	if f.Sharing.MPS != nil {
		return bad("sharing.mps is not supported: use sharing.timeSlicing, or NVIDIA's own plugin on this node")
	}
	r := f.Sharing.TimeSlicing
	if r == nil {
		return Sharing{}, nil, nil
	}
	if len(r.Resources) == 0 {
		return bad("sharing.timeSlicing.resources is empty: name the resources to share, or remove sharing.timeSlicing")
	}
	s := Sharing{Replicas: map[string]int{}, Rename: r.RenameByDefault, RefuseMany: r.RefuseMany != nil && *r.RefuseMany}
	var warnings []string
	ignored := func(key string) {
		warnings = append(warnings, fmt.Sprintf("%s: sharing.timeSlicing.resources[].%s is not supported and is ignored, as by NVIDIA's own plugin", path, key))
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
		if resource.Rename != "" && (!r.RenameByDefault || strings.TrimPrefix(resource.Rename, vendor) != strings.TrimPrefix(name, vendor)+sharedSuffix) {
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
	name = strings.TrimPrefix(name, vendor)
	switch {
	case name == "":
		return "", fmt.Errorf("there is none")
	case len(vendor+name) > maxName:
		return "", fmt.Errorf("%s%s has more than %d characters", vendor, name, maxName)
	case !subdomain.MatchString(name):
		return "", fmt.Errorf("%q is not a name for a resource: want lower-case letters, digits, dots and dashes", name)
	}
	return vendor + name, nil
}

const uuidPattern = `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`

var deviceReference = regexp.MustCompile(`^(\d+(:\d+)?|GPU-` + uuidPattern + `|MIG-` + uuidPattern + `|MIG-GPU-` + uuidPattern + `/\d+/\d+)$`)

// checkDevices refuses what NVIDIA's own plugin refuses, although neither of us looks at it.
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

// share offers every device of a shared resource several times: as <ID>::0, <ID>::1 and so on.
func (s Sharing) share(resources map[string][]gpu.Device) map[string][]gpu.Device {
	shared := make(map[string][]gpu.Device, len(resources))
	for resource, devices := range resources {
		replicas := s.Replicas[resource]
		if replicas == 0 {
			shared[resource] = append(shared[resource], devices...)
			continue
		}
		if s.Rename {
			resource += sharedSuffix
		}
		for _, d := range devices {
			id := d.ID
			for n := range replicas {
				d.ID = fmt.Sprintf("%s%s%d", id, replicaMark, n)
				shared[resource] = append(shared[resource], d)
			}
		}
	}
	return shared
}

// replicaMark is between the ID of a device and the number of the replica.
const replicaMark = "::"

// original is the ID of the device that an ID is a replica of, or the ID itself.
func original(id string) string {
	id, _, _ = strings.Cut(id, replicaMark)
	return id
}

func isReplica(id string) bool { return strings.Contains(id, replicaMark) }
