package nvidia

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Strategies, as NVIDIA's own plugin spells them.
const (
	migNone   = "none"
	migSingle = "single"
	migMixed  = "mixed"

	listEnvVar         = "envvar"
	listVolumeMounts   = "volume-mounts"
	listCDIAnnotations = "cdi-annotations"
	listCDICRI         = "cdi-cri"

	idUUID  = "uuid"
	idIndex = "index"

	policyDistributed = "distributed"
	policyPacked      = "packed"
)

const defaultAnnotationPrefix = "cdi.k8s.io/"

// Config is the effective configuration: what flags, environment and file say together, in this order of precedence.
type Config struct {
	MIGStrategy         string
	FailOnInitError     bool   // without NVML: end with an error; otherwise wait, offering nothing
	DriverRoot          string // of NVIDIA's driver, on the host
	HostDevRoot         string // of the device nodes, on the host
	ContainerDriverRoot string // the driver root as this process sees it
	PassDeviceSpecs     bool
	DeviceList          []string // strategies
	DeviceID            string
	GDRCopy, GDS, MOFED bool
	AnnotationPrefix    string
	CDIHook             string // path of the program that CDI hooks run
	CDIFeatures         []string
	CDIDisabledHooks    []string
	SharedPolicy        string
	Discovery           string
	IMEXChannels        []int
	IMEXRequired        bool
	KubeletSocket       string // "" for no registration
	File                string // "" for none
	Sharing             Sharing
	Warnings            []string // what was accepted and has no effect, or has one that may surprise

	xids ignoredXids
	said map[string]said // by the name of its flag
}

// Sharing says which resources are offered several times over.
type Sharing struct {
	Replicas   map[string]int // of every device, by resource name
	Rename     bool           // shared resources are called <name>.shared
	RefuseMany bool           // a container may have one replica only
}

// cdi reports whether any and whether all device list strategies are CDI's. Of none all are, as in NVIDIA's own plugin.
func (c *Config) cdi() (some, all bool) {
	all = true
	for _, s := range c.DeviceList {
		is := strings.HasPrefix(s, "cdi-")
		some, all = some || is, all && is
	}
	return some, all
}

// check says what is wrong with a configuration, in the words of whoever wrote it.
func (c *Config) check() error {
	if c.HostDevRoot == "" {
		c.HostDevRoot = c.DriverRoot
	}
	for _, s := range c.DeviceList {
		if err := c.oneOf("device-list-strategy", s, listEnvVar, listVolumeMounts, listCDIAnnotations, listCDICRI); err != nil {
			return err
		}
	}
	if c.Discovery == "tegra" {
		return fmt.Errorf("%s is \"tegra\": only NVML is supported: use NVIDIA's own plugin on this node", c.source("device-discovery-strategy"))
	}
	if len(c.IMEXChannels) > 0 && !slices.Equal(c.IMEXChannels, []int{0}) {
		return fmt.Errorf("%s is %v: want no channel, or 0 alone", c.source("imex-channel-ids"), c.IMEXChannels)
	}
	if c.KubeletSocket != "" && path.Base(path.Dir(c.KubeletSocket)) != "device-plugins" {
		return fmt.Errorf("%s is %q: want the path of kubelet.sock in the kubelet's folder device-plugins", c.source("kubelet-socket"), c.KubeletSocket)
	}
	return errors.Join(
		c.oneOf("device-id-strategy", c.DeviceID, idUUID, idIndex),
		c.oneOf("shared-devices-allocation-policy", c.SharedPolicy, policyDistributed, policyPacked),
		c.oneOf("device-discovery-strategy", c.Discovery, "auto", "nvml"),
		c.oneOf("mig-strategy", c.MIGStrategy, migNone, migSingle, migMixed),
	)
}

func (c *Config) oneOf(name, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	last := len(known) - 1
	return fmt.Errorf("%s is %q: want %s or %s", c.source(name), value, strings.Join(known[:last], ", "), known[last])
}

// warn collects what deserves a word in the log.
func (c *Config) warn() {
	if c.MOFED {
		c.Warnings = append(c.Warnings, c.source("mofed-enabled")+" is true: every container with a GPU gets all /dev/infiniband/uverbs* of the node, "+
			"so containers can use each other's VFs: leave it off, and ask for VFs of tandem-rdma instead, which gives a container the device nodes of its own VFs")
	}
	if len(c.DeviceList) == 0 {
		c.Warnings = append(c.Warnings, c.source("device-list-strategy")+" is empty: containers are not told of their GPUs, as by NVIDIA's own plugin: "+
			"leave it out for "+listEnvVar)
	}
	c.Warnings = append(c.Warnings, c.xids.malformed...)
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
