// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
)

// placed is the first pool of a recorded machine, offered with a coordinator.
type placed struct {
	*Plugin
	node *coordination.Node
	free []string
}

func place(t testing.TB, machine, list string) *placed {
	t.Helper()
	return placeWith(t, machine, list, coordination.Config{})
}

// placeWith is place with more of the coordinator's configuration.
func placeWith(t testing.TB, machine, list string, config coordination.Config) *placed {
	t.Helper()
	files := machines.Sys(t, machine, 0)
	root := filepath.Join(t.TempDir(), "sys")
	if err := os.CopyFS(root, files); err != nil {
		t.Fatal(err)
	}
	dir, log := kubelettest.Dir(t), slog.New(slog.DiscardHandler)
	config.RunDir, config.SysRoot, config.KubeletDir, config.Log = filepath.Join(dir, "run"), root, dir, log
	node, err := coordination.New(config)
	if err != nil {
		t.Fatal(err)
	}
	vfs := find(t, files, list, "nvidia.com", nil)
	name := vfs.Names()[0]
	host := Host{
		Sys: files, Dev: os.DirFS(dir), DevinfoDir: filepath.Join(dir, "dp"),
		PairsDir: filepath.Join(config.RunDir, "pairs"),
	}
	p := &placed{Plugin: NewPlugin(name, vfs, host, node.Member(name, device.VF), log), node: node}
	pool, _ := vfs.latestPool(name)
	p.free = ids(pool)
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	known := make(chan struct{}, 1)
	g.Go(func() error { return node.Run(ctx) })
	g.Go(func() error {
		return p.Watch(ctx, func([]deviceplugin.Device) { known <- struct{}{} })
	})
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	kubelettest.Await(t, known)
	return p
}

// take is what the kubelet does for a container. It returns the different addresses that the container is
// told.
func (p *placed) take(t *testing.T, size int) []string {
	t.Helper()
	chosen := choose(t, p, p.name, p.free, nil, uint32(size))
	answer, err := p.Allocate(t.Context(), chosen)
	if err != nil || len(chosen) != size {
		t.Fatalf("take %d of %s: %v, %v", size, p.name, chosen, err)
	}
	taken := func(id string) bool { return slices.Contains(chosen, id) }
	p.free = slices.DeleteFunc(slices.Clone(p.free), taken)
	told := strings.Split(answer.Env["PCIDEVICE_RDMA_HCA"], ",")
	slices.Sort(told)
	return slices.Compact(told)
}

func everyHCA(replicas int) string {
	const all = `{"resourceName": "hca", "rdmaHcaMax": %d, "selectors": {"vendors": ["15b3"]}}`
	return sharing(fmt.Sprintf(all, replicas))
}

// Where nearness says nothing replicas are spread over HCAs: those of one container, and those of many.
func TestSharedHCAsAreSpread(t *testing.T) {
	p := place(t, "oci-mi300x-derived", everyHCA(4))
	if hcas := p.take(t, 8); len(hcas) != 8 {
		t.Errorf("eight replicas are of %v", hcas)
	}
	for round := range 3 {
		count := map[string]int{}
		for range 8 {
			count[p.take(t, 1)[0]]++
		}
		if len(count) != 8 {
			t.Errorf("round %d: containers have HCAs %v", round, count)
		}
	}
	if len(p.free) > 0 {
		t.Errorf("left: %v", p.free)
	}
}

// A container gets two replicas of an HCA where no other HCA is free.
func TestTwoReplicasOfOneHCA(t *testing.T) {
	p := place(t, "oci-mi300x-derived",
		sharing(`{"resourceName": "hca", "rdmaHcaMax": 2, "devices": ["rdma0", "rdma1"]}`))
	if hcas := p.take(t, 3); len(hcas) != 2 {
		t.Errorf("three replicas are of %v", hcas)
	}
}

// The stock plugin's example shares an HCA 1000 times: as fast as the kubelet has to be answered.
func BenchmarkPrefer8000Replicas(b *testing.B) {
	p := place(b, "oci-mi300x-derived", everyHCA(1000))
	for b.Loop() {
		if chosen := choose(b, p, p.name, p.free, nil, 8); len(chosen) != 8 {
			b.Fatal(chosen)
		}
	}
}
