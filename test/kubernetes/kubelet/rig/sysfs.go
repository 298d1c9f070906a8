// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tandem-k8s/tandem/topology"
)

// The machine is a folder, and what a driver or the kernel would take out of sysfs is moved to another one
// for a while.

// away has the parts moved out of a machine's sysfs.
type away struct {
	rig   *Rig
	moved []string // below sysfs, in order of removal
	dir   string
}

func (r *Rig) takeAway() (*away, error) {
	dir, err := os.MkdirTemp(r.dir, "away-")
	return &away{rig: r, dir: dir}, err
}

// move moves a file, folder or link away, if it exists.
func (a *away) move(name string) error {
	err := os.Rename(a.rig.path(filepath.Join("sys", name)), a.place(len(a.moved)))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("take %s away: %w", name, err)
	}
	a.moved = append(a.moved, name)
	return nil
}

func (a *away) place(i int) string { return filepath.Join(a.dir, strconv.Itoa(i)) }

// back restores all parts, in order of removal.
func (a *away) back() error {
	var errs []error
	for i, name := range a.moved {
		errs = append(errs, os.Rename(a.place(i), a.rig.path(filepath.Join("sys", name))))
	}
	a.moved = nil
	return errors.Join(append(errs, os.Remove(a.dir))...)
}

const pciDevices = "bus/pci/devices"

// LowerVFs reduces every PF to this many VFs, as after a write to sriov_numvfs, regardless of holders. Back
// restores them.
func (r *Rig) LowerVFs(perPF int) (back func() error, err error) {
	a, err := r.takeAway()
	if err != nil {
		return nil, err
	}
	numbers := map[string]int{} // previous number of VFs by PF
	for _, vf := range r.vfs {
		pf := filepath.Join(pciDevices, vf.PF.String())
		link := filepath.Join(pf, fmt.Sprint("virtfn", numbers[pf]))
		if numbers[pf]++; numbers[pf] <= perPF {
			continue
		}
		if err := a.function(vf, link); err != nil {
			return nil, err
		}
		r.gone[vf.Address.String()] = true
	}
	return func() error {
		clear(r.gone)
		return errors.Join(a.back(), r.countVFs(numbers, 1<<10))
	}, r.countVFs(numbers, perPF)
}

// countVFs writes the number of VFs of each PF, at most most.
func (r *Rig) countVFs(numbers map[string]int, most int) error {
	for pf, number := range numbers {
		file := r.path(filepath.Join("sys", pf, "sriov_numvfs"))
		if err := os.WriteFile(file, fmt.Appendln(nil, min(number, most)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// function removes a VF: the references to it, then its folder, and last its link below bus/pci, which
// daemons watch.
func (a *away) function(vf *topology.Device, ofPF string) error {
	name := vf.Address.String()
	dir := filepath.Join(pciDevices, name)
	found, err := filepath.Glob(a.rig.path(filepath.Join("sys", dir, "*/*")))
	if err != nil {
		return err
	}
	names := []string{ofPF, filepath.Join("bus/pci/drivers", vf.Driver, name)}
	for _, path := range found { // …/net/eth0 is class/net/eth0
		names = append(names, filepath.Join("class", filepath.Base(filepath.Dir(path)), filepath.Base(path)))
	}
	real, err := filepath.EvalSymlinks(a.rig.path(filepath.Join("sys", dir)))
	if err != nil {
		return err
	}
	folder, err := filepath.Rel(a.rig.path("sys"), real)
	if err != nil {
		return err
	}
	for _, name := range append(names, folder, dir) {
		if err := a.move(name); err != nil {
			return err
		}
	}
	return nil
}

// UnloadGPUDriver removes the files of amdgpu from sysfs ("rmmod amdgpu"). Back restores them.
func (r *Rig) UnloadGPUDriver() (back func() error, err error) {
	const driver = "bus/pci/drivers/amdgpu"
	a, err := r.takeAway()
	if err != nil {
		return nil, err
	}
	bound, err := filepath.Glob(r.path(filepath.Join("sys", driver, "*:*:*")))
	if err != nil {
		return nil, err
	}
	names := []string{"class/kfd", "devices/virtual/kfd", "class/drm"}
	for _, gpu := range bound {
		for _, file := range []string{
			"drm", "driver", "current_compute_partition", "current_memory_partition", "mem_info_vram_total",
		} {
			names = append(names, filepath.Join(pciDevices, filepath.Base(gpu), file))
		}
	}
	for _, name := range append(names, driver, "module/amdgpu") {
		if err := a.move(name); err != nil {
			return nil, err
		}
	}
	return a.back, nil
}
