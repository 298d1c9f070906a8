// SPDX-License-Identifier: Apache-2.0

//go:build !kubernetes135 && !kubernetes136

package dra_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/scheduler"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// Pods that know nothing of pairs, and ask for GPUs and VFs apart, get pairs when their claims are
// prepared: the scheduler's choice is mended, beside claims for pairs and for anything else. Nothing is
// handed out twice. Where VFs are too few for each GPU to have one of its own, the pairs are those that
// the scheduler's choice makes.
func TestUnchangedPods(t *testing.T) {
	for _, vfs := range []int{1, 2, 8} {
		for _, name := range machines.Names() {
			t.Run(fmt.Sprintf("%s/vfs=%d", name, vfs), func(t *testing.T) {
				t.Parallel()
				q := newMixed(t, name, vfs)
				for run := range max(1, *sequences/1000) {
					q.rng = rand.New(rand.NewPCG(*seed, uint64(run)))
					q.play(60)
				}
				t.Logf("of %d possible pairs %d on one switch as allocated, %d as prepared; %d of %d claims refused",
					q.all, q.before, q.after, q.refused, q.came)
				if q.reserved() && q.after < q.all {
					t.Errorf("%d of %d pairs, and each GPU has a VF", q.after, q.all)
				}
			})
		}
	}
}

// mixed is a node with claims of all kinds, which are prepared.
type mixed struct {
	t         *testing.T
	rng       *rand.Rand
	scheduler *scheduler.Scheduler
	preparer  *claims.Preparer
	state     claims.State
	classes   [2]string // of the machine's GPUs and VFs as extended resources
	live      []*resourceapi.ResourceClaim
	pod       *corev1.Pod // of the newest claim

	came, refused      int
	all, before, after int // pairs of unchanged pods: possible, as allocated, as prepared
}

func newMixed(t *testing.T, name string, vfsPerPF int) *mixed {
	t.Helper()
	m, err := node.Read(name, vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	gpus, known := classes(t).Of(m.GPUs[0].Resource)
	vfs, _ := classes(t).Of(pool.DefaultPool)
	if !known || len(m.VFs) == 0 {
		t.Skip("no class for these: partitions have other names, and who has them says so in the chart's values")
	}
	p := build(m, pool.Options{Counters: true, Taints: true})
	m.Pools = offer(m)
	told, err := gpu.Discover(silent{}, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return &mixed{
		t: t, state: claims.State{Machine: m, Pool: p}, classes: [2]string{gpus, vfs},
		scheduler: scheduler.New(scheduler.Publish(pool.Driver, p.Slices), classes(t), scheduler.Defaults()),
		preparer: claims.New(claims.Options{
			Dir: filepath.Join(dir, "plugin"), CDIDir: filepath.Join(dir, "cdi"), GPUs: told,
			Host: rdma.Host{
				Sys: everything{}, Dev: fstest.MapFS{},
				DevinfoDir: filepath.Join(dir, "devinfo"), PairsDir: filepath.Join(dir, "pairs"),
			},
			Log: slog.New(slog.DiscardHandler),
		}),
	}
}

// use has a pod with one container that uses all of a claim.
func (q *mixed) use(c *resourceapi.ResourceClaim) {
	q.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: c.UID}}
	q.pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "all", ResourceClaimName: &c.Name}}
	q.pod.Spec.Containers = []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "all"}}},
	}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{Resource: "pods", Name: q.pod.Name, UID: q.pod.UID},
	}
}

// silent are GPUs of which containers are told nothing.
type silent struct{}

func (silent) Discover() (gpu.Inventory, error)            { return gpu.Inventory{}, nil }
func (silent) Links() ([]topology.Link, error)             { return nil, nil }
func (silent) Refuse(string, []gpu.Device, []string) error { return nil }
func (silent) Edits([]gpu.Device) container.Edits {
	return container.Edits{Env: map[string]string{"GPU": "some"}}
}

// offer returns the VFs of a machine, in one pool.
func offer(m pool.Machine) []pools.Pool {
	p := pools.Pool{
		Name: pool.DefaultPool, Resource: &pools.ResourceConfig{Name: "rdma_vf", DeviceType: pools.NetDevice},
	}
	for _, vf := range m.VFs {
		p.Devices = append(p.Devices, vf.Device)
	}
	return []pools.Pool{p}
}

// everything is a sysfs in which nothing is gone.
type everything struct{ fstest.MapFS }

func (everything) Stat(string) (fs.FileInfo, error) { return fstest.MapFS{".": {}}.Stat(".") }

func (q *mixed) play(events int) {
	for range events {
		if len(q.live) > 0 && q.rng.IntN(5) < 2 {
			q.leave(q.rng.IntN(len(q.live)))
			continue
		}
		q.came++
		name := fmt.Sprintf("claim-%d", q.came)
		count := 1 + q.rng.IntN(4)
		switch q.rng.IntN(5) {
		case 0:
			q.come(claim.Spec{Pairs: count}.Claim(name))
		case 1:
			q.come(claim.Spec{GPUs: q.rng.IntN(2), VFs: 1}.Claim(name))
		default:
			q.come(claim.Unchanged(name, q.classes[0], count, q.classes[1], count))
		}
	}
	for len(q.live) > 0 {
		q.leave(0)
	}
}

// come has a claim allocated and prepared.
func (q *mixed) come(c *resourceapi.ResourceClaim) {
	c.UID = types.UID("uid-" + c.Name)
	result, _, err := q.scheduler.Within(found, c)
	if err != nil || result == nil {
		q.refused++ // that there was none is what TestRandomClaims looks at
		return
	}
	q.scheduler.Take(result)
	c.Status.Allocation = result
	q.use(c)
	pods := kubelet.Read([]*corev1.Pod{q.pod}, nil)
	if _, err := q.preparer.Prepare(q.state, []*resourceapi.ResourceClaim{c}, pods); err != nil {
		q.t.Fatalf("prepare %s: %v", c.Name, err)
	}
	q.live = append(q.live, c)
	q.check(c)
}

func (q *mixed) leave(i int) {
	c := q.live[i]
	err := q.preparer.Unprepare([]kubeletplugin.NamespacedObject{{
		NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, UID: c.UID,
	}})
	if err != nil {
		q.t.Fatalf("unprepare %s: %v", c.Name, err)
	}
	q.scheduler.Release(c.Status.Allocation)
	q.live = slices.Delete(q.live, i, i+1)
}

// check looks at all that is handed out, and counts the pairs of a claim that has come.
func (q *mixed) check(newest *resourceapi.ResourceClaim) {
	prepared, err := q.preparer.Prepared(q.state.Machine)
	if err != nil {
		q.t.Fatal(err)
	}
	holder := map[string]string{}
	for _, c := range prepared {
		var given, named [2][]string
		for _, d := range c.Devices {
			given[0], given[1] = append(given[0], d.GPUs...), append(given[1], d.VFs...)
			of := q.state.Pool.Devices[d.Device]
			named[0], named[1] = append(named[0], of.GPUs...), append(named[1], of.VFs...)
		}
		for _, id := range slices.Concat(given[0], given[1]) {
			if holder[id] != "" {
				q.t.Fatalf("%s is handed out to %s and to %s", id, holder[id], c.Name)
			}
			holder[id] = c.Name
		}
		if c.UID == newest.UID && newest.Spec.Devices.Requests[0].Name == "container-0-request-0" {
			q.all += min(len(given[0]), len(given[1]))
			q.before += q.pairs(named)
			q.after += q.pairs(given)
		}
	}
}

// pairs is how many GPUs can have a VF of their switch each.
func (q *mixed) pairs(ids [2][]string) (count int) {
	gpus, vfs := map[string]int{}, map[string]int{}
	for _, g := range q.state.Machine.GPUs {
		if slices.Contains(ids[0], g.ID) {
			gpus[g.Switch]++
		}
	}
	for _, vf := range q.state.Machine.VFs {
		if slices.Contains(ids[1], vf.ID) && vf.Switch != q.root(vf) {
			vfs[vf.Switch]++
		}
	}
	for on, n := range gpus {
		count += min(n, vfs[on])
	}
	return count
}

func (q *mixed) root(vf pool.VF) string {
	place, _ := q.state.Machine.Tree.Place(vf.Address)
	return place.RootComplex
}

// reserved reports whether each GPU has a VF of its own.
func (q *mixed) reserved() bool {
	vfs := map[string]string{}
	for _, d := range q.state.Pool.Devices {
		if d.Type == pool.TypePair {
			vfs[d.GPUs[0]] = d.VFs[0]
		}
	}
	for _, d := range q.state.Pool.Devices {
		if d.Type == pool.TypeVF && slices.Contains(slices.Collect(maps.Values(vfs)), d.VFs[0]) {
			return false
		}
	}
	return len(vfs) == len(q.state.Machine.GPUs)
}
