// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// unhealthy lists the devices that are not healthy, and the notes.
func unhealthy(t *testing.T, b *Backend) (ids, notes []string) {
	t.Helper()
	inventory, err := b.Discover()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range inventory.Resources["amd.com/gpu"] {
		if !d.Healthy {
			ids = append(ids, d.ID)
		}
		if d.Healthy != (d.Reason == "") {
			t.Errorf("%s: healthy %t, reason %q", d.ID, d.Healthy, d.Reason)
		}
	}
	return ids, inventory.Notes
}

func TestOtherSourcesOfHealth(t *testing.T) {
	t.Attr("parity", "amd/health-exporter")
	backend, err := New(twoCards().fs(), Single)
	if err != nil {
		t.Fatal(err)
	}
	var found map[string]bool
	var problem error
	backend.Heed("the first", func(context.Context) (map[string]bool, error) { return found, problem })
	backend.Heed("the second", func(context.Context) (map[string]bool, error) {
		return map[string]bool{"0000:A7:00.0": true}, nil
	})
	for _, c := range []struct {
		name  string
		found map[string]bool
		err   error
		want  []string
		note  string
	}{
		{"knows nothing", nil, nil, nil, ""},
		{"all is well", map[string]bool{"0000:19:00.0": true}, nil, nil, ""},
		{"a GPU", map[string]bool{"0000:19:00.0": false}, nil, []string{"0000:19:00.0"},
			"0000:19:00.0: unhealthy, says the first"},
		{"well again", map[string]bool{"0000:19:00.0": true}, nil, nil, ""},
		{"a card with its partitions", map[string]bool{"0000:A7:00.0": false}, nil,
			[]string{"0000:a7:00.0", "amdgpu_xcp.3", "amdgpu_xcp_0"}, "amdgpu_xcp_0: unhealthy, says the first"},
		{"a card without one partition", map[string]bool{"0000:a7:00.0": false, "amdgpu_xcp_0": true}, nil,
			[]string{"0000:a7:00.0", "amdgpu_xcp.3"}, "says the first"},
		{"no answer", map[string]bool{"0000:19:00.0": false}, errors.New("away"), nil,
			"health of the GPUs is judged without the first: away"},
		{"strangers", map[string]bool{"0000:ff:00.0": false, "": false}, nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, problem = c.found, c.err
			ids, notes := unhealthy(t, backend)
			if diff := cmp.Diff(c.want, ids); diff != "" {
				t.Error(diff)
			}
			if text := strings.Join(notes, "\n"); !strings.Contains(text, c.note) || c.note == "" && text != "" {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

// TestSlowSourceOfHealth: it delays the start by half a second and a pulse by five.
func TestSlowSourceOfHealth(t *testing.T) {
	t.Attr("parity", "amd/health-exporter")
	synctest.Test(t, func(t *testing.T) {
		backend, err := New(twoCards().fs(), Single)
		if err != nil {
			t.Fatal(err)
		}
		backend.Heed("the exporter", func(ctx context.Context) (map[string]bool, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		for _, want := range []time.Duration{500 * time.Millisecond, 5 * time.Second, 5 * time.Second} {
			began := time.Now()
			ids, notes := unhealthy(t, backend)
			if got := time.Since(began); got != want || len(ids) != 0 || len(notes) != 1 {
				t.Errorf("after %s, want %s: unhealthy %v, notes %q", got, want, ids, notes)
			}
		}
	})
}

// halves is a node with two cards in two parts each, of which the second one may be partitioned otherwise.
func halves(second string) fstest.MapFS {
	s := sysfs{}.
		add(function("0000:19:00.0", "0", "card1", "renderD128")).
		add(partitioned("0000:19:00.0", "CPX", "NPS1")).
		add(function("0000:a7:00.0", "1", "card2", "renderD129")).
		add(partitioned("0000:a7:00.0", second, "NPS1")).
		add(minors("devices/platform/amdgpu_xcp_0", "card3", "renderD130")).
		add(minors("devices/platform/amdgpu_xcp_1", "card4", "renderD131")).
		add(cpuNode(0)).
		add(gpuNode(1, 0, 0x1900, 128)).
		add(gpuNode(2, 0, 0x1901, 130)).
		add(gpuNode(3, 0, 0xa700, 129))
	if second == "CPX" {
		s.add(gpuNode(4, 0, 0xa701, 131)) // the platform device stays where the partition goes
	}
	return s.fs()
}

// state writes devices as "a b!", ! for unhealthy.
func state(devices []gpu.Device) string {
	var words []string
	for _, d := range devices {
		if !d.Healthy {
			d.ID += "!"
		}
		words = append(words, d.ID)
	}
	return strings.Join(words, " ")
}

// A card that is partitioned otherwise than the others under one name is judged for itself, as is what
// becomes of the others meanwhile; once all are alike again, all are healthy.
func TestOneCardIsPartitionedAnew(t *testing.T) {
	machine := halves("CPX")
	b, err := New(machine, Single)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	b.Heed("the metrics exporter", func(context.Context) (map[string]bool, error) { return said, nil })
	for _, step := range []struct {
		name   string
		first  bool // what the exporter says of the first card
		second string
		want   string
		note   string
	}{
		{"alike", true, "CPX", "0000:19:00.0 0000:a7:00.0 amdgpu_xcp_0 amdgpu_xcp_1", ""},
		{"one is whole", true, "SPX", "0000:19:00.0 0000:a7:00.0! amdgpu_xcp_0",
			"GPUs that are not cpx_nps1 are unhealthy"},
		{"the other one ails", false, "SPX", "0000:19:00.0! 0000:a7:00.0! amdgpu_xcp_0!",
			"says the metrics exporter"},
		{"alike again", true, "CPX", "0000:19:00.0 0000:a7:00.0 amdgpu_xcp_0 amdgpu_xcp_1", ""},
	} {
		clear(machine)
		maps.Copy(machine, halves(step.second))
		said["0000:19:00.0"] = step.first
		inventory, err := b.Discover()
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		told := strings.Join(inventory.Notes, "\n")
		if got := state(inventory.Resources[whole]); got != step.want || inventory.Partial ||
			!strings.Contains(told, step.note) || step.note == "" && told != "" {
			t.Errorf("%s: %s, want %s; notes %q", step.name, got, step.want, told)
		}
	}
}

// What cannot be read once GPUs are offered is missing, and may be there: it is not gone. What is read says
// what becomes of the rest.
func TestOneCardCannotBeRead(t *testing.T) {
	card := "module/amdgpu/drivers/pci:amdgpu/0000:a7:00.0/numa_node"
	first := topology.Address{Bus: 0x19}
	for _, c := range []struct {
		name, file, want string
		read             []topology.Address
	}{
		{"a card", card, "0000:19:00.0 amdgpu_xcp_0", []topology.Address{first}},
		{"a KFD node", kfdFile(2, "properties"), "0000:19:00.0 0000:a7:00.0 amdgpu_xcp_1", nil},
		{"the partitions", platform, "0000:19:00.0 0000:a7:00.0", nil},
		{"the cards", functions, "", nil},
	} {
		sound := halves("CPX")
		b, err := New(sound, Single)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Discover(); err != nil {
			t.Fatal(err)
		}
		b.sys = failing(sound, c.file, syscall.EIO)
		inventory, err := b.Discover()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := state(inventory.Resources[whole]); got != c.want || !inventory.Partial ||
			!slices.Equal(inventory.Read, c.read) ||
			!strings.Contains(strings.Join(inventory.Notes, "\n"), "input/output error") {
			t.Errorf("%s: %s, want %s; partial %v, read %v, notes %q", c.name, got, c.want, inventory.Partial,
				inventory.Read, inventory.Notes)
		}
	}
}
