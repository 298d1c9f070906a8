// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/test/before"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// buildEarlier builds the daemons of the version before, once, and returns their folder.
var buildEarlier = sync.OnceValues(func() (string, error) {
	return before.Build("../../..", filepath.Join(scratch, "before"), "tandem-gpu", "tandem-rdma")
})

// TestUpgrade: from the version before to this one and back, the daemons in both orders, with running pods,
// and with restarts of a container, of the kubelet and of the node while one daemon is of each version and
// afterwards, with Tandem's default pool and with a stock pool. No device has two owners (package rig), no
// pod is refused or loses a device, pairs stay the best, and whoever serves reads the files that the other
// version left. Back, the version before sets the state file aside, because it refuses keys that it does not
// know: it continues from the kubelet's records, and past decisions are lost.
func TestUpgrade(t *testing.T) {
	earlier, err := buildEarlier()
	must(t, err)
	now := daemons(t)
	for name, way := range map[string]struct{ from, to string }{
		"there": {earlier, now}, "back": {now, earlier},
	} {
		for first, second := range map[string]string{rig.AMD: rig.VF, rig.VF: rig.AMD} {
			for _, pool := range []string{defaultPool, stockPool} {
				t.Run(name+", "+pool+", first "+first, func(t *testing.T) {
					t.Parallel()
					u := startUpgrade(t, way.from, pool)
					u.isBack = way.to == earlier
					u.admit("old")
					u.replace(first, way.to)
					u.admit("mixed")
					u.restartKubelet()
					u.restartNode()
					u.admit("mixed-restarted")
					u.replace(second, way.to)
					u.admit("new")
					u.restartKubelet()
					u.restartNode()
					u.admit("new-restarted")
				})
			}
		}
	}
}

// The pools of VFs: Tandem's own had the key excludeTopology in the version before, a stock pool never.
const defaultPool, stockPool = "default pool", "stock pool"

// upgrade is a node whose daemons are replaced.
type upgrade struct {
	*rig.Rig
	t      *testing.T
	pool   string
	isBack bool
	held   map[*v1.Pod]map[string][]string // devices, by resource
	given  map[*v1.Pod]node.Response       // to the container runtime
	files  map[string]string               // pairs files of containers
	told   []*v1.Pod                       // admitted since the start of the node
}

func startUpgrade(t *testing.T, bin, pool string) *upgrade {
	t.Helper()
	r := startRig(t, rig.Setup{
		Bin: bin, Machine: "oci-mi300x-derived", VFsPerPF: 4, ExcludeTopology: true, Auto: leavesToNode(pool, bin),
		Coordinated: true, PodsAPI: true,
	})
	return &upgrade{
		Rig: r, t: t, pool: pool, held: map[*v1.Pod]map[string][]string{}, given: map[*v1.Pod]node.Response{},
		files: map[string]string{},
	}
}

// leavesToNode reports whether a pool has no key excludeTopology in a version.
func leavesToNode(pool, bin string) bool {
	return pool == stockPool || filepath.Base(filepath.Dir(bin)) != "before"
}

// admit admits a pod, which has to get the best pairs, and remembers what it has.
func (u *upgrade) admit(name string) {
	u.t.Helper()
	pod := shape{app: []want{{1, 1}}}.pod(name, u.GPU)
	pod.Annotations = map[string]string{intent.AlignmentKey: string(intent.Required)}
	placements, err := u.Admit(deadline(u.t), pod)
	must(u.t, err)
	for _, p := range placements {
		if p.Pairs != p.Best {
			u.t.Errorf("pod %s: pairs %v, want %v\n%s", name, p.Pairs, p.Best, pair.Text(p.Log))
		}
	}
	u.told = append(u.told, pod)
	u.held[pod] = u.Node.Devices(pod, "app-0")
	u.given[pod] = u.response(pod)
	for _, file := range u.given[pod].Mounts {
		u.files[file] = u.read(file)
	}
	file, err := pairs.Read(u.given[pod].Mounts["/run/tandem/pairs.json"])
	must(u.t, err)
	if p := placements[0]; len(file.Pairs) != 1 || file.Pairs[0].GPU == nil ||
		file.Pairs[0].GPU.ID != p.GPUs[0].ID || file.Pairs[0].VF.ID != p.VFs[0].ID {
		u.t.Errorf("pod %s: pairs file %+v, devices %v, %v", name, file.Pairs, p.GPUs, p.VFs)
	}
	u.check()
}

// response is what the kubelet gives the container runtime for each start of a pod's container.
func (u *upgrade) response(pod *v1.Pod) node.Response {
	u.t.Helper()
	response, err := u.Node.Response(deadline(u.t), pod, "app-0")
	must(u.t, err)
	slices.Sort(response.DeviceNodes) // the kubelet visits resources in a random order
	return response
}

// read returns the content of a file that is mounted into a container, "" for what is not a file.
func (u *upgrade) read(name string) string {
	u.t.Helper()
	info, err := os.Stat(name)
	must(u.t, err)
	if !info.Mode().IsRegular() {
		return ""
	}
	content, err := os.ReadFile(name)
	must(u.t, err)
	return string(content)
}

// replace stops the daemon of a resource and starts the one of another version.
func (u *upgrade) replace(resource, bin string) {
	u.t.Helper()
	which := &u.Pair.GPU
	if resource != u.GPU {
		which = &u.Pair.RDMA
		must(u.t, u.Configure(leavesToNode(u.pool, bin)))
	}
	must(u.t, (*which).Stop())
	*which = (*which).From(bin)
	must(u.t, (*which).Start())
	must(u.t, u.WaitReady(deadline(u.t)))
	u.check()
}

// restartKubelet restarts the kubelet, which admits its pods again.
func (u *upgrade) restartKubelet() {
	u.t.Helper()
	refused, err := u.Node.Restart()
	must(u.t, err)
	if len(refused) > 0 {
		u.t.Errorf("%d pods are refused by the restarted kubelet", len(refused))
	}
	must(u.t, u.WaitReady(deadline(u.t)))
	u.check()
}

// restartNode kills all and empties the run folder, as a reboot does with a folder in memory. The containers
// start again with the kubelet's recorded answers.
func (u *upgrade) restartNode() {
	u.t.Helper()
	u.forget()
	u.told = nil
	_, err := u.Node.Restart()
	must(u.t, err)
	must(u.t, u.Pair.RDMA.Start())
	must(u.t, u.Pair.GPU.Start())
	must(u.t, u.WaitReady(deadline(u.t)))
	u.check()
}

// forget kills the daemons and empties the run folder.
func (u *upgrade) forget() {
	u.t.Helper()
	must(u.t, errors.Join(u.Pair.GPU.Kill(), u.Pair.RDMA.Kill()))
	names, err := filepath.Glob(filepath.Join(u.RunDir(), "*"))
	must(u.t, err)
	for _, name := range names {
		must(u.t, os.RemoveAll(name))
	}
}

// bootKey is the boot of a pairs file, which the version before does not write.
var bootKey = regexp.MustCompile(`,\s*"boot": "[^"]*"`)

// check compares every pod's devices with those that it got, what its container is started with, and what the
// coordinator knows.
func (u *upgrade) check() {
	u.t.Helper()
	for pod, held := range u.held {
		if diff := cmp.Diff(held, u.Node.Devices(pod, "app-0")); diff != "" {
			u.t.Errorf("devices of pod %s (-before +now):\n%s", pod.Name, diff)
		}
		if diff := cmp.Diff(u.given[pod], u.response(pod)); diff != "" {
			u.t.Errorf("start of a container of pod %s (-before +now):\n%s", pod.Name, diff)
		}
	}
	for file, content := range u.files {
		now := bootKey.ReplaceAllString(u.read(file), "")
		if diff := cmp.Diff(bootKey.ReplaceAllString(content, ""), now); diff != "" {
			u.t.Errorf("%s (-before +now):\n%s", file, diff)
		}
	}
	u.checkState()
	status, err := u.Status(deadline(u.t))
	must(u.t, err)
	for _, resource := range status.GetResources() {
		owners := u.Owners(resource.GetName())
		for _, d := range resource.GetDevices() {
			if id := d.GetDevice().GetId(); owners[id] != "" && !d.GetAllocated() {
				u.t.Errorf("%s of pod %s is free to the coordinator", id, owners[id])
			}
		}
	}
}

// checkState checks that whoever serves has the state that the other version left, but for one file on the
// way back.
func (u *upgrade) checkState() {
	u.t.Helper()
	bad, err := filepath.Glob(filepath.Join(u.RunDir(), "*.bad"))
	must(u.t, err)
	if u.isBack {
		isState := func(name string) bool { return filepath.Base(name) == "coordinator.json.bad" }
		bad = slices.DeleteFunc(bad, isState)
	}
	if len(bad) > 0 {
		u.t.Errorf("files of the other version are set aside: %v", bad)
	}
	for _, pod := range u.told {
		answer, err := coordination.Explain(deadline(u.t), u.RunDir(), pod.Namespace, pod.Name, "")
		if len(answer.GetDecisions()) == 0 && !u.isBack {
			u.t.Errorf("the decisions about pod %s are not in the files of the other version: %v", pod.Name, err)
		}
	}
}
