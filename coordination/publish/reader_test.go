// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// empty is the sysfs of a machine without devices.
func empty() fstest.MapFS {
	return fstest.MapFS{"bus/pci/devices": &fstest.MapFile{Mode: fs.ModeDir | 0o755}}
}

// system is the sysfs of a machine without PCI devices, with files below devices/system.
func system(files map[string]string) fstest.MapFS {
	sys := empty()
	for name, content := range files {
		sys["devices/system/"+name] = &fstest.MapFile{Data: []byte(content + "\n")}
	}
	return sys
}

// readerOf returns a reader of a machine, and what it reads.
func readerOf(t *testing.T, sys fs.FS, log *slog.Logger) func() publish.Facts {
	t.Helper()
	tree, err := topology.Read(sys)
	if err != nil {
		t.Fatal(err)
	}
	r := publish.NewReader(publish.Config{Sys: sys, KubeletDir: t.TempDir(), Log: log})
	return func() publish.Facts { return r.Read(t.Context(), admission.Announced{Tree: tree}) }
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// kubeletOf returns a kubelet's folder with configuration files, and a reader.
func kubeletOf(
	t *testing.T, configz func(context.Context) ([]byte, error),
) (string, *publish.Reader, *bytes.Buffer) {
	t.Helper()
	dir, log := t.TempDir(), &bytes.Buffer{}
	if err := published.WriteCheckpoint(dir); err != nil {
		t.Fatal(err)
	}
	return dir, publish.NewReader(publish.Config{
		Sys: empty(), KubeletDir: dir, Configz: configz, Log: slog.New(slog.NewTextHandler(log, nil)),
		Files: kubelet.ConfigFiles{
			Config: filepath.Join(dir, "config.yaml"), Dir: filepath.Join(dir, "kubelet.conf.d"),
		},
	}), log
}

func policy(t *testing.T, r *publish.Reader) v1alpha1.Kubelet {
	t.Helper()
	return r.Read(t.Context(), admission.Announced{Tree: topology.Assemble(nil, nil, nil)}).Spec.Kubelet
}

// TestFiles: drop-ins override the configuration, in the order of their names, and unset values are the
// kubelet's defaults.
func TestFiles(t *testing.T) {
	dir, r, log := kubeletOf(t, nil)
	write(t, filepath.Join(dir, "config.yaml"), header+"topologyManagerPolicy: best-effort\n"+
		"topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\"}\ncpuManagerPolicy: static\n")
	write(t, filepath.Join(dir, "kubelet.conf.d", "20.conf"), header+"topologyManagerPolicy: restricted\n")
	write(t, filepath.Join(dir, "kubelet.conf.d", "10.conf"),
		header+"topologyManagerPolicy: none\nkubeReserved: {cpu: 500m}\n"+
			"systemReserved: {cpu: \"1.2\", memory: 1Gi}\n")
	want := v1alpha1.Kubelet{
		TopologyManagerPolicy: "restricted", TopologyManagerScope: "container",
		TopologyManagerPolicyOptions: map[string]string{"prefer-closest-numa-nodes": "true"},
		CPUManagerPolicy:             "static", ReservedCPUs: 2, MemoryManagerPolicy: "None",
	}
	if diff := cmp.Diff(want, policy(t, r)); diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, log)
	}
}

// TestCores: the CPUs of each core and the socket come from sysfs.
func TestCores(t *testing.T) {
	files := map[string]string{
		"node/online": "0-1", "node/node0/cpulist": "0-1,4-5", "node/node1/cpulist": "2-3,6-7",
	}
	for cpu := range 8 {
		dir := fmt.Sprintf("cpu/cpu%d/topology/", cpu)
		files[dir+"thread_siblings_list"] = fmt.Sprintf("%d,%d", cpu%4, cpu%4+4)
		files[dir+"physical_package_id"] = "0"
	}
	nodes := readerOf(t, system(files), slog.New(slog.DiscardHandler))().NUMANodes
	want := []v1alpha1.NUMANode{
		{Number: 0, CPUs: "0-1,4-5", Cores: []v1alpha1.Set{"0,4", "1,5"}},
		{Number: 1, CPUs: "2-3,6-7", Cores: []v1alpha1.Set{"2,6", "3,7"}, Socket: new(0)},
	}
	if diff := cmp.Diff(want, nodes); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestUnknownPolicy: without a configuration the policy is empty, with one line in the log.
func TestUnknownPolicy(t *testing.T) {
	_, r, log := kubeletOf(t, nil)
	for range 3 {
		if diff := cmp.Diff(v1alpha1.Kubelet{}, policy(t, r)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	if text := log.String(); strings.Count(text, "--kubelet-config") != 1 || strings.Count(text, "WARN") != 1 {
		t.Errorf("log:\n%s", text)
	}
}

// TestConfigz: the kubelet's own answer overrides its files, which count while there is no answer. It is
// requested again after a restart.
func TestConfigz(t *testing.T) {
	var answer string
	asked := 0
	dir, r, log := kubeletOf(t, func(context.Context) ([]byte, error) {
		asked++
		if answer == "" {
			return nil, errors.New("403 Forbidden")
		}
		return []byte(answer), nil
	})
	write(t, filepath.Join(dir, "config.yaml"), header+"topologyManagerPolicy: restricted\n")
	for range 2 {
		if got := policy(t, r).TopologyManagerPolicy; got != "restricted" {
			t.Errorf("policy %q", got)
		}
	}
	if strings.Count(log.String(), "403 Forbidden") != 1 {
		t.Errorf("log:\n%s", log)
	}
	answer = `{"kubeletconfig":{"topologyManagerPolicy":"single-numa-node","topologyManagerScope":"pod"}}`
	before := asked
	for range 3 {
		if got := policy(t, r); got.TopologyManagerPolicy != "single-numa-node" ||
			got.TopologyManagerScope != "pod" {
			t.Errorf("policy %+v", got)
		}
	}
	if asked != before+1 {
		t.Errorf("asked %d times", asked-before)
	}
	answer = `{"kubeletconfig":{"topologyManagerPolicy":"none"}}`
	r.Restarted()
	if got := policy(t, r).TopologyManagerPolicy; got != "none" {
		t.Errorf("policy %q after the restart", got)
	}
	answer = `{"somethingelse":{}}`
	r.Restarted()
	if got := policy(t, r).TopologyManagerPolicy; got != "restricted" {
		t.Errorf("policy %q where the answer has none", got)
	}
	if err := os.Remove(filepath.Join(dir, "config.yaml")); err != nil {
		t.Fatal(err)
	}
	if got := policy(t, r).TopologyManagerPolicy; got != "none" {
		t.Errorf("policy %q where only an earlier answer is known", got)
	}
}

// TestMissedRestart: a changed policy is detected without a reported restart, and the kubelet's own answer
// stays valid while there is no new one.
func TestMissedRestart(t *testing.T) {
	answer := `{"kubeletconfig":{"topologyManagerPolicy":"none"}}`
	dir, r, log := kubeletOf(t, func(context.Context) ([]byte, error) {
		if answer == "" {
			return nil, errors.New("not now")
		}
		return []byte(answer), nil
	})
	write(t, filepath.Join(dir, "config.yaml"), header+"topologyManagerPolicy: best-effort\n")
	for _, step := range []struct{ answer, want string }{
		{answer, "none"},
		{"", "none"},
		{`{"kubeletconfig":{"topologyManagerPolicy":"restricted"}}`, "restricted"},
	} {
		answer = step.answer
		r.Recheck()
		for range 2 {
			if got := policy(t, r).TopologyManagerPolicy; got != step.want {
				t.Errorf("answer %q: policy %q, want %s\n%s", step.answer, got, step.want, log)
			}
		}
	}
	dir, r, log = kubeletOf(t, nil)
	for _, want := range []string{"none", "restricted"} {
		write(t, filepath.Join(dir, "config.yaml"), header+"topologyManagerPolicy: "+want+"\n")
		r.Recheck()
		if got := policy(t, r).TopologyManagerPolicy; got != want {
			t.Errorf("policy %q, want %s\n%s", got, want, log)
		}
	}
}

// TestUnreadNUMA: what sysfs does not tell at the moment is complained of once, and read as soon as it can
// be.
func TestUnreadNUMA(t *testing.T) {
	for _, file := range []string{
		"node/node0/cpulist", "node/node0/meminfo", "cpu/cpu1/topology/physical_package_id",
		"cpu/cpu1/topology/thread_siblings_list",
	} {
		sys := system(map[string]string{
			"node/online": "0", "node/node0/cpulist": "0-1", "node/node0/meminfo": "Node 0 MemTotal:  1024 kB",
			"cpu/cpu0/topology/physical_package_id": "0", "cpu/cpu0/topology/thread_siblings_list": "0-1",
			"cpu/cpu1/topology/physical_package_id": "0", "cpu/cpu1/topology/thread_siblings_list": "0-1",
		})
		var log bytes.Buffer
		read := readerOf(t, sys, slog.New(slog.NewTextHandler(&log, nil)))
		whole := sys["devices/system/"+file]
		sys["devices/system/"+file] = &fstest.MapFile{Mode: fs.ModeDir}
		for range 2 {
			read()
		}
		n := strings.Count(log.String(), "NUMA nodes not read")
		if n != 1 || !strings.Contains(log.String(), file) {
			t.Errorf("%s: %d complaints: %s", file, n, &log)
		}
		sys["devices/system/"+file] = whole
		want := []v1alpha1.NUMANode{{
			CPUs: "0-1", Cores: []v1alpha1.Set{"0-1"}, Memory: map[string]v1alpha1.Memory{"memory": {Total: 1 << 20}},
		}}
		if diff := cmp.Diff(want, read().NUMANodes); diff != "" {
			t.Errorf("%s: -want +got:\n%s", file, diff)
		}
	}
}

func TestNUMA(t *testing.T) {
	got := readerOf(t, system(map[string]string{
		"node/online": "0-1", "node/node0/cpulist": "0-3", "node/node0/distance": "10 21",
		"node/node0/meminfo": "Node 0 MemTotal:       131072 kB\nNode 0 MemFree:  1 kB",
		"cpu/online":         "0-7", "node/node1/cpulist": "4-7", "node/node1/distance": "21 10 30",
	}), slog.New(slog.DiscardHandler))().NUMANodes
	want := []v1alpha1.NUMANode{
		{Number: 0, Distances: []int{10, 21}, CPUs: "0-3",
			Memory: map[string]v1alpha1.Memory{"memory": {Total: 128 << 20}}},
		{Number: 1, CPUs: "4-7"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
