// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/functions"
)

// TestMistakesInSelectors: the log of a resource without a device names the mistake in its selectors, so that
// nobody has to look up the devices.
func TestMistakesInSelectors(t *testing.T) {
	for _, c := range []struct {
		name, selectors string
		want            string // pattern of a line
	}{
		{name: "a driver", selectors: `"vendors": ["15b3"], "drivers": ["mlx5_ib"]`,
			want: `drivers: want mlx5_ib, it has mlx5_core`},
		{
			name:      "a driver and a device number",
			selectors: `"devices": ["1017"], "drivers": ["mlx5_ib"]`,
			want:      `devices: .*1017.*101e.*drivers: .*mlx5_ib.*mlx5_core`,
		},
		{
			name:      "an address as device number",
			selectors: `"devices": ["0000:81:00.1"]`, want: `level=WARN.*0000:81:00\.1.*pciAddresses`,
		},
		{
			name:      "a VF of a PF as address",
			selectors: `"pciAddresses": ["0000:81:00.0#1"]`, want: `level=WARN.*0000:81:00\.0#1.*rootDevices`,
		},
		{
			name:      "a link type",
			selectors: `"linkTypes": ["ethernet"]`, want: `level=WARN.*ethernet.*\bether\b`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := functions.New()
			s.PF(0x81, "ens1", 2, nil)
			n := nodeOf(t, s.FS())
			n.write(t, "config.json", pool(c.selectors))
			healthy, log := n.offered(t, "")
			if len(healthy) > 0 {
				t.Errorf("offers %v", healthy)
			}
			if !regexp.MustCompile(c.want).MatchString(log) {
				t.Errorf("the log does not say %q:\n%s", c.want, log)
			}
		})
	}
}

// An empty --cdi-dirs is a mistake: one sentence on standard error.
func TestNoCDIDirs(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 1)
	n.write(t, "config.json", `{"resourceList": [{"resourceName": "vf", "selectors": {"isRdma": true}}]}`)
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		"--sysfs-root="+n.path("sys"), "--dev-root="+n.path("dev"),
		"--kubelet-dir="+n.path("kubelet"), "--run-dir="+filepath.Join(n.kubelet, "run"),
		"--config-file="+n.path("config.json"),
		"--devinfo-dir="+n.path("no-such-folder"), "--registration=register", "--cdi-dirs=")
	cmd.Env = append(os.Environ(), asDaemon+"=1")
	output, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "--cdi-dirs is empty") {
		t.Errorf("it ends with %v:\n%.600s", err, output)
	}
}
