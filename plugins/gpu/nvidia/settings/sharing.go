// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
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

// ignoredXids are the Xids that do not mark a GPU as broken.
type ignoredXids struct {
	none      bool // none is ignored
	all       bool // all are ignored
	ignored   map[uint64]bool
	enabled   map[uint64]bool
	malformed []string
}

// applicationXids are an application's fault; the GPU stays healthy (NVIDIA's Xid catalog, and
// internal/rm/health.go in NVIDIA/k8s-device-plugin).
var applicationXids = map[uint64]bool{
	13:  true, // graphics engine exception
	31:  true, // GPU memory page fault
	43:  true, // GPU stopped processing
	45:  true, // preemptive cleanup, due to previous errors
	68:  true, // video processor exception
	109: true, // context switch timeout
}

// readXids reads DP_DISABLE_HEALTHCHECKS, Xids to ignore in addition to those of applications, and
// DP_ENABLE_HEALTHCHECKS, Xids never to ignore. Both are lists of numbers, or "all" or "xids" for every Xid.
func readXids(env func(string) (string, bool)) ignoredXids {
	var x ignoredXids
	x.ignored, x.all = x.parse(env, "DP_DISABLE_HEALTHCHECKS")
	x.enabled, x.none = x.parse(env, "DP_ENABLE_HEALTHCHECKS")
	return x
}

func (x *ignoredXids) parse(
	env func(string) (string, bool), variable string,
) (numbers map[uint64]bool, all bool) {
	value, _ := env(variable)
	numbers = map[uint64]bool{}
	for word := range strings.SplitSeq(strings.ToLower(value), ",") {
		word = strings.TrimSpace(word)
		number, err := strconv.ParseUint(word, 10, 64)
		switch {
		case word == "all" || word == "xids":
			return nil, true
		case word == "":
		case err != nil:
			x.malformed = append(x.malformed, fmt.Sprintf("%s: %q is no Xid and is ignored", variable, word))
		default:
			numbers[number] = true
		}
	}
	return numbers, false
}

// Ignores reports whether an Xid leaves a GPU healthy.
func (x ignoredXids) Ignores(xid uint64) bool {
	switch {
	case x.none || x.enabled[xid]:
		return false
	case x.all || x.ignored[xid]:
		return true
	default:
		return applicationXids[xid]
	}
}

// Off reports whether all Xids are ignored.
func (x ignoredXids) Off() bool { return x.all && !x.none && len(x.enabled) == 0 }
