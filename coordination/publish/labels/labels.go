// SPDX-License-Identifier: Apache-2.0

// Package labels computes a node's labels from its facts: properties that do not change while the node runs,
// and whether annotations are enforced.
package labels

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/publish/object"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// The names of the labels.
const (
	Switches     = "tandem.dev/switches"       // with GPUs and VFs
	Pairs        = "tandem.dev/pairs"          // on one switch each, on the empty node
	PairsPerNUMA = "tandem.dev/pairs-per-numa" // the minimum over the NUMA nodes with pairs
	VFHint       = "tandem.dev/vf-hint"        // true if VFs have NUMA hints
	GPUModel     = "tandem.dev/gpu-model"      // PCI vendor and device ID, "1002-74a1"
	GPULinks     = "tandem.dev/gpu-links"      // xgmi, nvlink or none
	// true while the annotation tandem.dev/alignment of pods is enforced on the node
	AlignmentEnforced = "tandem.dev/alignment-enforced"
)

// Build returns the labels. They count all devices, healthy and free or not.
func Build(f facts.Facts) map[string]string {
	spec := object.Build(f)
	kinds, hinted := map[string]v1alpha1.Kind{}, false
	for _, r := range spec.Resources {
		kinds[r.Name] = r.Kind
		hinted = hinted || r.Kind == v1alpha1.VF && len(r.Hints) > 0
	}
	pairs, perNUMA := 0, map[int]int{}
	for _, on := range spec.Switches {
		has := map[v1alpha1.Kind]int{}
		for name, devices := range on.Devices {
			has[kinds[name]] += len(devices.Numbers())
		}
		here := min(has[v1alpha1.GPU], has[v1alpha1.VF])
		if on.Alone || here == 0 {
			continue
		}
		pairs += here
		if on.NUMA != nil {
			perNUMA[*on.NUMA] += here
		}
	}
	fewest := 0
	if len(perNUMA) > 0 {
		fewest = slices.Min(slices.Collect(maps.Values(perNUMA)))
	}
	labels := map[string]string{
		Switches: strconv.Itoa(spec.Summary.Switches), Pairs: strconv.Itoa(pairs),
		PairsPerNUMA: strconv.Itoa(fewest), VFHint: strconv.FormatBool(hinted), GPULinks: "none",
		AlignmentEnforced: strconv.FormatBool(f.Enforced),
	}
	var models []string
	for _, r := range f.Resources {
		for _, l := range r.Links {
			labels[GPULinks] = strings.ToLower(string(l.Type))
		}
		for _, d := range r.Devices {
			if found, ok := f.Tree.Device(d.Address); ok && r.Kind == device.GPU {
				models = append(models, fmt.Sprintf("%04x-%04x", found.Vendor, found.Product))
			}
		}
	}
	slices.Sort(models)
	if models = slices.Compact(models); len(models) > 0 {
		labels[GPUModel] = strings.Join(models, ".")
	}
	return valid(labels)
}

// KubeNexus returns the labels that the scheduler KubeNexus reads. A list of CPUs is omitted unless it is a
// single range, because label values cannot contain commas.
func KubeNexus(f facts.Facts) map[string]string {
	const prefix = "numa.kubenexus.io/"
	labels := map[string]string{prefix + "node-count": strconv.Itoa(len(f.NUMANodes))}
	for _, node := range f.NUMANodes {
		of := fmt.Sprintf("%snode-%d-", prefix, node.Number)
		if len(node.CPUs) > 0 {
			labels[of+"cpus"] = node.CPUs.String()
		}
		if node.Memory > 0 {
			labels[of+"memory"] = strconv.FormatUint(node.Memory, 10)
		}
	}
	return valid(labels)
}

// valid removes labels with values that Kubernetes rejects.
func valid(labels map[string]string) map[string]string {
	maps.DeleteFunc(labels, func(_, value string) bool { return validation.IsValidLabelValue(value) != nil })
	return labels
}

// File returns labels as a local feature file of Node Feature Discovery, sorted. NFD removes the
// labels at the
// given time (source/local, ExpiryTimeKey).
func File(labels map[string]string, until time.Time) []byte {
	var text strings.Builder
	fmt.Fprintf(&text, "# +expiry-time=%s\n", until.UTC().Format(time.RFC3339))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&text, "%s=%s\n", key, labels[key])
	}
	return []byte(text.String())
}
