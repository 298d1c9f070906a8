// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// vfDevice maps a vendor to the device ID of its VFs: mlx5 (mlx5_core_pci_table in
// drivers/net/ethernet/mellanox/mlx5/core/main.c) and Thor 2 (bnxt_pci_tbl in
// drivers/net/ethernet/broadcom/bnxt/bnxt.c). VFs of other vendors have the ID of their PF.
var vfDevice = map[uint16]string{0x15b3: "0x101e", 0x14e4: "0x1819"}

// fewestVFs is the minimum of sriov_totalvfs, the factory setting of ConnectX cards. The addresses of the VFs
// of a second port depend on sriov_totalvfs.
const fewestVFs = 16

// ErrHasVFs means that a machine was recorded with VFs.
var ErrHasVFs = errors.New("the machine was recorded with VFs")

// AddVFs returns the machine with a number of VFs on each PF with an RDMA device, like the kernel after a
// write to sriov_numvfs (pci_iov_add_virtfn in drivers/pci/iov.c). The error is ErrHasVFs if the machine has
// VFs.
func AddVFs(machine *Machine, perPF int) (*Machine, error) {
	tree, err := topology.Read(machine.FS())
	if err != nil {
		return nil, err
	}
	var pfs []*topology.Device
	for d := range tree.Devices() {
		if d.IsVF() {
			return nil, ErrHasVFs
		}
		if d.IsNIC() && len(d.RDMA) > 0 {
			pfs = append(pfs, d)
		}
	}
	a := &adder{Builder: machine.Build(), sys: machine.FS(), total: max(perPF, fewestVFs)}
	if err := a.countNames(); err != nil {
		return nil, err
	}
	for _, pf := range pfs {
		if err := a.addFunctions(pf, pfs, perPF); err != nil {
			return nil, fmt.Errorf("add VFs to %s: %w", pf.Address, err)
		}
	}
	return a.Machine()
}

// adder adds VFs. Names with machine-wide numbers (mlx5_, bnxt_re, uverbs, umad, issm) continue the existing
// numbers.
type adder struct {
	*Builder
	sys   fs.FS
	total int            // sriov_totalvfs
	next  map[string]int // the next number by name prefix
}

var numbered = regexp.MustCompile(`^(mlx5_|bnxt_re|uverbs|umad|issm)(\d+)$`)

func (a *adder) countNames() error {
	a.next = map[string]int{}
	names, err := fs.Glob(a.sys, "class/infiniband*/*")
	for _, name := range names {
		if m := numbered.FindStringSubmatch(path.Base(name)); m != nil {
			number, _ := strconv.Atoi(m[2]) // digits only
			a.next[m[1]] = max(a.next[m[1]], number+1)
		}
	}
	return err
}

func (a *adder) nextName(prefix string) string {
	n := a.next[prefix]
	a.next[prefix]++
	return prefix + strconv.Itoa(n)
}

// addFunctions adds the VFs of a PF. The addresses of a card's VFs follow those of its PFs, first port first.
func (a *adder) addFunctions(pf *topology.Device, pfs []*topology.Device, count int) error {
	var ports []topology.Address
	for _, other := range pfs {
		if other.Address.Slot() == pf.Address.Slot() {
			ports = append(ports, other.Address)
		}
	}
	first := int(ports[len(ports)-1].Function) + 1 + slices.Index(ports, pf.Address)*a.total
	dir, err := a.placeOf(pf.Address)
	if err != nil {
		return err
	}
	for index := range count {
		vf, err := addressAfter(pf.Address, first+index)
		if err != nil {
			return err
		}
		if err := a.addFunction(pf, dir, index, vf); err != nil {
			return err
		}
	}
	if count > 0 {
		a.Replace(dir+"/sriov_totalvfs", fmt.Sprintln(a.total))
		a.Replace(dir+"/sriov_numvfs", fmt.Sprintln(count))
	}
	return nil
}

// addressAfter returns the address at an offset from function 0 of the PF's slot, across devices (ARI) and
// buses (pci_iov_virtfn_bus and pci_iov_virtfn_devfn).
func addressAfter(pf topology.Address, functions int) (topology.Address, error) {
	routing := int(pf.Bus)<<8 + int(pf.Device)<<3 + functions
	if routing > 0xffff {
		return topology.Address{}, errors.New("no bus number left")
	}
	return topology.Address{
		Domain: pf.Domain, Bus: uint8(routing >> 8), Device: uint8(routing>>3) & 0x1f, Function: uint8(routing) & 7,
	}, nil
}

// placeOf returns the directory of a function in the tree.
func (a *adder) placeOf(address topology.Address) (string, error) {
	link := "bus/pci/devices/" + address.String()
	target, err := fs.ReadLink(a.sys, link)
	return path.Join(path.Dir(link), target), err
}

// addFunction adds a VF next to its PF.
func (a *adder) addFunction(pf *topology.Device, pfDir string, index int, vf topology.Address) error {
	dir := path.Join(path.Dir(pfDir), vf.String())
	a.Link("bus/pci/devices/"+vf.String(), "../../../"+dir)
	err := a.copyFiles(pfDir, dir, "class", "vendor", "numa_node", "subsystem_vendor", "subsystem_device")
	device := fmt.Sprintf("0x%04x", pf.Product)
	if id, ok := vfDevice[pf.Vendor]; ok {
		device = id
	}
	a.File(dir+"/device", device+"\n")
	a.Link(dir+"/physfn", "../"+pf.Address.String())
	a.Link(fmt.Sprintf("%s/virtfn%d", pfDir, index), "../"+vf.String())
	a.Link(dir+"/driver", strings.Repeat("../", strings.Count(dir, "/")+1)+"bus/pci/drivers/"+pf.Driver)
	a.Link("bus/pci/drivers/"+pf.Driver+"/"+vf.String(), "../../../../"+dir)
	if len(pf.Netdevs) > 0 {
		err = errors.Join(err, a.addNetdev(pfDir, pf.Netdevs[0], dir, index))
	}
	return errors.Join(err, a.addRDMA(pfDir, pf.RDMA[0], dir, index))
}

// port matches the port of a PF's netdev name, which netdev names of VFs omit (systemd.net-naming-scheme(7):
// n<port>, v<number>).
var port = regexp.MustCompile(`np\d+$`)

func (a *adder) addNetdev(pfDir, pfName, dir string, index int) error {
	name := fmt.Sprintf("%sv%d", port.ReplaceAllString(pfName, ""), index)
	a.addClassLink("net", name, dir)
	return a.copyFiles(pfDir+"/net/"+pfName, dir+"/net/"+name, "type", "carrier", "operstate", "speed")
}

// addRDMA adds an RDMA device with the kinds of character devices that the PF has.
func (a *adder) addRDMA(pfDir, pfName, dir string, index int) error {
	name := fmt.Sprintf("%sv%d", pfName, index)
	if m := numbered.FindStringSubmatch(pfName); m != nil {
		name = a.nextName(m[1])
	}
	a.addClassLink("infiniband", name, dir)
	for _, kind := range []struct{ class, prefix string }{
		{"infiniband_verbs", "uverbs"}, {"infiniband_mad", "umad"}, {"infiniband_mad", "issm"},
	} {
		if !a.Has(pfDir + "/" + kind.class) {
			continue
		}
		node := a.nextName(kind.prefix)
		a.addClassLink(kind.class, node, dir)
		a.File(path.Join(dir, kind.class, node, "ibdev"), name+"\n")
		if kind.class == "infiniband_mad" {
			a.File(path.Join(dir, kind.class, node, "port"), "1\n")
		}
	}
	return a.copyFiles(pfDir+"/infiniband/"+pfName+"/ports/1", dir+"/infiniband/"+name+"/ports/1",
		"state", "phys_state", "link_layer", "rate", "pkeys/0")
}

// addClassLink adds the link in /sys/class to a class device of the function.
func (a *adder) addClassLink(class, name, dir string) {
	a.Link(path.Join("class", class, name), "../../"+path.Join(dir, class, name))
}

// copyFiles copies existing files from one directory to another.
func (a *adder) copyFiles(from, to string, names ...string) error {
	for _, name := range names {
		content, err := fs.ReadFile(a.sys, path.Join(from, name))
		switch {
		case err == nil:
			a.File(path.Join(to, name), string(content))
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}
