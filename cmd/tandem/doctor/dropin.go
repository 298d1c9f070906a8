// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// DropIn is Tandem's file in the kubelet's folder of drop-ins. Its name puts it behind those of others.
const DropIn = "99-tandem.conf"

// madeBy is the first line of that file. Without it the file is another's.
const madeBy = "# Made by tandem doctor --fix-kubelet. tandem doctor --rollback-kubelet removes it.\n"

// NewDropIn is that file without settings.
const NewDropIn = madeBy + "apiVersion: " + configuration.Version + "\nkind: " + configuration.Kind + "\n"

// dropIn is the file for a kubelet that has these settings without it: all of
// deployments/kubelet/config.yaml, with as many NUMA nodes as the machine has and, if asked for, CPUs for
// containers alone.
func dropIn(f facts, staticCPUs bool) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%stopologyManagerPolicy: %s\ntopologyManagerScope: %s\ntopologyManagerPolicyOptions:\n",
		NewDropIn, restricted, container)
	fmt.Fprintf(&b, "  %s: \"true\"\n", preferClosest)
	if f.numaNodes > f.allowedNodes() {
		fmt.Fprintf(&b, "  %s: \"%d\"\n", maxNodes, f.numaNodes)
	}
	if staticCPUs {
		fmt.Fprintf(&b, "cpuManagerPolicy: %s\n", static)
		if !f.reserves() {
			fmt.Fprintf(&b, "reservedSystemCPUs: \"%s\"\n", f.firstCPUs())
		}
	}
	return []byte(b.String())
}

// lacking are the keys that a kubelet needs and has not.
func (f facts) lacking(staticCPUs bool) (keys []string) {
	for _, need := range []struct {
		key string
		met bool
	}{
		{"topologyManagerPolicy", f.Policy == restricted},
		{"topologyManagerScope", f.Scope == container},
		{"topologyManagerPolicyOptions", f.numaNodes <= 2 || f.PolicyOptions[preferClosest] == "true"},
		{"topologyManagerPolicyOptions", f.numaNodes <= f.allowedNodes()},
		{"cpuManagerPolicy", !staticCPUs || f.CPUPolicy == static},
		{"reservedSystemCPUs", !staticCPUs || f.reserves()},
	} {
		if !need.met {
			keys = append(keys, need.key)
		}
	}
	return keys
}

// accepted says why the kubelet would not start with settings, or would lack some in spite of the file.
func (f facts) accepted(file string, staticCPUs bool) error {
	for _, finding := range f.judge(refusals()...) {
		return fmt.Errorf("the kubelet would not start with %s: %s %s", file, finding.Summary,
			strings.Join(finding.Evidence, "; "))
	}
	for _, key := range f.lacking(staticCPUs) {
		return fmt.Errorf("%s is set by %s, which stands above %s: change it there", key, f.Origin(key), file)
	}
	return nil
}

// ownFile is the path of Tandem's file, "" if the kubelet has no folder for it.
func (f facts) ownFile() string {
	if f.at.Dir == "" {
		return ""
	}
	return filepath.Join(f.at.Dir, DropIn)
}
