// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Function is a PF or GPU whose health the daemons judge. Its counters are files in the machine's folder, and
// are written in place, as the kernel changes them.
type Function struct {
	Address  topology.Address
	Resource string   // of its devices
	Devices  []string // IDs, ascending

	rig      *Rig
	netdev   string // of a PF: a path below the function; "" without
	port     string // of a PF: a path below the function; "" without
	counters map[string]uint64
}

// lanes are the lanes of every PCI Express link; the speed is that of generation 5.
const lanes = 16

// portCounters and hwCounters are the counters of a port in counters and hw_counters; totals are the last
// lines of the AER files.
var (
	portCounters = []string{
		"link_downed", "excessive_buffer_overrun_errors", "local_link_integrity_errors", "symbol_error",
		"link_error_recovery", "port_rcv_errors", "port_xmit_discards",
	}
	hwCounters = []string{"rnr_nak_retry_err", "local_ack_timeout_err", "roce_slow_restart"}
	totals     = map[string]string{
		"aer_correctable": "TOTAL_ERR_COR", "aer_nonfatal": "TOTAL_ERR_NONFATAL", "aer_fatal": "TOTAL_ERR_FATAL",
	}
)

// Functions returns the PFs and GPUs of a machine with [Setup.Counters], ascending.
func (r *Rig) Functions() []*Function { return r.counted }

// addCounters adds counters, ports with a link and PCI Express links to all PFs and GPUs.
func (r *Rig) addCounters() error {
	all := map[topology.Address]*Function{}
	add := func(address topology.Address, resource, id string) {
		if all[address] == nil {
			all[address] = &Function{Address: address, Resource: resource, rig: r, counters: map[string]uint64{}}
			r.counted = append(r.counted, all[address])
		}
		all[address].Devices = append(all[address].Devices, id)
	}
	for _, gpu := range r.gpus {
		add(gpu.Address, r.GPU, gpu.ID)
	}
	for _, vf := range r.vfs {
		add(vf.PF, VF, vf.Address.String())
	}
	slices.SortFunc(r.counted, func(a, b *Function) int { return a.Address.Compare(b.Address) })
	for _, f := range r.counted {
		slices.Sort(f.Devices)
		if err := f.addFiles(); err != nil {
			return err
		}
	}
	return nil
}

func (f *Function) addFiles() error {
	files := map[string]string{
		"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
		"current_link_width": fmt.Sprint(lanes), "max_link_width": fmt.Sprint(lanes),
	}
	counters := []string{"aer_correctable", "aer_nonfatal", "aer_fatal"}
	if d, known := f.rig.Tree.Device(f.Address); known && f.Resource == VF {
		f.netdev, f.port = path.Join("net", d.Netdevs[0]), path.Join("infiniband", d.RDMA[0], "ports/1")
		files[f.netdev+"/flags"], files[f.netdev+"/carrier_up_count"] = "0x1003", "1"
		counters = slices.Concat(counters, portCounters, hwCounters, []string{"carrier_changes"})
	}
	for _, name := range counters {
		files[f.file(name)] = f.text(name)
	}
	for name, text := range files {
		file := f.path(name)
		if err := os.MkdirAll(path.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, padded(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Add increases a counter, named as in the rules of package health.
func (f *Function) Add(counter string, by uint64) error {
	f.counters[counter] += by
	return f.write(f.file(counter), f.text(counter))
}

// SetLink lets the port of a PF have a link or none.
func (f *Function) SetLink(up bool) error {
	carrier, state := "0", "down"
	if up {
		carrier, state = "1", "up"
	}
	if err := f.write(f.netdev+"/operstate", state); err != nil {
		return err
	}
	return f.write(f.netdev+"/carrier", carrier)
}

// SetNarrow lets the PCI Express link have half of its lanes, or all.
func (f *Function) SetNarrow(narrow bool) error {
	width := lanes
	if narrow {
		width /= 2
	}
	return f.write("current_link_width", fmt.Sprint(width))
}

// file returns the file of a counter, below the function.
func (f *Function) file(counter string) string {
	_, isAER := totals[counter]
	switch {
	case isAER:
		return strings.Replace(counter, "aer_", "aer_dev_", 1)
	case counter == "carrier_changes":
		return path.Join(f.netdev, counter)
	case slices.Contains(hwCounters, counter):
		return path.Join(f.port, "hw_counters", counter)
	default:
		return path.Join(f.port, "counters", counter)
	}
}

func (f *Function) text(counter string) string {
	return strings.TrimSpace(fmt.Sprint(totals[counter], " ", f.counters[counter]))
}

func (f *Function) path(name string) string {
	return f.rig.path(path.Join("sys", pciDevices, f.Address.String(), name))
}

// write writes a file in place by one call, so that no reader finds part of it.
func (f *Function) write(name, text string) error {
	file, err := os.OpenFile(f.path(name), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write attribute of %s: %w", f.Address, err)
	}
	defer file.Close()
	if _, err := file.Write(padded(text)); err != nil {
		return fmt.Errorf("write attribute of %s: %w", f.Address, err)
	}
	return nil
}

// padded returns the content of a file with room for longer text.
func padded(text string) []byte { return fmt.Appendf(nil, "%-32s\n", text) }

// SetFailed tells the rig which devices can be missing among those that the kubelet has to give.
func (r *Rig) SetFailed(ids map[string]bool) { r.failed = ids }

// FailedVFs returns the number of VFs that are there, and can have failed.
func (r *Rig) FailedVFs() int {
	_, failed := r.lacking(VF)
	return failed
}

// lacking returns how many devices of a resource are gone, and how many others can have failed.
func (r *Rig) lacking(resource string) (gone, failed int) {
	if resource == VF {
		gone = len(r.gone)
	}
	for _, f := range r.counted {
		for _, id := range f.Devices {
			if f.Resource == resource && r.failed[id] && !r.gone[id] {
				failed++
			}
		}
	}
	return gone, failed
}
