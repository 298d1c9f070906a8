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

// away is what is not in a machine's sysfs at the moment: where it was, by where it is.
type away struct {
	rig   *Rig
	moved []string // below sysfs, in the order in which it went
	dir   string
}

func (r *Rig) takeAway() (*away, error) {
	dir, err := os.MkdirTemp(r.dir, "away-")
	return &away{rig: r, dir: dir}, err
}

// move takes a file, folder or link away, if it is there.
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

// back puts all back, in the order in which it went.
func (a *away) back() error {
	var errs []error
	for i, name := range a.moved {
		errs = append(errs, os.Rename(a.place(i), a.rig.path(filepath.Join("sys", name))))
	}
	a.moved = nil
	return errors.Join(append(errs, os.Remove(a.dir))...)
}

const pciDevices = "bus/pci/devices"

// LowerVFs leaves every PF this many VFs, as if sriov_numvfs had been written anew, whoever holds the others.
// Back makes them as many as before.
func (r *Rig) LowerVFs(perPF int) (back func() error, err error) {
	a, err := r.takeAway()
	if err != nil {
		return nil, err
	}
	numbers := map[string]int{} // of VFs that a PF has had
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

// countVFs writes how many VFs there are: all of each PF, but no more than so many.
func (r *Rig) countVFs(numbers map[string]int, most int) error {
	for pf, number := range numbers {
		file := r.path(filepath.Join("sys", pf, "sriov_numvfs"))
		if err := os.WriteFile(file, fmt.Appendln(nil, min(number, most)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// function takes a VF away: what names it, then its folder, and last its link below bus/pci, which daemons
// look at.
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

// UnloadGPUDriver takes out of sysfs what amdgpu puts there ("rmmod amdgpu"). Back loads it again.
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
