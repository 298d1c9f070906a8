// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/golden"
)

// TestDoctorExplainsPools: the reasons against VFs precede the findings, and are no findings themselves.
func TestDoctorExplainsPools(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config string
		change func(s *sick)
	}{
		"vfs": {`{"resourceList": [
			{"resourceName": "few", "isRdma": true, "selectors": [
				{"rootDevices": ["0000:0c:00.0#0-1"]}, {"rootDevices": ["0000:2a:00.0"], "vendor": ["15b3"]}]},
			{"resourceName": "wrong", "selectors": {"vendors": ["0x15b3"], "isRdma": true}},
			{"resourceName": "none", "selectors": {"pfNames": ["ens9"]}},
			{"resourceName": "rest", "selectors": {"isRdma": true}}]}`, func(s *sick) {
			s.remove(s.device(ociVF1, "driver"))
			s.remove(s.device("0000:58:00.1", "infiniband"), s.device("0000:58:00.1", "infiniband_verbs"))
		}},
		"hcas": {`{"configList": [
			{"resourceName": "all", "rdmaHcaMax": 4, "selectors": {"vendors": ["15b3"], "linkTypes": ["infiniband"]}},
			{"resourceName": "one", "hcaMax": 4, "rdmaHcaMax": 4, "selectors": {"ifNames": ["ib0"], "devices": ["1"]}}]}`,
			func(*sick) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sysfs(t, "oci-mi300x-derived", 2))
			s.write("config.json", c.config)
			c.change(s)
			code, stdout, stderr := run(s.command()...)
			pools, _, told := strings.Cut(strings.ReplaceAll(stdout, s.root, "ROOT"), "\n\n")
			if !told || stderr != "" || code != exitFound && code != cli.ExitOK {
				t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
			}
			golden.Check(t, "testdata/doctor-pools-"+name+".txt", pools+"\n")
			s.findings() // are JSON as ever
		})
	}
}
