// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/util/codec"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

// head is the beginning of each file of the kubelet's configuration.
const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// TestDoctorRefusesAsTheKubelet: whether a request is refused on an empty node, and on which NUMA nodes it
// comes to lie, is what the real managers decide: for every shape up to 8+8, 1 and 8 VFs per PF, with and
// without NUMA hints for VFs, on every recorded machine; and for as many GPUs as VFs with the CPUs that
// containers of guaranteed pods ask for, fewer and more than a NUMA node has, while CPU 0 is reserved.
func TestDoctorRefusesAsTheKubelet(t *testing.T) {
	const most = 8
	for _, machine := range machines.Names() {
		for _, perPF := range []int{1, most} {
			for _, exclude := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d VFs per PF, VFs without NUMA %t", machine, perPF, exclude), func(t *testing.T) {
					t.Parallel() // the kubelet waits for the disk most of the time
					n := examined(t, machine, perPF, exclude)
					numa, err := node.ReadNUMA(n.Sys, n.Tree.NUMANodes())
					must(t, err)
					options, counts := node.Options{NUMA: numa}, []int{0}
					if cpus := len(numa[0].CPUs); cpus > 0 {
						options.ReservedCPUs, n.KubeletDir = "0", t.TempDir()
						config := head + "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n"
						must(t, os.WriteFile(filepath.Join(n.KubeletDir, "config.yaml"), []byte(config), 0o600))
						counts = append(counts, 1, cpus/2, cpus-1, cpus, cpus+1, cpus*len(numa)-1, cpus*len(numa))
					}
					kubelet := startExamined(t, n, options)
					for _, n.CPUs = range counts {
						for gpus := 1; gpus <= min(most, len(n.GPUs)); gpus++ {
							for vfs := 1; vfs <= min(most, len(n.VFs[0].Devices)); vfs++ {
								if n.CPUs == 0 || gpus == vfs {
									compareShape(t, n, kubelet, gpus, vfs)
								}
							}
						}
					}
				})
			}
		}
	}
}

// examined is a machine as the doctor is told of it.
func examined(t *testing.T, name string, perPF int, exclude bool) doctor.Node {
	t.Helper()
	sys, tree := machines.Read(t, name, perPF)
	var lists [2][]model.Device // GPUs, VFs
	for i, resource := range published.Resources(tree, !exclude) {
		for _, d := range resource.Devices {
			lists[i] = append(lists[i], model.Device{Device: d.Placed(), NUMA: d.NUMA})
		}
	}
	return doctor.Node{
		Sys: sys, Tree: tree, GPUs: lists[0], VFs: []model.Resource{{Kind: model.VF, Devices: lists[1]}},
	}
}

// startExamined starts a kubelet that knows the GPUs and VFs.
func startExamined(t *testing.T, n doctor.Node, options node.Options) *node.Node {
	t.Helper()
	kubelet, dir := startNode(t, options)
	for resource, devices := range map[string][]model.Device{fakeGPU: n.GPUs, fakeVF: n.VFs[0].Devices} {
		plugin := &fakePlugin{resource: resource}
		for _, d := range devices {
			plugin.devices = append(plugin.devices, node.Device(d.ID, true, d.NUMA))
		}
		plugin.prefer = func(available, _ []string, size int) []string { return available[:size] }
		plugin.offer(t, kubelet, dir)
	}
	return kubelet
}

// compareShape compares what the kubelet does with a request with what the doctor says.
func compareShape(t *testing.T, n doctor.Node, kubelet *node.Node, gpus, vfs int) {
	t.Helper()
	nodes, admitted := n.Affinity(gpus, vfs)
	container := node.Container("main", map[string]int{fakeGPU: gpus, fakeVF: vfs})
	if n.CPUs > 0 { // of a guaranteed pod
		container.Resources.Limits[v1.ResourceCPU] = *resource.NewQuantity(int64(n.CPUs), resource.DecimalSI)
		container.Resources.Limits[v1.ResourceMemory] = resource.MustParse("1Gi")
	}
	pod := node.Pod(fmt.Sprintf("pod-%d-%d", gpus, vfs), nil, []v1.Container{container})
	err := kubelet.Admit(pod)
	var rejection *node.Rejection
	if err != nil && !errors.As(err, &rejection) {
		t.Fatal(err)
	}
	if admitted != (err == nil) {
		t.Errorf("%d+%d with %d CPUs: the kubelet says %v, the doctor admitted %t",
			gpus, vfs, n.CPUs, err, admitted)
	}
	if err != nil {
		return
	}
	if given := kubelet.Affinity(pod, "main"); admitted && len(nodes) > 0 {
		if diff := cmp.Diff(given, nodes); diff != "" {
			t.Errorf("%d+%d: NUMA nodes (-kubelet +doctor):\n%s", gpus, vfs, diff)
		}
	}
	must(t, kubelet.Remove(pod))
}

// kubeletConfigs are configurations as installers write them.
var kubeletConfigs = map[string]string{
	"kubeadm": `apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
evictionPressureTransitionPeriod: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  verbosity: 0
staticPodPath: /etc/kubernetes/manifests
`,
	"policy none, with options": `kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
topologyManagerPolicy: none # not yet
topologyManagerScope: "pod"
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "false"}
featureGates: {}
kubeReserved: {cpu: 500m, memory: 1Gi}
`,
	"nothing": head,
	"reserved by a cgroup": head + `systemReserved: {memory: 2Gi}
systemReservedCgroup: /system.slice
enforceNodeAllocatable: [pods, system-reserved]
`,
	"an option that there is not": head + "topologyManagerPolicyOptions: {near: \"true\"}\n",
	"JSON of a cloud": `{
  "kind": "KubeletConfiguration",
  "apiVersion": "kubelet.config.k8s.io/v1beta1",
  "address": "0.0.0.0",
  "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
  "kubeReserved": {"cpu": "110m", "memory": "1065Mi"},
  "maxPods": 110,
  "serializeImagePulls": false
}`,
}

// dropIn returns what doctor prints, or the same settings where it prints none, and why doctor says that the
// kubelet does not start with them in place.
func dropIn(t *testing.T, n doctor.Node, staticCPUs bool) (printed string, refused error) {
	t.Helper()
	before := n
	printed, refused = before.DropIn(staticCPUs)
	if refused != nil {
		return head + "cpuManagerPolicy: static\nreservedSystemCPUs: \"0,56\"\n", refused
	}
	must(t, os.WriteFile(filepath.Join(n.ConfigDir, "tandem.conf"), []byte(printed), 0o600))
	for _, found := range n.Refusals() {
		refused = errors.Join(refused, errors.New(found.Summary))
	}
	return printed, refused
}

// TestKubeletTakesDropIn: the kubelet's own decoder, validation and Topology Manager take the drop-in that
// doctor prints, with nothing else changed; and where doctor says that they do not, they do not.
func TestKubeletTakesDropIn(t *testing.T) {
	sys, tree := machines.Read(t, "oci-mi300x-derived", 1)
	printed := map[bool]int{}
	for name, before := range kubeletConfigs {
		for _, staticCPUs := range []bool{false, true} {
			n := doctor.Node{Sys: sys, Tree: tree, KubeletDir: t.TempDir(), ConfigDir: t.TempDir()}
			must(t, os.WriteFile(filepath.Join(n.KubeletDir, "config.yaml"), []byte(before), 0o600))
			patch, refused := dropIn(t, n, staticCPUs)
			after := decode(t, merged(t, before, patch))
			if err := takes(t, n, after); (err == nil) != (refused == nil) {
				t.Errorf("%s, CPUs %t: doctor says %v, the kubelet %v", name, staticCPUs, refused, err)
			}
			if printed[refused == nil]++; refused != nil {
				continue
			}
			want := decode(t, before)
			want.TopologyManagerPolicy, want.TopologyManagerScope = "restricted", "container"
			want.TopologyManagerPolicyOptions = map[string]string{"prefer-closest-numa-nodes": "true"}
			if staticCPUs {
				want.CPUManagerPolicy = "static"
				if want.KubeReserved["cpu"] == "" {
					want.ReservedSystemCPUs = "0,56"
				}
			}
			if diff := cmp.Diff(want, after); diff != "" {
				t.Errorf("%s, CPUs %t (-want +got):\n%s", name, staticCPUs, diff)
			}
		}
	}
	if printed[true] == 0 || printed[false] == 0 {
		t.Errorf("taken and refused: %v", printed)
	}
}

// TestDropInOfManyNodes: the kubelet's Topology Manager starts with what is printed for 34 NUMA nodes.
func TestDropInOfManyNodes(t *testing.T) {
	const nodes = 34
	dir := t.TempDir()
	sys := os.DirFS(dir)
	must(t, os.CopyFS(dir, machines.Sys(t, "oci-mi300x-derived", 1)))
	list := filepath.Join(dir, "devices/system/node/online")
	must(t, os.Remove(list))
	must(t, os.WriteFile(list, fmt.Appendf(nil, "0-%d\n", nodes-1), 0o600))
	tree, err := topology.Read(sys)
	must(t, err)
	n := doctor.Node{Sys: sys, Tree: tree, KubeletDir: t.TempDir(), ConfigDir: t.TempDir()}
	must(t, os.WriteFile(filepath.Join(n.KubeletDir, "config.yaml"), []byte(head), 0o600))
	printed, refused := dropIn(t, n, false)
	if refused != nil {
		t.Errorf("doctor says %v", refused)
	}
	if err := takes(t, n, decode(t, printed)); err != nil {
		t.Errorf("%v\n%s", err, printed)
	}
	without := decode(t, head+"topologyManagerPolicy: restricted\n"+
		"topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\"}\n")
	if err := takes(t, n, without); err == nil {
		t.Error("the kubelet takes 34 NUMA nodes without the option")
	}
}

// takes says why the kubelet would not start with a configuration on a machine.
func takes(t *testing.T, n doctor.Node, c *kubeletconfig.KubeletConfiguration) error {
	t.Helper()
	c = c.DeepCopy()
	c.FailCgroupV1 = false // which is about the machine that the test runs on
	if err := validation.ValidateKubeletConfiguration(c, utilfeature.DefaultFeatureGate); err != nil {
		return err
	}
	var numa []node.NUMA
	nodes := n.Tree.NUMANodes()
	for i := range nodes {
		numa = append(numa, node.NUMA{ID: i, Distances: slices.Repeat([]uint64{10}, len(nodes))})
	}
	dir, err := os.MkdirTemp(scratch, "")
	must(t, err)
	started, err := node.Start(dir, node.Options{
		NUMA: numa, Policy: c.TopologyManagerPolicy, Scope: c.TopologyManagerScope,
		PolicyOptions: c.TopologyManagerPolicyOptions,
	})
	if err != nil {
		return err
	}
	return started.Stop()
}

// merged is a configuration with a drop-in, as the kubelet merges them: RFC 7386
// (mergeKubeletConfigurations in cmd/kubelet/app/server.go).
func merged(t *testing.T, config, dropIn string) string {
	t.Helper()
	var base, patch map[string]any
	must(t, yaml.Unmarshal([]byte(config), &base))
	must(t, yaml.Unmarshal([]byte(dropIn), &patch))
	var merge func(into, from map[string]any)
	merge = func(into, from map[string]any) {
		for key, value := range from {
			outer, isObject := into[key].(map[string]any)
			if inner, also := value.(map[string]any); isObject && also {
				merge(outer, inner)
			} else {
				into[key] = value
			}
		}
	}
	merge(base, patch)
	content, err := yaml.Marshal(base)
	must(t, err)
	return string(content)
}

func decode(t *testing.T, config string) *kubeletconfig.KubeletConfiguration {
	t.Helper()
	_, codecs, err := kubeletscheme.NewSchemeAndCodecs()
	must(t, err)
	decoded, err := codec.DecodeKubeletConfiguration(t.Context(), codecs, []byte(config))
	if err != nil {
		t.Fatalf("%v:\n%s", err, config)
	}
	return decoded
}
