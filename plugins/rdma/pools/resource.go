// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ResourceConfig is an element of resourceList or configList: a resource name and its devices.
type ResourceConfig struct {
	Name            string                       `json:"resourceName"`
	Prefix          string                       `json:"resourcePrefix"` // "" for that of the daemon
	DeviceType      DeviceType                   `json:"deviceType"`
	ExcludeTopology Exclusion                    `json:"excludeTopology"` // do not publish the NUMA node
	AdditionalInfo  map[string]map[string]string `json:"additionalInfo"`  // PCI address or "*" to key and value
	// of AMD's network device plugin, which runs "nicctl clear rdma" on bare metal unless this is true; Tandem
	// never runs nicctl
	NoDeviceConfig bool `json:"disableDeviceConfig"`
	// alternatives; never empty
	Selectors []Selector `json:"-"`

	// Keys that the stock plugin lacks are parsed separately, so that mistakes affect nothing else.
	Health `json:"-"`
	Tandem Tandem `json:"-"` // key "tandem"

	// Of SharedHCA: how many containers may share an HCA, and the number of the first of its replicas.
	Replicas     int `json:"-"`
	firstReplica int
}

// Health has the optional signs of a device's health besides its existence. All are opt-in: a VF passes
// traffic to other VFs of its PF while the PF has no carrier, and the stock plugin checks none of them. The
// first two keys are those of the stock plugin's pull request 640, the last one is that of AMD's network
// device plugin.
type Health struct {
	CheckPF bool `json:"checkHealthOnPf"` // unhealthy while the PF's netdev has no carrier
	// accepted; a missing device is always unhealthy
	CheckDevice bool `json:"checkHealthOnDeviceExist"`
	CheckPort   bool `json:"checkHealthOnRdmaPort"` // unhealthy while port 1 of the RDMA device is not active
	// unhealthy while the metrics exporter reports so
	CheckExporter bool `json:"enableExporterHealthCheck"`
}

// Tandem are the keys of a resource that the stock plugin ignores: the description of pairs for the
// container. All are opt-in, and only this plugin provides them: if two plugins set a variable of the same
// name, the kubelet keeps one of both values.
type Tandem struct {
	Pairs bool `json:"pairs"` // mount /run/tandem/pairs.json, a pairs.File
	// Alias adds PCIDEVICE_… under a name that shells can read, with _ for characters other than letters and
	// digits.
	Alias     bool     `json:"alias"`
	Variables []string `json:"variables"` // some of PairVariables
	// AllHCAs gives a container all HCAs of a pool of shared HCAs, like the RDMA shared device plugin: for pods
	// that request one and expect all.
	AllHCAs bool `json:"allHCAs"`
}

// PairVariables are the supported variables, sorted. Package grants documents their contents.
var PairVariables = []string{
	"NCCL_IB_HCA", "NVSHMEM_HCA_LIST", "UCX_NET_DEVICES",
	"VLLM_GPU_NIC_PCIE_MAPPING", "VLLM_NIC_SELECTION_VARS",
}

// stockName matches the names that the stock plugin accepts; it exits on other names (pkg/utils/utils.go,
// ValidResourceName).
var stockName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// MaxName is the maximum length of a resource's name part for the kubelet (qualifiedNameMaxLength in
// k8s.io/apimachinery/pkg/util/validation).
const MaxName = 63

// maxPrefix is the maximum length of a domain (IsDNS1123Subdomain, same place), less the "requests." that
// Kubernetes prepends to count a resource.
const maxPrefix = 253 - len("requests.")

// resourcePrefix matches the prefixes that the kubelet accepts (IsDNS1123Subdomain, same place).
var resourcePrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// checkName returns an error for a name that the kubelet would reject (IsQualifiedName, same place).
func (r *ResourceConfig) checkName() error {
	switch {
	case len(r.Name) > MaxName:
		return fmt.Errorf("resourceName has %d characters; at most %d are allowed", len(r.Name), MaxName)
	case strings.Trim(r.Name, "-_") != r.Name:
		return errors.New("resourceName may have - and _, but not at its ends")
	case r.Prefix != "" && !resourcePrefix.MatchString(r.Prefix):
		return fmt.Errorf("resourcePrefix %q is not a lower-case domain name such as intel.com", r.Prefix)
	case len(r.Prefix) > maxPrefix:
		return fmt.Errorf("resourcePrefix has %d characters; at most %d are allowed", len(r.Prefix), maxPrefix)
	default:
		return nil
	}
}

// checkSelectors returns an error for selectors that the stock plugin rejects (ValidConfig of its device
// providers).
func (r *ResourceConfig) checkSelectors() error {
	for _, s := range r.Selectors {
		if s.IsRDMA && s.VDPAType != "" {
			return errors.New("selectors: isRdma and vdpaType exclude each other")
		}
		if r.DeviceType != AuxNetDevice {
			continue
		}
		if len(s.AuxTypes) == 0 {
			return fmt.Errorf("selectors: auxTypes is missing, which deviceType %s needs", AuxNetDevice)
		}
		for _, auxType := range s.AuxTypes {
			if auxType != "sf" {
				return fmt.Errorf("selectors: auxTypes: %q is unknown; want sf", auxType)
			}
		}
	}
	return nil
}
