// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Limits of a NodeTopology. The CRD has the same limits, but readers do not rely on the API server: each node
// writes its own object, and no node's object may cost a scheduler more time or memory than the object of a
// large machine.
const (
	MaxResources = 32
	MaxDevices   = 1 << 15 // of all resources together; 8 GPUs and 8 HCAs shared 2,000 times are 32,000
	MaxFunctions = 1 << 10 // physical functions of all resources together
	MaxPlaces    = 256     // switches, and groups of devices below them
	MaxDepth     = 32      // bridges above a device
	MaxPath      = 512     // bytes of a path of bridges
	MaxNUMANodes = 64
	// MaxDeviceNodes limits the NUMA nodes with device hints: the kubelet tries all sets of these nodes.
	MaxDeviceNodes = 8
	MaxCPUs        = 1 << 13 // NR_CPUS of the kernel
	MaxLinks       = 1 << 11
	MaxOptions     = 32
	MaxNamespaces  = 1 << 16 // bytes of their names
	MaxPods        = 1 << 12 // pods with holdings, including ended ones
	MaxContainers  = 1 << 12 // of all these pods together
	MaxMemoryKinds = 16
	// MaxWords limits the total size of all sets of devices, those of hints, switches, pods and containers, in
	// words of 64 devices.
	MaxWords = 1 << 20
)

// Validate returns an error that names the field if the object exceeds a limit, or contains an invalid
// number, name or path. It does not parse sets and addresses.
func (s *Spec) Validate() error {
	for _, validate := range [...]func() error{
		s.validateKubelet, s.validateResources, s.validateSwitches, s.validateNUMANodes, s.validateLinks,
		s.validateHeld,
	} {
		if err := validate(); err != nil {
			return err
		}
	}
	return nil
}

// atMost returns an error if a count exceeds a limit.
func atMost(what string, count, limit int) error {
	if count > limit {
		return fmt.Errorf("%d %s: at most %d are allowed", count, what, limit)
	}
	return nil
}

// checkRange returns an error if a number is negative or too high.
func checkRange(what string, number, limit int) error {
	if number < 0 || number > limit {
		return fmt.Errorf("%s %d: want a number from 0 to %d", what, number, limit)
	}
	return nil
}

func (s *Spec) validateKubelet() error {
	k := &s.Kubelet
	options := max(len(k.TopologyManagerPolicyOptions), len(k.CPUManagerPolicyOptions))
	return errors.Join(atMost("policy options", options, MaxOptions),
		checkRange("reserved CPUs", k.ReservedCPUs, MaxCPUs),
		atMost("bytes of namespaces", len(s.Alignment.OptOut), MaxNamespaces))
}

// extendedResource matches resource names that a device plugin can announce (IsExtendedResourceName of
// Kubernetes), except those in the domain kubernetes.io.
var extendedResource = regexp.MustCompile(
	`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// isNative reports whether a resource is in a domain of Kubernetes.
func isNative(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
}

func (s *Spec) validateResources() error {
	if err := atMost("resources", len(s.Resources), MaxResources); err != nil {
		return err
	}
	devices, functions := 0, 0
	names, nodes := map[string]bool{}, map[string]bool{}
	for i := range s.Resources {
		r := &s.Resources[i]
		switch {
		case !extendedResource.MatchString(r.Name) || isNative(r.Name):
			return fmt.Errorf("resource %.40q: want the name of an extended resource", r.Name)
		case names[r.Name]:
			return fmt.Errorf("resource %s is there twice", r.Name)
		}
		names[r.Name] = true
		if err := checkRange("devices of "+r.Name, r.Devices, MaxDevices); err != nil {
			return err
		}
		devices += r.Devices
		if len(r.Functions) > 0 {
			functions += len(r.Functions)
		} else {
			functions += r.Devices
		}
		for node := range r.Hints {
			nodes[node] = true
		}
		if err := atMost("addresses", len(r.Addresses), MaxFunctions); err != nil {
			return err
		}
	}
	return errors.Join(atMost("devices", devices, MaxDevices),
		atMost("physical functions", functions, MaxFunctions),
		atMost("NUMA nodes with devices", len(nodes), MaxDeviceNodes))
}

func (s *Spec) validateSwitches() error {
	places := len(s.Switches)
	for i := range s.Switches {
		places += len(s.Switches[i].Below)
	}
	if err := atMost("switches and groups below them", places, MaxPlaces); err != nil {
		return err
	}
	for i := range s.Switches {
		sw := &s.Switches[i]
		depth, redirected := strings.Count(sw.Path, "/"), sw.Redirected
		numa := 0
		if sw.NUMA != nil {
			numa = *sw.NUMA
		}
		if err := errors.Join(
			checkRange("NUMA node", numa, MaxNUMANodes-1), checkRange("bridges of a path", depth, MaxDepth),
			checkRange("redirecting bridges", redirected, MaxDepth), atMost("bytes of a path", len(sw.Path), MaxPath),
		); err != nil {
			return fmt.Errorf("switch %.40q: %w", sw.Name, err)
		}
		for _, b := range sw.Below {
			if err := errors.Join(checkRange("bridges of a path", depth+1+strings.Count(b.Path, "/"), MaxDepth+1),
				checkRange("redirecting bridges", b.Redirected, 2*MaxDepth),
				atMost("bytes of a path", len(b.Path), MaxPath)); err != nil {
				return fmt.Errorf("switch %.40q: %w", sw.Name, err)
			}
		}
	}
	return nil
}

func (s *Spec) validateNUMANodes() error {
	if err := errors.Join(atMost("NUMA nodes", len(s.NUMANodes), MaxNUMANodes),
		atMost("NUMA nodes with reserved memory", len(s.MemoryReserved), MaxNUMANodes)); err != nil {
		return err
	}
	known := map[int]bool{}
	for i := range s.NUMANodes {
		n := &s.NUMANodes[i]
		if err := errors.Join(checkRange("NUMA node", n.Number, MaxNUMANodes-1),
			atMost("distances", len(n.Distances), MaxNUMANodes), atMost("cores", len(n.Cores), MaxCPUs),
			atMost("kinds of memory", len(n.Memory), MaxMemoryKinds)); err != nil {
			return err
		}
		if known[n.Number] {
			return fmt.Errorf("NUMA node %d is there twice", n.Number)
		}
		known[n.Number] = true
	}
	return nil
}

func (s *Spec) validateLinks() error {
	const most = 1 << 10 // hops, or lanes
	if err := atMost("links", len(s.Links), MaxLinks); err != nil {
		return err
	}
	for _, l := range s.Links {
		err := errors.Join(checkRange("hops", l.Hops, most), checkRange("links of two GPUs", l.Count, most))
		if err != nil {
			return err
		}
	}
	return nil
}

// validateHeld also returns an error if the sets of all devices together are too large.
func (s *Spec) validateHeld() error {
	if err := atMost("pods", len(s.Held), MaxPods); err != nil {
		return err
	}
	containers := 0
	for i := range s.Held {
		containers += len(s.Held[i].Containers)
		for k := range s.Held[i].Containers {
			if err := atMost("blocks of memory", len(s.Held[i].Containers[k].Memory), MaxMemoryKinds); err != nil {
				return err
			}
		}
	}
	if err := atMost("containers", containers, MaxContainers); err != nil {
		return err
	}
	words, hints := 0, 0
	for i := range s.Resources {
		words += (s.Resources[i].Devices + 63) / 64
		hints += len(s.Resources[i].Hints)
	}
	if sets := 2*len(s.Switches) + hints + len(s.Held) + containers; words*sets > MaxWords {
		return fmt.Errorf("%d sets of devices, %d words each: too large", sets, words)
	}
	return nil
}
