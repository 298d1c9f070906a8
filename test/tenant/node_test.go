// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/programs"
)

// Programs and their resources.
const (
	gpuProgram, vfProgram = "tandem-gpu", "tandem-rdma"
	gpuName, vfName       = "amd.com/gpu", "tandem.dev/rdma_vf"
)

// Sources of requests.
const (
	podsAPI = "pods-api"
	https   = "kubelet"
)

// node is a recorded machine with the kubelet of a test and the daemons of the manifests.
type node struct {
	pods

	dir     string
	flags   []string
	kubelet *kubelettest.Kubelet
	daemons map[string]*daemon             // by program
	plugins map[string]*kubelettest.Plugin // by resource
	ids     map[string][]string            // all devices of a resource
	asked   int                            // pods that were admitted or refused
}

// daemon is a running program.
type daemon struct{ *programs.Process }

// start starts the programs on a machine with one VF for each PF, after a change of its sysfs. The daemons
// read requests from a source.
func start(t testing.TB, source string, change func(sys string), names ...string) *node {
	t.Helper()
	root := machines.Sys(t, "oci-mi300x-derived", 1)
	n := &node{
		dir: kubelettest.Dir(t), daemons: map[string]*daemon{}, plugins: map[string]*kubelettest.Plugin{},
		ids: map[string][]string{},
	}
	config := `{"resourceList": [{"resourceName": "rdma_vf", "resourcePrefix": "tandem.dev",
		"selectors": {"vendors": ["15b3"]}, "tandem": {"pairs": true}}]}`
	if err := errors.Join(os.CopyFS(n.path("sys"), root), os.Mkdir(n.path("dev"), 0o700),
		os.WriteFile(n.path("config.json"), []byte(config), 0o600)); err != nil {
		t.Fatal(err)
	}
	change(n.path("sys"))
	n.flags = n.serve(t, n.dir, source)
	n.kubelet = kubelettest.Start(t, n.dir)
	n.record(t, nil)
	for _, name := range names {
		n.run(t, name)
	}
	return n
}

func unchanged(string) {}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// run starts a program and waits until its resource has devices.
func (n *node) run(t testing.TB, program string) {
	t.Helper()
	args := append([]string{
		"--sysfs-root=" + n.path("sys"), "--dev-root=" + n.path("dev"), "--kubelet-dir=" + n.dir,
		"--run-dir=" + n.path("run"), "--metrics-bind-address=127.0.0.1:0",
	}, n.flags...)
	if program == vfProgram {
		args = append(args, "--config-file="+n.path("config.json"), "--devinfo-dir="+n.path("devinfo"))
	}
	command := programs.Command(t, program, args...)
	command.Env = append(os.Environ(), manifest(t, program).environment()...)
	started := programs.Start(t, command)
	n.daemons[program] = &daemon{started}
	t.Cleanup(started.Kill) // it may be busy for minutes
	plugin := kubelettest.Await(t, n.kubelet.Plugins)
	name := plugin.Request.GetResourceName()
	n.plugins[name] = plugin
	for _, d := range kubelettest.Await(t, plugin.Lists) {
		n.ids[name] = append(n.ids[name], d.GetID())
	}
}

// prefer asks for one of the devices.
func (n *node) prefer(t testing.TB, resource string, available []string) (id string) {
	t.Helper()
	chosen, err := n.plugins[resource].Prefer(t.Context(), available, nil, 1)
	if err != nil || len(chosen) != 1 || !slices.Contains(available, chosen[0]) {
		t.Fatalf("%s: chosen %v of %v, %v", resource, chosen, available, err)
	}
	return chosen[0]
}

// newName returns the name of the next pod.
func (n *node) newName() string {
	n.asked++
	return fmt.Sprint("training-", n.asked)
}
