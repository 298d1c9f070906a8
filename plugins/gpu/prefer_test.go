// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
)

// recorded lays a recorded machine out in a folder.
func recorded(t *testing.T, name string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, machines.Sys(t, name, 0)); err != nil {
		t.Fatal(err)
	}
	return root
}

// grown lays a machine out in a folder: GPU k is 0000:<10+k>:00.0, on NUMA node k/4, and has an XGMI link to
// every other of its hive of four in io_links alone, as on kernels without p2p_links; or none.
func grown(t *testing.T, gpus int, linked bool) string {
	t.Helper()
	root := t.TempDir()
	write := func(content, file string, arguments ...any) {
		file = filepath.Join(root, fmt.Sprintf(file, arguments...))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content+"\n"), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, file string) {
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, file); err != nil {
			t.Fatal(err)
		}
	}
	link("../../../bus/pci/drivers/amdgpu", "module/amdgpu/drivers/pci:amdgpu")
	for k := range gpus {
		address := fmt.Sprintf("0000:%x:00.0", 16+k)
		dir := fmt.Sprintf("devices/pci0000:%x/%s", 16+k, address)
		write("0x120000", "%s/class", dir)
		write("0x1002", "%s/vendor", dir)
		write(fmt.Sprint(k/4), "%s/numa_node", dir)
		write("226:1", "%s/drm/card%d/dev", dir, k)
		write("226:128", "%s/drm/renderD%d/dev", dir, 128+k)
		link("../../../"+dir, "bus/pci/devices/"+address)
		link("../../../../"+dir, "bus/pci/drivers/amdgpu/"+address)
		const node = "class/kfd/kfd/topology/nodes/%d/"
		write(fmt.Sprintf("simd_count 304\ndomain 0\nlocation_id %d\ndrm_render_minor %d", (16+k)<<8, 128+k),
			node+"properties", k)
		for other := range gpus {
			if linked && other != k && other/4 == k/4 {
				write(fmt.Sprintf("type 11\nnode_from %d\nnode_to %d\nweight 15", k, other),
					node+"io_links/%d/properties", k, other)
			}
		}
	}
	return root
}

// asked is the plugin of a machine, for many questions, and the IDs of its devices by card.
type asked struct {
	*kubelettest.Plugin
	itself *gpu.Plugin
	all    []string
	cards  map[string][]string
}

func ask(t *testing.T, root string) asked {
	t.Helper()
	a := asked{cards: map[string][]string{}}
	a.Plugin, a.itself = run(t, root, slog.New(slog.DiscardHandler))
	for _, d := range kubelettest.Await(t, a.Lists) {
		a.all = append(a.all, d.GetID())
	}
	backend, err := amd.New(os.DirFS(root), amd.Single)
	if err != nil {
		t.Fatal(err)
	}
	found, err := backend.Discover()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range found.Resources["amd.com/gpu"] {
		a.cards[d.Card.String()] = append(a.cards[d.Card.String()], d.ID)
	}
	return a
}

// answer asks as the kubelet does and checks what has to hold for any answer.
func (a asked) answer(t *testing.T, available []string, size int) {
	t.Helper()
	chosen, err := a.Prefer(t.Context(), available, nil, size)
	if err != nil {
		t.Fatal(err)
	}
	check(t, available, size, chosen)
}

// prefer asks the plugin itself.
func (a asked) prefer(t *testing.T, available []string, size int) []string {
	t.Helper()
	return check(t, available, size, choose(t, a.itself, available, size))
}

func check(t *testing.T, available []string, size int, chosen []string) []string {
	t.Helper()
	unique := map[string]bool{}
	for _, id := range chosen {
		if unique[id] = true; !slices.Contains(available, id) {
			t.Errorf("%s is not available", id)
		}
	}
	if len(unique) != size {
		t.Errorf("chosen %v, want %d devices", chosen, size)
	}
	return slices.Sorted(maps.Keys(unique))
}

func TestPreferPartitions(t *testing.T) {
	t.Attr("parity", "amd/preferred-weights")
	t.Attr("parity", "amd/parent-of-partition")
	a := ask(t, recorded(t, "amd-mi300x-cpx-kfd"))
	for _, size := range []int{2, 7, 8} {
		got := a.prefer(t, a.all, size)
		for card, parts := range a.cards {
			if n := count(got, parts); n != 0 && n != size {
				t.Errorf("%d of all: %d on %s", size, n, card)
			}
		}
	}
	// All from one GPU, of those that have enough the one that has the fewest left.
	whole, broken := a.cards["0000:27:00.0"], a.cards["0000:47:00.0"]
	if _, err := a.Allocate(t.Context(), broken[3:]...); err != nil {
		t.Fatal(err)
	}
	if got := a.prefer(t, slices.Concat(whole, broken[:3]), 3); !slices.Equal(got,
		slices.Sorted(slices.Values(broken[:3]))) {
		t.Errorf("three of eight and three: %v", got)
	}
}

func count(ids, among []string) (n int) {
	for _, id := range ids {
		if slices.Contains(among, id) {
			n++
		}
	}
	return n
}

func TestPreferLinks(t *testing.T) {
	for _, c := range []struct {
		row, name, machine string
		from               string
		want               string
	}{
		{"amd/preferred-weights", "the better link", "amd-mi250-16gcd-8nic",
			"0000:0e:00.0 0000:4e:00.0 0000:8f:00.0 0000:11:00.0", "0000:0e:00.0 0000:11:00.0"},
		{"amd/preferred-weights", "the same NUMA node", "16", "0000:10:00.0 0000:14:00.0 0000:18:00.0 0000:1b:00.0",
			"0000:18:00.0 0000:1b:00.0"},
		{"amd/preferred-missing-link", "one of two hives", "8 linked", "0000:10:00.0 0000:14:00.0 0000:17:00.0",
			"0000:14:00.0 0000:17:00.0"},
	} {
		t.Run(c.row+"/"+c.name, func(t *testing.T) {
			var root string
			switch c.machine {
			case "16":
				root = grown(t, 16, false)
			case "8 linked":
				root = grown(t, 8, true)
			default:
				root = recorded(t, c.machine)
			}
			a := ask(t, root)
			for _, ids := range [][]string{strings.Fields(c.from), slices.Sorted(strings.FieldsSeq(c.from))} {
				if got := strings.Join(a.prefer(t, ids, 2), " "); got != c.want {
					t.Errorf("2 of %v: %s, want %s", ids, got, c.want)
				}
			}
		})
	}
}

// TestPreferUnknown: an ID that was never announced, as after a change of the partitioning, is better than
// none and worse than any other.
func TestPreferUnknown(t *testing.T) {
	t.Attr("parity", "amd/preferred-unknown-id")
	t.Attr("parity", "amd/options-fallback")
	a := ask(t, grown(t, 4, false))
	if !a.Options.GetGetPreferredAllocationAvailable() {
		t.Error("no preference offered without links")
	}
	for size := 1; size <= 4; size++ {
		a.answer(t, []string{"amdgpu_xcp_999", "0000:10:00.0", "0000:12:00.0", "0000:11:00.0"}, size)
	}
}

// TestPreferSpeed asks what takes the stock plugins seconds, or is beyond them. One of many answers has to be
// in time, so that what else the computer does stays out of it.
func TestPreferSpeed(t *testing.T) {
	const limit = 10 * time.Millisecond * slower
	t.Attr("parity", "nvidia/preferred-16gpu")
	for name, c := range map[string]struct {
		root  string
		sizes []int
	}{
		"63 partitions": {recorded(t, "amd-mi300x-cpx-kfd"), []int{33, 62}},
		"16 GPUs":       {grown(t, 16, true), []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
		"MI250":         {recorded(t, "amd-mi250-16gcd-8nic"), []int{8}},
	} {
		t.Run("amd/preferred-perf/"+name, func(t *testing.T) {
			a := ask(t, c.root)
			for _, size := range c.sizes {
				fastest := time.Hour
				for tries := 0; tries < 50 && fastest > limit; tries++ {
					began := time.Now()
					a.answer(t, a.all, size)
					fastest = min(fastest, time.Since(began))
				}
				if fastest > limit {
					t.Errorf("fastest answer for %d after %s, want %s", size, fastest, limit)
				}
			}
		})
	}
}
