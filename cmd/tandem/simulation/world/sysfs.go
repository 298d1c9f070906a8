package world

import (
	"fmt"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// The classes of the functions, as sysfs prints them.
const (
	bridgeClass  = "0x060400"
	gpuClass     = "0x120000"
	networkClass = "0x020000"
)

// sysfs builds the few files that the tree is read from.
type sysfs struct{ *recording.Builder }

// function adds a PCI function below a directory and returns its own.
func (b *sysfs) function(parent string, a topology.Address, class string, numa int) string {
	dir := parent + "/" + a.String()
	b.Link("bus/pci/devices/"+a.String(), "../../../"+dir)
	b.File(dir+"/class", class+"\n")
	b.File(dir+"/numa_node", fmt.Sprintln(numa))
	return dir
}

// vfs adds VFs to a PF, beside it as the kernel does. Their addresses are the next free ones from slot 10 of
// its bus on, and on following buses where that is full.
func (b *sysfs) vfs(pfDir string, pf topology.Address, count, numa int) ([]placement.Device, error) {
	var added []placement.Device
	routing := int(pf.Bus)<<8 | 0x7f
	for len(added) < count {
		if routing++; routing > 0xffff {
			return nil, fmt.Errorf("add %d VFs to %s: there is no bus left for so many", count, pf)
		}
		a := topology.Address{
			Domain: pf.Domain, Bus: uint8(routing >> 8), Device: uint8(routing>>3) & 0x1f,
			Function: uint8(routing) & 7,
		}
		if b.Has("bus/pci/devices/" + a.String()) {
			continue
		}
		dir := b.function(pfDir[:len(pfDir)-len("/"+pf.String())], a, networkClass, numa)
		b.Link(dir+"/physfn", "../"+pf.String())
		b.Link(fmt.Sprintf("%s/virtfn%d", pfDir, len(added)), "../"+a.String())
		added = append(added, placement.Device{ID: a.String(), Address: a})
	}
	return added, nil
}
