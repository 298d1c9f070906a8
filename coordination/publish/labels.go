// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// The names of the labels.
const (
	labelSwitches     = "tandem.dev/switches"       // with GPUs and VFs
	labelPairs        = "tandem.dev/pairs"          // on one switch each, on the empty node
	labelPairsPerNUMA = "tandem.dev/pairs-per-numa" // the minimum over the NUMA nodes with pairs
	labelVFHint       = "tandem.dev/vf-hint"        // true if VFs have NUMA hints
	labelGPUModel     = "tandem.dev/gpu-model"      // PCI vendor and device ID, "1002-74a1"
	labelGPULinks     = "tandem.dev/gpu-links"      // xgmi, nvlink or none
	// true while the annotation tandem.dev/alignment of pods is enforced on the node
	labelAlignmentEnforced = "tandem.dev/alignment-enforced"
)

// buildLabels returns the labels of a node for targets: properties that do not change while the node runs,
// and whether annotations are enforced. They count all devices, healthy and free or not.
func buildLabels(f Facts, targets Targets) map[string]string {
	hinted := slices.ContainsFunc(f.Spec.Resources, func(r v1alpha1.Resource) bool {
		return r.Kind == v1alpha1.VF && len(r.Hints) > 0
	})
	pairs, perNUMA := 0, map[int]int{}
	for _, on := range f.Spec.Switches {
		here := countPairs(f.Spec, on, nil)
		pairs += here
		if on.NUMA != nil && here > 0 {
			perNUMA[*on.NUMA] += here
		}
	}
	fewest := 0
	if len(perNUMA) > 0 {
		fewest = slices.Min(slices.Collect(maps.Values(perNUMA)))
	}
	labels := map[string]string{
		labelSwitches: strconv.Itoa(f.Spec.Summary.Switches), labelPairs: strconv.Itoa(pairs),
		labelPairsPerNUMA: strconv.Itoa(fewest), labelVFHint: strconv.FormatBool(hinted), labelGPULinks: "none",
		labelAlignmentEnforced: strconv.FormatBool(f.Enforced),
	}
	var models []string
	for _, r := range f.Resources {
		for _, l := range r.Links {
			labels[labelGPULinks] = strings.ToLower(string(l.Type))
		}
		for _, d := range r.Devices {
			if found, ok := f.Tree.Device(d.Address); ok && r.Kind == device.GPU {
				models = append(models, fmt.Sprintf("%04x-%04x", found.Vendor, found.Product))
			}
		}
	}
	slices.Sort(models)
	models = slices.Compact(models)
	if len(models) > 0 {
		labels[labelGPUModel] = strings.Join(models, ".")
	}
	if slices.Contains(targets, kubeNexus) {
		addKubeNexusLabels(labels, f)
	}
	maps.DeleteFunc(labels, func(_, value string) bool { return validation.IsValidLabelValue(value) != nil })
	return labels
}

// addKubeNexusLabels adds the labels that the scheduler KubeNexus reads. A list of CPUs is omitted
// unless it is a single range, because label values cannot contain commas.
func addKubeNexusLabels(labels map[string]string, f Facts) {
	const prefix = "numa.kubenexus.io/"
	labels[prefix+"node-count"] = strconv.Itoa(len(f.NUMANodes))
	for _, node := range f.NUMANodes {
		of := fmt.Sprintf("%snode-%d-", prefix, node.Number)
		if node.CPUs != "" {
			labels[of+"cpus"] = string(node.CPUs)
		}
		if memory := node.Memory["memory"].Total; memory > 0 {
			labels[of+"memory"] = strconv.FormatUint(memory, 10)
		}
	}
}
