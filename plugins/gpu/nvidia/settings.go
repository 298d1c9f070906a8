// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// setting is a setting with a flag, environment variables and usually a key in the file.
type setting struct {
	flags  string // names, with spaces between; the first is documented, the others are accepted too
	env    string // names, with spaces between; the first variable that is set counts
	key    string // in the file; "" for none
	preset string
	to     func(*Config) any // the place of the value: a *string, *bool, *[]string or *[]int
	usage  string
}

// flagName returns the documented name of the flag.
func (s *setting) flagName() string { return strings.Fields(s.flags)[0] }

// newPlace returns the setting's place in a new Config, with the preset.
func (s *setting) newPlace(c *Config) any {
	place := s.to(c)
	if s.preset != "" {
		_ = storeText(place, s.preset) // it is a constant
	}
	return place
}

// storeText stores the value of a flag or variable at the place of a setting.
func storeText(place any, text string) error {
	words := strings.Split(text, ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	switch to := place.(type) {
	case *string:
		*to = text
	case *bool:
		text = cmp.Or(text, "false") // of an empty variable
		value, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		*to = value
	case *[]string:
		*to = words
	case *[]int:
		*to = nil
		for _, word := range words {
			number, err := strconv.Atoi(word)
			switch {
			case text == "":
			case err != nil:
				return fmt.Errorf("%q is not a number", word)
			default:
				*to = append(*to, number)
			}
		}
	}
	return nil
}

// storeValue stores a value of the file at the place of a setting; a list may be a single string.
func storeValue(place, value any) error {
	list, isList := place.(*[]string)
	if text, isText := value.(string); isText && isList {
		*list = []string{text}
		return nil
	}
	content, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(content, place)
	}
	if err != nil && isList {
		return fmt.Errorf("%s is neither a string nor a list of strings", content)
	}
	return err
}

// valueText returns the value at the place of a setting, as a flag has it.
func valueText(place any) string {
	switch from := place.(type) {
	case *bool:
		return strconv.FormatBool(*from)
	case *[]string:
		return strings.Join(*from, ",")
	case *[]int:
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(*from), " ", ","), "[]")
	default:
		return *place.(*string)
	}
}

// allSettings returns the flags, variables and keys of NVIDIA's own plugin (cmd/nvidia-device-plugin/main.go
// and api/config/v1/flags.go in NVIDIA/k8s-device-plugin), and Tandem's additions.
func allSettings() []setting {
	return []setting{
		{"mig-strategy", "MIG_STRATEGY", "flags.migStrategy", migNone,
			func(c *Config) any { return &c.MIGStrategy },
			"resources of MIG devices: none, single (nvidia.com/gpu) or mixed (nvidia.com/mig-<profile>)"},
		// NVIDIA's own plugin defaults to true, and restarts forever on a node without GPU.
		{"fail-on-init-error", "FAIL_ON_INIT_ERROR", "flags.failOnInitError", "false",
			func(c *Config) any { return &c.FailOnInitError },
			"exit with an error if NVML cannot be initialized at the start (the default of NVIDIA's own plugin); " +
				"if false, wait for the driver and offer no device"},
		{"driver-root nvidia-driver-root", "NVIDIA_DRIVER_ROOT", "flags.nvidiaDriverRoot", "/",
			func(c *Config) any { return &c.DriverRoot },
			"root of NVIDIA's driver on the host, / or /run/nvidia/driver"},
		{"nvidia-dev-root dev-root", "NVIDIA_DEV_ROOT", "flags.nvidiaDevRoot", "",
			func(c *Config) any { return &c.HostDevRoot },
			"root of NVIDIA's device nodes on the host (default the driver root)"},
		{"pass-device-specs", "PASS_DEVICE_SPECS", "flags.plugin.passDeviceSpecs", "false",
			func(c *Config) any { return &c.PassDeviceSpecs },
			"also return the device nodes in the kubelet's device specs"},
		{"device-list-strategy", "DEVICE_LIST_STRATEGY", "flags.plugin.deviceListStrategy", listEnvVar,
			func(c *Config) any { return &c.DeviceList },
			"methods of passing GPUs to containers, comma-separated: envvar, volume-mounts, cdi-annotations, cdi-cri"},
		{"device-id-strategy", "DEVICE_ID_STRATEGY", "flags.plugin.deviceIDStrategy", iduuid,
			func(c *Config) any { return &c.DeviceID }, "IDs of GPUs passed to containers: uuid or index"},
		{"gdrcopy-enabled", "GDRCOPY_ENABLED", "flags.gdrcopyEnabled", "false",
			func(c *Config) any { return &c.GDRCopy }, "add GDRCopy to containers"},
		{"gds-enabled", "GDS_ENABLED", "flags.gdsEnabled", "false", func(c *Config) any { return &c.GDS },
			"add GPUDirect Storage to containers"},
		{"mofed-enabled", "MOFED_ENABLED", "flags.mofedEnabled", "false",
			func(c *Config) any { return &c.MOFED },
			"add all InfiniBand device nodes of the node to containers, which breaks the isolation of VFs"},
		{"cdi-annotation-prefix", "CDI_ANNOTATION_PREFIX", "flags.plugin.cdiAnnotationPrefix",
			defaultAnnotationPrefix, func(c *Config) any { return &c.AnnotationPrefix },
			"prefix of the annotations for the strategy cdi-annotations"},
		{"nvidia-cdi-hook-path nvidia-ctk-path", "NVIDIA_CDI_HOOK_PATH NVIDIA_CTK_PATH",
			"flags.plugin.nvidiaCTKPath", "/usr/bin/nvidia-ctk", func(c *Config) any { return &c.CDIHook },
			"host path of the program that CDI hooks run"},
		{"driver-root-ctr-path container-driver-root", "DRIVER_ROOT_CTR_PATH CONTAINER_DRIVER_ROOT",
			"flags.plugin.containerDriverRoot", "/driver-root",
			func(c *Config) any { return &c.ContainerDriverRoot }, "path of the driver root in this container"},
		{"mps-root", "MPS_ROOT", "flags.mpsRoot", "", func(*Config) any { return new(string) },
			"ignored: MPS is not supported"},
		{"shared-devices-allocation-policy", "SHARED_DEVICES_ALLOCATION_POLICY",
			"flags.plugin.sharedDevicesAllocationPolicy", policyDistributed,
			func(c *Config) any { return &c.SharedPolicy },
			"choice of the GPU for the next replica or MIG device: distributed or packed"},
		{"device-discovery-strategy", "DEVICE_DISCOVERY_STRATEGY", "flags.deviceDiscoveryStrategy", "auto",
			func(c *Config) any { return &c.Discovery }, "method of GPU discovery: auto or nvml"},
		{"imex-channel-ids", "IMEX_CHANNEL_IDS", "imex.channelIDs", "",
			func(c *Config) any { return &c.IMEXChannels }, "IMEX channels to add to containers: none, or 0"},
		{"imex-required", "IMEX_REQUIRED", "imex.required", "false",
			func(c *Config) any { return &c.IMEXRequired }, "exit with an error if an IMEX channel is missing"},
		// NVIDIA's own plugin has no such setting: broken GPUs stay unhealthy.
		{"xid-recovery", "XID_RECOVERY", "", "false", func(c *Config) any { return &c.XidRecovery },
			"mark a GPU as healthy again after an Xid error if the driver reports that no recovery is necessary; " +
				"if false, the GPU stays unhealthy until the plugin restarts"},
		{"kubelet-socket", "KUBELET_SOCKET", "", "/var/lib/kubelet/device-plugins/kubelet.sock",
			func(c *Config) any { return &c.KubeletSocket },
			"socket of the kubelet; if empty, no device is offered"},
		{"cdi-feature-flags", "CDI_FEATURE_FLAGS", "", "", func(c *Config) any { return &c.CDIFeatures },
			"feature flags of NVIDIA's CDI library"},
		{"cdi-disable-hooks", "CDI_DISABLE_HOOKS", "", "",
			func(c *Config) any { return &c.CDIDisabledHooks },
			"hooks to omit from CDI specifications, or all"},
		{"config-file", "CONFIG_FILE", "", "", func(c *Config) any { return &c.File },
			"configuration file of NVIDIA's own plugin, version v1, in YAML or JSON"},
	}
}

const (
	// vendor is NVIDIA's prefix of resource names.
	vendor = "nvidia.com/"
	// sharedSuffix is the end of the name of a renamed shared resource.
	sharedSuffix = ".shared"

	maxName = 63 // characters of a resource name, NVIDIA's prefix included
)

// sharing configures replicas of devices.
type sharing struct {
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

// readSharing converts the section of the file at a path, with warnings of settings without effect.
func (r *replicated) readSharing(path string) (sharing, []string, error) {
	bad := func(format string, args ...any) (sharing, []string, error) {
		return sharing{}, nil, fmt.Errorf("read the configuration %s: %s", path, fmt.Sprintf(format, args...))
	}
	if len(r.Resources) == 0 {
		return bad("sharing.timeSlicing.resources is empty: name the resources to share, " +
			"or remove sharing.timeSlicing")
	}
	s := sharing{
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
		rename := strings.TrimPrefix(resource.Rename, vendor)
		if resource.Rename != "" &&
			(!r.RenameByDefault || rename != strings.TrimPrefix(name, vendor)+sharedSuffix) {
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
		return "", fmt.Errorf("%q is not a name for a resource: want lower-case letters, digits, dots and dashes",
			name)
	}
	return vendor + name, nil
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
	x.ignored, x.all = x.parseVariable(env, "DP_DISABLE_HEALTHCHECKS")
	x.enabled, x.none = x.parseVariable(env, "DP_ENABLE_HEALTHCHECKS")
	return x
}

func (x *ignoredXids) parseVariable(
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
