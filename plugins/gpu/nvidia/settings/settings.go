// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// setting is a setting with a flag, environment variables and usually a key in the file.
type setting struct {
	names []string // of the flag; the first is documented, the others are accepted too
	env   []string // the first variable that is set counts
	key   string   // in the file; "" for none
	usage string
	kind  kind
	// preset is the default.
	preset []string
	// file returns the values in the file, nil for none.
	file func(*file) []string
	// apply stores the values, which have been checked against the kind.
	apply func(*Config, []string)
}

// kind is the type of a setting's values.
type kind string

const (
	plain   kind = "string"
	boolean kind = "bool"
	list    kind = "list"
	integer kind = "integers"
)

func (k kind) parse(value string) ([]string, error) {
	switch k {
	case boolean:
		if value == "" {
			value = "false" // of an empty variable
		}
		if _, err := strconv.ParseBool(value); err != nil {
			return nil, fmt.Errorf("%q is not true or false", value)
		}
	case list, integer:
		values := strings.Split(value, ",")
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		if k == integer {
			if value == "" {
				return []string{}, nil
			}
			if _, err := numbers(values); err != nil {
				return nil, err
			}
		}
		return values, nil
	}
	return []string{value}, nil
}

func numbers(values []string) ([]int, error) {
	var list []int
	for _, v := range values {
		n, err := strconv.Atoi(v)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", v)
		}
		list = append(list, n)
	}
	return list, nil
}

func textual(
	key, preset, usage string, env, names []string, said func(*file) *string, to func(*Config) *string,
) setting {
	return setting{names: names, env: env, key: key, usage: usage, kind: plain, preset: []string{preset},
		file: func(f *file) []string {
			if said(f) == nil {
				return nil
			}
			return []string{*said(f)}
		},
		apply: func(c *Config, values []string) { *to(c) = values[0] },
	}
}

func truth(
	key string, preset bool, usage string, env, names []string, said func(*file) *bool, to func(*Config) *bool,
) setting {
	return setting{names: names, env: env, key: key, usage: usage, kind: boolean,
		preset: []string{strconv.FormatBool(preset)},
		file: func(f *file) []string {
			if said(f) == nil {
				return nil
			}
			return []string{strconv.FormatBool(*said(f))}
		},
		apply: func(c *Config, values []string) { *to(c), _ = strconv.ParseBool(values[0]) },
	}
}

func several(
	key string, preset []string, usage string, env, names []string, said func(*file) []string,
	to func(*Config) *[]string,
) setting {
	return setting{names: names, env: env, key: key, usage: usage, kind: list, preset: preset, file: said,
		apply: func(c *Config, values []string) { *to(c) = values },
	}
}

// notInFile is for settings without a key in the file.
func notInFile(*file) *string { return nil }

// names is short for a list of names.
func names(list ...string) []string { return list }

// settings returns the flags, variables and keys of NVIDIA's own plugin (cmd/nvidia-device-plugin/main.go and
// api/config/v1/flags.go in NVIDIA/k8s-device-plugin), and Tandem's additions.
func settings() []setting {
	return []setting{
		textual("flags.migStrategy", MIGNone,
			"resources of MIG devices: none, single (nvidia.com/gpu) or mixed (nvidia.com/mig-<profile>)",
			names("MIG_STRATEGY"), names("mig-strategy"),
			func(f *file) *string { return f.Flags.MIGStrategy }, func(c *Config) *string { return &c.MIGStrategy }),
		// NVIDIA's own plugin defaults to true, and restarts forever on a node without GPU.
		truth("flags.failOnInitError", false,
			"exit with an error if NVML cannot be initialized at the start (the default of NVIDIA's own plugin); "+
				"if false, wait for the driver and offer no device",
			names("FAIL_ON_INIT_ERROR"), names("fail-on-init-error"),
			func(f *file) *bool { return f.Flags.FailOnInitError },
			func(c *Config) *bool { return &c.FailOnInitError }),
		textual("flags.nvidiaDriverRoot", "/", "root of NVIDIA's driver on the host, / or /run/nvidia/driver",
			names("NVIDIA_DRIVER_ROOT"), names("driver-root", "nvidia-driver-root"),
			func(f *file) *string { return f.Flags.DriverRoot }, func(c *Config) *string { return &c.DriverRoot }),
		textual("flags.nvidiaDevRoot", "",
			"root of NVIDIA's device nodes on the host (default the driver root)",
			names("NVIDIA_DEV_ROOT"), names("nvidia-dev-root", "dev-root"),
			func(f *file) *string { return f.Flags.DevRoot }, func(c *Config) *string { return &c.HostDevRoot }),
		truth("flags.plugin.passDeviceSpecs", false, "also return the device nodes in the kubelet's device specs",
			names("PASS_DEVICE_SPECS"), names("pass-device-specs"),
			func(f *file) *bool { return f.Flags.Plugin.PassDeviceSpecs },
			func(c *Config) *bool { return &c.PassDeviceSpecs }),
		several("flags.plugin.deviceListStrategy", []string{ListEnvVar},
			"methods of passing GPUs to containers, comma-separated: envvar, volume-mounts, cdi-annotations, cdi-cri",
			names("DEVICE_LIST_STRATEGY"), names("device-list-strategy"),
			func(f *file) []string { return f.Flags.Plugin.DeviceList },
			func(c *Config) *[]string { return &c.DeviceList }),
		textual("flags.plugin.deviceIDStrategy", IDUUID, "IDs of GPUs passed to containers: uuid or index",
			names("DEVICE_ID_STRATEGY"), names("device-id-strategy"),
			func(f *file) *string { return f.Flags.Plugin.DeviceID }, func(c *Config) *string { return &c.DeviceID }),
		truth("flags.gdrcopyEnabled", false, "add GDRCopy to containers",
			names("GDRCOPY_ENABLED"), names("gdrcopy-enabled"),
			func(f *file) *bool { return f.Flags.GDRCopy }, func(c *Config) *bool { return &c.GDRCopy }),
		truth("flags.gdsEnabled", false, "add GPUDirect Storage to containers",
			names("GDS_ENABLED"), names("gds-enabled"),
			func(f *file) *bool { return f.Flags.GDS }, func(c *Config) *bool { return &c.GDS }),
		truth("flags.mofedEnabled", false,
			"add all InfiniBand device nodes of the node to containers, which breaks the isolation of VFs",
			names("MOFED_ENABLED"), names("mofed-enabled"),
			func(f *file) *bool { return f.Flags.MOFED }, func(c *Config) *bool { return &c.MOFED }),
		textual("flags.plugin.cdiAnnotationPrefix", defaultAnnotationPrefix,
			"prefix of the annotations for the strategy cdi-annotations",
			names("CDI_ANNOTATION_PREFIX"), names("cdi-annotation-prefix"),
			func(f *file) *string { return f.Flags.Plugin.AnnotationPrefix },
			func(c *Config) *string { return &c.AnnotationPrefix }),
		textual("flags.plugin.nvidiaCTKPath", "/usr/bin/nvidia-ctk",
			"host path of the program that CDI hooks run",
			names("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"), names("nvidia-cdi-hook-path", "nvidia-ctk-path"),
			func(f *file) *string { return f.Flags.Plugin.CTKPath }, func(c *Config) *string { return &c.CDIHook }),
		textual("flags.plugin.containerDriverRoot", "/driver-root", "path of the driver root in this container",
			names("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
			names("driver-root-ctr-path", "container-driver-root"),
			func(f *file) *string { return f.Flags.Plugin.ContainerDriverRoot },
			func(c *Config) *string { return &c.ContainerDriverRoot }),
		textual("flags.mpsRoot", "", "ignored: MPS is not supported",
			names("MPS_ROOT"), names("mps-root"),
			func(f *file) *string { return f.Flags.MPSRoot }, func(*Config) *string { return new(string) }),
		textual("flags.plugin.sharedDevicesAllocationPolicy", policyDistributed,
			"choice of the GPU for the next replica or MIG device: distributed or packed",
			names("SHARED_DEVICES_ALLOCATION_POLICY"), names("shared-devices-allocation-policy"),
			func(f *file) *string { return f.Flags.Plugin.SharedPolicy },
			func(c *Config) *string { return &c.SharedPolicy }),
		textual("flags.deviceDiscoveryStrategy", "auto", "method of GPU discovery: auto or nvml",
			names("DEVICE_DISCOVERY_STRATEGY"), names("device-discovery-strategy"),
			func(f *file) *string { return f.Flags.Discovery }, func(c *Config) *string { return &c.Discovery }),
		{key: "imex.channelIDs", names: names("imex-channel-ids"), env: names("IMEX_CHANNEL_IDS"), kind: integer,
			preset: []string{},
			usage:  "IMEX channels to add to containers: none, or 0",
			file:   func(f *file) []string { return f.IMEX.channels() },
			apply:  func(c *Config, values []string) { c.IMEXChannels, _ = numbers(values) }},
		truth("imex.required", false, "exit with an error if an IMEX channel is missing",
			names("IMEX_REQUIRED"), names("imex-required"),
			func(f *file) *bool { return f.IMEX.Required }, func(c *Config) *bool { return &c.IMEXRequired }),
		// NVIDIA's own plugin has no such setting: broken GPUs stay unhealthy.
		truth("", false,
			"mark a GPU as healthy again after an Xid error if the driver reports that no recovery is necessary; "+
				"if false, the GPU stays unhealthy until the plugin restarts",
			names("XID_RECOVERY"), names("xid-recovery"),
			func(*file) *bool { return nil }, func(c *Config) *bool { return &c.XidRecovery }),
		textual("", "/var/lib/kubelet/device-plugins/kubelet.sock",
			"socket of the kubelet; if empty, no device is offered",
			names("KUBELET_SOCKET"), names("kubelet-socket"),
			notInFile, func(c *Config) *string { return &c.KubeletSocket }),
		several("", []string{}, "feature flags of NVIDIA's CDI library",
			names("CDI_FEATURE_FLAGS"), names("cdi-feature-flags"),
			nil, func(c *Config) *[]string { return &c.CDIFeatures }),
		several("", []string{}, "hooks to omit from CDI specifications, or all",
			names("CDI_DISABLE_HOOKS"), names("cdi-disable-hooks"),
			nil, func(c *Config) *[]string { return &c.CDIDisabledHooks }),
		textual("", "", "configuration file of NVIDIA's own plugin, version v1, in YAML or JSON",
			names("CONFIG_FILE"), names("config-file"), notInFile, func(c *Config) *string { return &c.File }),
	}
}

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
