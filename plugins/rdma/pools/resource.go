// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ResourceConfig is one element of resourceList or configList: which devices one resource name stands for.
type ResourceConfig struct {
	Name            string                       `json:"resourceName"`
	Prefix          string                       `json:"resourcePrefix"` // "" takes the daemon's
	DeviceType      DeviceType                   `json:"deviceType"`
	ExcludeTopology bool                         `json:"excludeTopology"` // tell nobody the NUMA node
	AdditionalInfo  map[string]map[string]string `json:"additionalInfo"`  // PCI address or "*" to key and value
	// of AMD's network device plugin, which runs "nicctl clear rdma" on bare metal unless this is true; here
	// that is never done
	NoDeviceConfig bool `json:"disableDeviceConfig"`
	// one that selects is enough; never empty
	Selectors []Selector `json:"-"`

	// The keys that the stock plugin does not have are read apart: a mistake in them costs them alone.
	Health `json:"-"`
	Tandem Tandem `json:"-"` // key "tandem"

	// Of SharedHCA: how many containers may share an HCA, and the number of the first of its replicas.
	Replicas     int `json:"-"`
	firstReplica int
}

// Health says which signs of a device's health count beyond its being there. All are opt-in: a VF passes
// traffic to other VFs of its PF while the PF has no carrier, and the stock plugin looks at none of them. The
// first two keys are those of its pull request 640, the last one is that of AMD's network device plugin.
type Health struct {
	CheckPF bool `json:"checkHealthOnPf"` // unhealthy while the PF's netdev has no carrier
	// accepted; a device that is gone is unhealthy in any case
	CheckDevice bool `json:"checkHealthOnDeviceExist"`
	CheckPort   bool `json:"checkHealthOnRdmaPort"` // unhealthy while port 1 of the RDMA device is not active
	// unhealthy while the metrics exporter says so
	CheckExporter bool `json:"enableExporterHealthCheck"`
}

// Tandem are the keys of a resource that the stock plugin does not have, and ignores: what a container is
// told of its pairs. All of it is opt-in, and this plugin alone tells it: of equal names from two plugins the
// kubelet keeps either.
type Tandem struct {
	Pairs bool `json:"pairs"` // mount /run/tandem/pairs.json, a coordination.PairsFile
	// Alias is for PCIDEVICE_… a second time under a name that shells can read: other characters than letters
	// and digits are _.
	Alias     bool     `json:"alias"`
	Variables []string `json:"variables"` // some of PairVariables
	// AllHCAs gives a container all HCAs of a pool of shared ones, whichever it was given, as the RDMA shared
	// device plugin does: for pods that ask for one and mean all.
	AllHCAs bool `json:"allHCAs"`
}

// PairVariables are the variables that can be asked for, sorted. Package grants has what each of them says.
var PairVariables = []string{
	"NCCL_IB_HCA", "NVSHMEM_HCA_LIST", "UCX_NET_DEVICES",
	"VLLM_GPU_NIC_PCIE_MAPPING", "VLLM_NIC_SELECTION_VARS",
}

// stockName is what the stock plugin accepts, and ends over anything else (pkg/utils/utils.go,
// ValidResourceName).
var stockName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// MaxName is the longest name part of a resource that the kubelet accepts (qualifiedNameMaxLength in
// k8s.io/apimachinery/pkg/util/validation).
const MaxName = 63

// maxPrefix is the longest name that a domain may have (IsDNS1123Subdomain, same place), less the "requests."
// that Kubernetes puts before it to count a resource.
const maxPrefix = 253 - len("requests.")

// resourcePrefix is what the kubelet accepts before the slash (IsDNS1123Subdomain, same place).
var resourcePrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// checkName finds what the kubelet would refuse (IsQualifiedName, same place): that resource alone.
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

// checkSelectors refuses what the stock plugin refuses (ValidConfig of its device providers).
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
