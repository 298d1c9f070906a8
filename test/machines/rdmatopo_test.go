// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/topology"
)

// refused are the machines that rdma_topo (rdma-core 691953d8d) refuses, with the reason. It reads neither
// VFs as NICs nor the switch of a BlueField, and knows one GPU for each ConnectX switch.
var refused = map[string]string{
	"nv-gb300-aks-derived":  "No CX NICs found",
	"nv-cx8-inline-derived": "Multiple GPU DSPs under the same shared switch",
	"nv-bf3-derived":        "No supported topology detected",
}

// TestRDMATopo compares the complexes of the derived machines with the answer of rdma_topo, where that
// program is installed.
func TestRDMATopo(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("rdma_topo")
	if err != nil {
		t.Skip("rdma_topo of rdma-core is not installed")
	}
	compared := 0
	for _, name := range Names() {
		sys, tree := Read(t, name, 0)
		var want []complexOf
		for _, c := range tree.Complexes() {
			want = append(want, ours(c)...)
		}
		if len(want) == 0 {
			continue
		}
		compared++
		got, err := askRDMATopo(t, program, sys)
		switch reason, isRefused := refused[name]; {
		case isRefused && (err == nil || !strings.Contains(err.Error(), reason)):
			t.Errorf("%s: %v, want %q: %v", name, got, reason, err)
		case isRefused:
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			slices.SortFunc(want, complexOf.compare)
			slices.SortFunc(got, complexOf.compare)
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-tandem +rdma_topo):\n%s", name, diff)
			}
		}
	}
	if compared == 0 {
		t.Error("no machine has complexes")
	}
}

// complexOf is a complex in the terms of both programs.
type complexOf struct {
	GPUs, NICs []string // of NICs with one GPU the lowest PF
	DMA        string
}

func (c complexOf) compare(d complexOf) int { return cmp.Compare(fmt.Sprint(c), fmt.Sprint(d)) }

// ours is one complex for each GPU of an inline complex, as rdma_topo has them.
func ours(c topology.Complex) []complexOf {
	text := func(all ...topology.Address) (names []string) {
		for _, a := range all {
			names = append(names, a.String())
		}
		return names
	}
	switch c.Kind {
	case topology.KindC2C:
		return []complexOf{{GPUs: text(c.GPUs...), NICs: text(c.NICs...)}}
	case topology.KindDMA:
		return []complexOf{{GPUs: text(c.GPUs...), NICs: text(c.NICs[0]), DMA: c.Function.String()}}
	default:
		var all []complexOf
		for _, gpu := range c.GPUs {
			all = append(all, complexOf{GPUs: text(gpu), NICs: text(c.NICs[0])})
		}
		return all
	}
}

// theirs is the part of rdma_topo's answer that is compared.
type theirs struct {
	PF     string   `json:"rdma_nic_pf_bdf"`
	DMA    string   `json:"rdma_dma_bdf"`
	GPU    string   `json:"gpu_bdf"`
	GPUs   []string `json:"gpu_bdfs"`
	Boards []struct {
		NICs []struct {
			PFs []string `json:"pf_bdfs"`
		} `json:"nics"`
	} `json:"rdma_nic_boards"`
}

func askRDMATopo(t *testing.T, program string, sys fs.FS) ([]complexOf, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dump.json")
	if err := os.WriteFile(file, dump(t, sys), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "topo", "--json", "--sysfs-dump-file", file).Output()
	if err != nil {
		return nil, fmt.Errorf("run rdma_topo: %w: %s", err, out)
	}
	var answer []theirs
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, fmt.Errorf("read answer of rdma_topo: %w", err)
	}
	var all []complexOf
	for _, a := range answer {
		c := complexOf{GPUs: a.GPUs, DMA: a.DMA}
		if a.GPU != "" {
			c.GPUs = append(c.GPUs, a.GPU)
		}
		if a.PF != "" {
			c.NICs = append(c.NICs, a.PF)
		}
		for _, board := range a.Boards {
			for _, nic := range board.NICs {
				c.NICs = append(c.NICs, nic.PFs...)
			}
		}
		slices.Sort(c.GPUs)
		slices.Sort(c.NICs)
		all = append(all, c)
	}
	return all, nil
}

// dumped is a PCI function in rdma_topo's dump.
type dumped struct {
	Realpath   string              `json:"realpath"`
	Config     []byte              `json:"config"` // compressed with zlib, in base64
	Modalias   string              `json:"modalias"`
	NUMA       *int                `json:"numa_node,omitempty"`
	IOMMU      *int                `json:"iommu_group,omitempty"`
	VPD        []byte              `json:"vpd,omitempty"` // as Config
	Subsystems map[string][]string `json:"subsystems"`
}

// dump writes a machine in the format of "rdma_topo dump".
func dump(t *testing.T, sys fs.FS) []byte {
	t.Helper()
	names, err := fs.Glob(sys, "bus/pci/devices/*")
	if err != nil {
		t.Fatal(err)
	}
	var all []dumped
	for _, name := range names {
		target, err := fs.ReadLink(sys, name)
		if err != nil {
			t.Fatal(err)
		}
		f := functionFiles{sys: sys, dir: name}
		d := dumped{
			Realpath: "/sys/" + path.Join("bus/pci/devices", target), Modalias: f.modalias(),
			Config:     compressed(t, cmp.Or(f.text("config"), strings.Repeat("\x00", 64))),
			Subsystems: map[string][]string{},
		}
		if node, err := strconv.Atoi(strings.TrimSpace(f.text("numa_node"))); err == nil {
			d.NUMA = &node
		}
		if group, err := fs.ReadLink(sys, name+"/iommu_group"); err == nil {
			number, _ := strconv.Atoi(path.Base(group)) // a group's name is its number
			d.IOMMU = &number
		}
		if vpd := f.text("vpd"); vpd != "" {
			d.VPD = compressed(t, vpd)
		}
		for _, class := range []string{"drm", "infiniband", "net"} {
			entries, err := fs.ReadDir(sys, name+"/"+class)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			for _, entry := range entries {
				d.Subsystems[class] = append(d.Subsystems[class], entry.Name())
			}
		}
		all = append(all, d)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// functionFiles reads the files of a PCI function.
type functionFiles struct {
	sys fs.FS
	dir string
}

func (f functionFiles) text(file string) string {
	content, _ := fs.ReadFile(f.sys, f.dir+"/"+file) // "" for an unknown value
	return string(content)
}

func (f functionFiles) number(file string) uint64 {
	number, _ := strconv.ParseUint(strings.TrimSpace(f.text(file)), 0, 32) // 0 for an unknown value
	return number
}

// modalias is the text of pci_uevent in drivers/pci/pci-driver.c.
func (f functionFiles) modalias() string {
	class := f.number("class")
	return fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X", f.number("vendor"), f.number("device"),
		f.number("subsystem_vendor"), f.number("subsystem_device"), class>>16&0xff, class>>8&0xff, class&0xff)
}

func compressed(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
