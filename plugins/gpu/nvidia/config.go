// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/coordination/spelling"
)

// Strategies, as in NVIDIA's own plugin: for MIG devices, for the way in which containers get their GPUs and
// the list of them, and for the GPU of the next replica.
const (
	migNone   = "none"
	migSingle = "single"
	migMixed  = "mixed"

	listEnvVar         = "envvar"
	listVolumeMounts   = "volume-mounts"
	listCDIAnnotations = "cdi-annotations"
	listCDICRI         = "cdi-cri"

	iduuid  = "uuid"
	idIndex = "index"

	policyDistributed = "distributed"
	policyPacked      = "packed"
)

const defaultAnnotationPrefix = "cdi.k8s.io/"

// Config is the effective configuration from flags, environment and file, in this order of precedence.
type Config struct {
	MIGStrategy         string
	FailOnInitError     bool   // without NVML at the start: end with an error, otherwise wait
	DriverRoot          string // of NVIDIA's driver, on the host
	HostDevRoot         string // of the device nodes, on the host
	ContainerDriverRoot string // the driver root for this process
	PassDeviceSpecs     bool
	DeviceList          []string // strategies
	DeviceID            string
	GDRCopy, GDS, MOFED bool
	AnnotationPrefix    string
	CDIHook             string // path of the program for CDI hooks
	CDIFeatures         []string
	CDIDisabledHooks    []string
	SharedPolicy        string
	Discovery           string
	IMEXChannels        []int
	IMEXRequired        bool
	KubeletSocket       string // "" for no registration
	File                string // "" for none
	Sharing             sharing
	Xids                ignoredXids
	XidRecovery         bool     // a GPU can be healthy again after an Xid
	Warnings            []string // accepted settings without effect, or with a surprising one

	said      map[string]origin // by the name of its flag
	forClaims bool
}

// origin is a setting's value and source: a flag, a variable, a key of a file, or "" for a default.
type origin struct{ value, source string }

// Source returns the source of a flag's setting.
func (c *Config) Source(flag string) string { return c.said[flag].source }

// KubeletDir returns the kubelet's folder from the kubelet-socket setting, or false if that setting is a
// default.
func (c *Config) KubeletDir() (string, bool) {
	return path.Dir(path.Dir(c.KubeletSocket)), c.Source("kubelet-socket") != ""
}

// LogValue returns the settings other than defaults, with their sources.
func (c Config) LogValue() slog.Value {
	var attributes []slog.Attr
	for _, name := range slices.Sorted(maps.Keys(c.said)) {
		if s := c.said[name]; s.source != "" {
			attributes = append(attributes, slog.String(name, s.value+" ("+s.source+")"))
		}
	}
	if len(c.Sharing.Replicas) > 0 {
		attributes = append(attributes, slog.Any("replicas", c.Sharing.Replicas))
	}
	return slog.GroupValue(attributes...)
}

// CDI reports whether any and whether all device list strategies are CDI's. Of none all are, as in NVIDIA's
// own plugin.
func (c *Config) CDI() (some, all bool) {
	all = true
	for _, s := range c.DeviceList {
		is := strings.HasPrefix(s, "cdi-")
		some, all = some || is, all && is
	}
	return some, all
}

// ForClaims returns the configuration for claims, which pass GPUs through CDI, without annotations. By CDI
// alone each container also gets the variable of NVIDIA's CDI specs, NVIDIA_VISIBLE_DEVICES=void, so that a
// claim always has a CDI device of its own: without the device no container starts with a GPU that is gone.
func (c Config) ForClaims() Config {
	if some, _ := c.CDI(); !some || slices.Contains(c.DeviceList, listCDIAnnotations) {
		c.DeviceList = []string{listCDICRI}
	}
	c.forClaims = true
	return c
}

// enabledModes returns the enabled software beside the driver, as the modes of NVIDIA's CDI library.
func (c *Config) enabledModes() (modes []string) {
	for mode, enabled := range map[string]bool{"gdrcopy": c.GDRCopy, "gds": c.GDS, "mofed": c.MOFED} {
		if enabled {
			modes = append(modes, mode)
		}
	}
	slices.Sort(modes)
	return modes
}

// checkValues returns an error that names an invalid setting by its source.
func (c *Config) checkValues() error {
	if c.HostDevRoot == "" {
		c.HostDevRoot = c.DriverRoot
	}
	for _, s := range c.DeviceList {
		known := []string{listEnvVar, listVolumeMounts, listCDIAnnotations, listCDICRI}
		if err := c.oneOf("device-list-strategy", s, known...); err != nil {
			return err
		}
	}
	if c.Discovery == "tegra" {
		return fmt.Errorf("%s is \"tegra\": only NVML is supported: use NVIDIA's own plugin on this node",
			c.Source("device-discovery-strategy"))
	}
	if len(c.IMEXChannels) > 0 && !slices.Equal(c.IMEXChannels, []int{0}) {
		return fmt.Errorf("%s is %v: want no channel, or 0 alone", c.Source("imex-channel-ids"), c.IMEXChannels)
	}
	if c.KubeletSocket != "" && path.Base(path.Dir(c.KubeletSocket)) != "device-plugins" {
		return fmt.Errorf("%s is %q: want the path of kubelet.sock in the kubelet's folder device-plugins",
			c.Source("kubelet-socket"), c.KubeletSocket)
	}
	return errors.Join(
		c.oneOf("device-id-strategy", c.DeviceID, iduuid, idIndex),
		c.oneOf("shared-devices-allocation-policy", c.SharedPolicy, policyDistributed, policyPacked),
		c.oneOf("device-discovery-strategy", c.Discovery, "auto", "nvml"),
		c.oneOf("mig-strategy", c.MIGStrategy, migNone, migSingle, migMixed),
	)
}

func (c *Config) oneOf(name, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	return fmt.Errorf("%s is %q: want %s", c.Source(name), value, spelling.List(known))
}

// addWarnings collects the warnings for the log.
func (c *Config) addWarnings() {
	if c.MOFED {
		c.Warnings = append(c.Warnings, c.Source("mofed-enabled")+
			" is true: every container with a GPU gets all /dev/infiniband/uverbs* of the node, "+
			"so containers can use each other's VFs: leave it off, and ask for VFs of tandem-rdma instead, "+
			"which gives a container the device nodes of its own VFs")
	}
	if len(c.DeviceList) == 0 {
		c.Warnings = append(c.Warnings, c.Source("device-list-strategy")+
			" is empty: containers are not told of their GPUs, as by NVIDIA's own plugin: leave it out for "+
			listEnvVar)
	}
	if c.MIGStrategy == migMixed && slices.Contains(c.DeviceList, listEnvVar) {
		c.Warnings = append(c.Warnings, c.Source("mig-strategy")+" is "+migMixed+" and "+
			c.Source("device-list-strategy")+" has "+listEnvVar+": a container with MIG devices of two "+
			"resources is told those of one, because the kubelet keeps one value of NVIDIA_VISIBLE_DEVICES: "+
			"use "+listVolumeMounts+" or "+listCDICRI)
	}
	c.Warnings = append(c.Warnings, c.Xids.malformed...)
}

// file is a configuration file of NVIDIA's own plugin, version v1 (api/config/v1 in
// NVIDIA/k8s-device-plugin). Other keys are ignored as in that plugin: useNodeFeatureAPI and gfd are for
// another program that reads the same file.
type file struct {
	Version   string         `json:"version"`
	Flags     map[string]any `json:"flags"` // with the keys of settings
	IMEX      map[string]any `json:"imex"`  // likewise
	Resources struct {
		GPUs []json.RawMessage `json:"gpus"`
		MIGs []json.RawMessage `json:"mig"`
	} `json:"resources"`
	Sharing struct {
		TimeSlicing *replicated `json:"timeSlicing"`
		MPS         *replicated `json:"mps"`
	} `json:"sharing"`
}

// findKey returns the value of a setting's key; nil for none.
func (f *file) findKey(key string) (any, error) {
	value := any(map[string]any{"flags": f.Flags, "imex": f.IMEX})
	for name := range strings.SplitSeq(key, ".") {
		object, isObject := value.(map[string]any)
		if !isObject && value != nil {
			return nil, fmt.Errorf("%v is no object with the key %s", value, name)
		}
		value = nil
		for _, its := range slices.Sorted(maps.Keys(object)) {
			if strings.EqualFold(its, name) { // as encoding/json compares keys
				value = object[its]
			}
		}
	}
	return value, nil
}

// version is the only supported version.
const version = "v1"

func readFile(path string) (*file, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	f := &file{Version: version}
	if err := yaml.Unmarshal(content, f); err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	if f.Version != version && f.Version != "" {
		return nil, fmt.Errorf("read the configuration %s: version is %q: want %s", path, f.Version, version)
	}
	return f, nil
}

// Flags are the flags of NVIDIA's own plugin on the command line.
type Flags struct{ all []*argument }

// argument is one setting on the command line, as a pflag.Value.
type argument struct {
	setting
	place any // of the value
	given bool
}

// Register adds the flags to a set. Load can be called once the set was parsed.
func Register(set *pflag.FlagSet) *Flags {
	f := &Flags{}
	for _, s := range allSettings() {
		g := &argument{setting: s, place: s.newPlace(new(Config))}
		f.all = append(f.all, g)
		usage := s.usage + " [" + strings.Join(strings.Fields(s.env), ", ") + "]"
		for n, name := range strings.Fields(s.flags) {
			flag := set.VarPF(g, name, "", usage)
			if g.Type() == "bool" {
				flag.NoOptDefVal = "true"
			}
			flag.Hidden = n > 0
		}
	}
	return f
}

// String returns the value unless environment or file set another.
func (g *argument) String() string { return valueText(g.place) }

// Set takes a value from the command line; a list accumulates values.
func (g *argument) Set(text string) error {
	if before := g.String(); g.given && before != "" && (g.Type() == "list" || g.Type() == "integers") {
		text = before + "," + text
	}
	err := storeText(g.place, text)
	g.given = g.given || err == nil
	return err
}

// Type returns the word for the kind of value in the help.
func (g *argument) Type() string {
	switch g.place.(type) {
	case *bool:
		return "bool"
	case *[]string:
		return "list"
	case *[]int:
		return "integers"
	default:
		return "string"
	}
}

// File returns the configuration file of the command line, or "".
func (f *Flags) File() string {
	i := slices.IndexFunc(f.all, func(g *argument) bool { return g.flagName() == "config-file" })
	return f.all[i].String()
}

// Load merges flags, environment and configuration file. Each call rereads the file.
func (f *Flags) Load(env func(string) (string, bool)) (Config, error) {
	c := Config{said: map[string]origin{}}
	for _, g := range f.all {
		if err := g.fromOutside(&c, env); err != nil {
			return Config{}, err
		}
	}
	c.Xids = readXids(env)
	if c.File != "" {
		if err := f.fromFile(&c); err != nil {
			return Config{}, err
		}
	}
	if err := c.checkValues(); err != nil {
		return Config{}, err
	}
	c.addWarnings()
	return c, nil
}

// fromOutside applies a setting from flag or environment, else its default.
func (g *argument) fromOutside(c *Config, env func(string) (string, bool)) error {
	text, source := g.String(), "--"+g.flagName()
	if !g.given {
		source = ""
		for variable := range strings.FieldsSeq(g.env) {
			value, set := env(variable)
			if set && source == "" {
				text, source = value, variable
			}
		}
	}
	place := g.newPlace(c)
	if source != "" {
		if err := storeText(place, text); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	c.said[g.flagName()] = origin{valueText(place), source}
	return nil
}

// fromFile applies the file's values of settings without a flag or variable, and the settings that only the
// file has.
func (f *Flags) fromFile(c *Config) error {
	content, err := readFile(c.File)
	if err != nil {
		return err
	}
	for _, g := range f.all {
		if g.key == "" || c.said[g.flagName()].source != "" {
			continue
		}
		value, err := content.findKey(g.key)
		if err == nil && value != nil {
			place := g.to(c)
			err = storeValue(place, value)
			c.said[g.flagName()] = origin{valueText(place), g.key + " of " + c.File}
		}
		if err != nil {
			return fmt.Errorf("read the configuration %s: %s: %w", c.File, g.key, err)
		}
	}
	if len(content.Resources.GPUs)+len(content.Resources.MIGs) > 0 {
		c.Warnings = append(c.Warnings,
			c.File+": resources is not supported and is ignored, as by NVIDIA's own plugin")
	}
	var warnings []string
	switch {
	case content.Sharing.MPS != nil:
		err = fmt.Errorf("read the configuration %s: sharing.mps is not supported: "+
			"use sharing.timeSlicing, or NVIDIA's own plugin on this node", c.File)
	case content.Sharing.TimeSlicing != nil:
		c.Sharing, warnings, err = content.Sharing.TimeSlicing.readSharing(c.File)
	}
	slices.Sort(warnings)
	c.Warnings = append(c.Warnings, slices.Compact(warnings)...)
	return err
}
