// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
)

const plainKubelet = `# of the cloud
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
topologyManagerPolicy: none # for now
kubeReserved: {cpu: 500m}
`

// files are all files of the node and their content.
func (s *sick) files() map[string]string {
	s.t.Helper()
	files := map[string]string{}
	s.check(filepath.WalkDir(s.root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		files[name] = string(content)
		return err
	}))
	return files
}

// plainKubelet is an unconfigured kubelet that has a folder of drop-ins.
func (s *sick) plainKubelet() {
	s.t.Helper()
	s.write("kubelet/config.yaml", plainKubelet)
	s.cpuState("none", "")
	s.check(os.Mkdir(s.path("kubelet.d"), 0o755))
	s.process("7", "kubelet", "--config="+s.path("kubelet/config.yaml"), "--config-dir", s.path("kubelet.d"))
}

// found returns the findings of tandem doctor, by ID.
func (s *sick) found() (ids []string) {
	s.t.Helper()
	_, stdout, stderr := run(s.command("-o", "json")...)
	var document doctor.Findings
	err := json.Unmarshal([]byte(stdout), &document)
	if err != nil || document.Findings == nil {
		s.t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	for _, f := range document.Findings {
		ids = append(ids, f.ID)
	}
	return ids
}

// TestDropIn: what is printed are the settings of deployments/kubelet/config.yaml. Nothing on the node
// changes, and with the file in place nothing is wrong with the kubelet but its CPU manager.
func TestDropIn(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, oci, 1))
	s.plainKubelet()
	before := s.files()
	printed := succeed(t, s.command("--drop-in")...)
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("tandem doctor changed something (-before +after):\n%s", diff)
	}
	shipped, err := os.ReadFile("../../deployments/kubelet/config.yaml")
	s.check(err)
	if diff := cmp.Diff(object(t, string(shipped)), object(t, printed)); diff != "" {
		t.Errorf("deployments/kubelet/config.yaml and the drop-in differ (-shipped +printed):\n%s", diff)
	}
	s.write("kubelet.d/tandem.conf", printed)
	if found := s.found(); !slices.Equal(found, []string{"cpu-manager"}) {
		t.Errorf("found %q", found)
	}
}

func object(t *testing.T, content string) (o map[string]any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(content), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestDropInStaticCPUs: with the printed settings, and without the state of the other policy, which doctor
// names, the kubelet starts.
func TestDropInStaticCPUs(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, oci, 1))
	s.plainKubelet()
	s.write("kubelet/config.yaml", kubeletKind)
	s.write("sys/devices/system/node/online", "0-8\n")
	s.write("kubelet.d/tandem.conf", succeed(t, s.command("--drop-in", "--static-cpus")...))
	if found := s.found(); !slices.Equal(found, []string{"cpu-state"}) {
		t.Errorf("found %q", found)
	}
	s.remove("kubelet/cpu_manager_state")
	if found := s.found(); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}
