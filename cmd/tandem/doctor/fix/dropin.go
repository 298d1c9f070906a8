// SPDX-License-Identifier: Apache-2.0

package fix

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// DropIn is the name of Tandem's file in the kubelet's folder of drop-ins, after the names of other files.
const DropIn = "99-tandem.conf"

// madeBy is the first line of Tandem's file. A file without that line is another owner's.
const madeBy = "# Made by tandem doctor --fix-kubelet. tandem doctor --rollback-kubelet removes it.\n"

// NewDropIn is Tandem's file without settings.
const NewDropIn = madeBy + "apiVersion: " + configuration.Version + "\nkind: " + configuration.Kind + "\n"

// dropIn returns Tandem's file for a kubelet that has these settings without the file: all of
// deployments/kubelet/config.yaml, with as many NUMA nodes as the machine has and, on request, CPUs for
// containers alone.
func dropIn(f managers.Facts, staticCPUs bool) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%stopologyManagerPolicy: %s\ntopologyManagerScope: %s\ntopologyManagerPolicyOptions:\n",
		NewDropIn, managers.Restricted, managers.Container)
	fmt.Fprintf(&b, "  %s: \"true\"\n", managers.PreferClosest)
	if f.NUMANodes > f.AllowedNodes() {
		fmt.Fprintf(&b, "  %s: \"%d\"\n", managers.MaxNodes, f.NUMANodes)
	}
	if staticCPUs {
		fmt.Fprintf(&b, "cpuManagerPolicy: %s\n", managers.Static)
		if !f.Reserves() {
			fmt.Fprintf(&b, "reservedSystemCPUs: \"%s\"\n", f.FirstCPUs())
		}
	}
	return []byte(b.String())
}

// lacking returns the keys that a kubelet needs and has not.
func lacking(f managers.Facts, staticCPUs bool) (keys []string) {
	for _, need := range []struct {
		key string
		met bool
	}{
		{"topologyManagerPolicy", f.Policy == managers.Restricted},
		{"topologyManagerScope", f.Scope == managers.Container},
		{"topologyManagerPolicyOptions", f.NUMANodes <= 2 || f.PolicyOptions[managers.PreferClosest] == "true"},
		{"topologyManagerPolicyOptions", f.NUMANodes <= f.AllowedNodes()},
		{"cpuManagerPolicy", !staticCPUs || f.CPUPolicy == managers.Static},
		{"reservedSystemCPUs", !staticCPUs || f.Reserves()},
	} {
		if !need.met {
			keys = append(keys, need.key)
		}
	}
	return keys
}

// accepted returns an error if the kubelet would not start with the settings, or lacks some with the file in
// place.
func accepted(f managers.Facts, file string, staticCPUs bool) error {
	for _, finding := range managers.Refusals(f) {
		return fmt.Errorf("the kubelet would not start with %s: %s %s", file, finding.Summary,
			strings.Join(finding.Evidence, "; "))
	}
	for _, key := range lacking(f, staticCPUs) {
		return fmt.Errorf("%s is set by %s, which overrides %s: change it there", key, f.Origin(key), file)
	}
	return nil
}

// ownFile returns the path of Tandem's file, "" for a kubelet without a folder of drop-ins.
func ownFile(at settings.Files) string {
	if at.Dir == "" {
		return ""
	}
	return filepath.Join(at.Dir, DropIn)
}
