// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// sysroot is /sys with GPUs in place of the display devices and ConnectX-7 in place of the NICs: an overlay
// of the real sysfs. It is the /sys of containers (node.go).
const (
	sysroot = "/run/sysroot"
	layer   = "/run/identity" // on a tmpfs
)

// layIdentity writes the overlay, and creates the device nodes of missing drivers.
func layIdentity() error {
	l := &identity{dir: layer + "/upper"}
	gpus, err := filepath.Glob("/sys/bus/pci/drivers/virtio-pci/0*/drm/renderD*")
	if err == nil && len(gpus) == 0 {
		err = errors.New("no display device has a render node")
	}
	if err != nil {
		return err
	}
	for i, render := range gpus {
		if told("gpus") == nvidia {
			l.h100(render)
		} else {
			l.mi300x(render, i, len(gpus))
		}
	}
	for _, nic := range []struct{ driver, product string }{{"igb", "0x1021"}, {"igbvf", "0x101e"}} {
		functions, err := filepath.Glob("/sys/bus/pci/drivers/" + nic.driver + "/0*")
		if err != nil {
			return err
		}
		for _, function := range functions {
			l.nic(function, nic.product)
		}
	}
	if l.err != nil {
		return l.err
	}
	if err := os.MkdirAll(layer+"/work", 0o755); err != nil {
		return err
	}
	options := "lowerdir=/sys,upperdir=" + l.dir + ",workdir=" + layer + "/work"
	if err := mount("overlay", sysroot, "overlay", 0, options); err != nil {
		return err
	}
	if told("gpus") == nvidia {
		return installDriver()
	}
	return character("/dev/kfd", 0)
}

// character creates a device node without a driver.
func character(name string, minor int) error {
	const anyMajor = 240 // one for local use
	err := syscall.Mknod(name, syscall.S_IFCHR|0o666, anyMajor<<8|minor)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// identity writes the files; paths are below /sys. It keeps the first error.
type identity struct {
	dir string
	err error
}

func (l *identity) file(name, content string) {
	name = filepath.Join(l.dir, name)
	l.keep(os.MkdirAll(filepath.Dir(name), 0o755))
	l.keep(os.WriteFile(name, []byte(content+"\n"), 0o644))
}

// link makes a relative link as in sysfs; the target need not exist yet.
func (l *identity) link(name, target string) {
	relative, err := filepath.Rel(filepath.Dir(name), target)
	l.keep(err)
	name = filepath.Join(l.dir, name)
	l.keep(os.MkdirAll(filepath.Dir(name), 0o755))
	l.keep(os.Symlink(relative, name))
}

func (l *identity) keep(err error) {
	if l.err == nil {
		l.err = err
	}
}

// place returns the real path of a path below /sys.
func (l *identity) place(path string) string {
	real, err := filepath.EvalSymlinks(path)
	l.keep(err)
	return strings.TrimPrefix(real, "/sys/")
}

// nic turns a function into Mellanox's, and makes the function the parent of the RDMA devices over its
// netdevs.
func (l *identity) nic(function, product string) {
	place := l.place(function)
	l.file(place+"/vendor", "0x15b3")
	l.file(place+"/device", product)
	l.link(place+"/driver", "bus/pci/drivers/mlx5_core")
	l.link("bus/pci/drivers/mlx5_core/"+filepath.Base(place), place)
	netdevs, err := os.ReadDir("/sys/" + place + "/net")
	l.keep(err)
	devices, err := filepath.Glob("/sys/class/infiniband/*")
	l.keep(err)
	for _, device := range devices {
		parent, err := os.ReadFile(device + "/parent")
		l.keep(err)
		if !slices.ContainsFunc(netdevs,
			func(n fs.DirEntry) bool { return n.Name() == strings.TrimSpace(string(parent)) }) {
			continue
		}
		name := filepath.Base(device)
		l.link(place+"/infiniband/"+name, l.place(device))
		l.nodes(place, name)
	}
}

// nodes makes the function the parent of an RDMA device's character devices.
func (l *identity) nodes(place, device string) {
	for _, class := range []string{"infiniband_verbs", "infiniband_mad"} {
		files, err := filepath.Glob("/sys/class/" + class + "/*/ibdev")
		l.keep(err)
		for _, file := range files {
			if owner, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(owner)) == device {
				node := filepath.Dir(file)
				l.link(filepath.Join(place, class, filepath.Base(node)), l.place(node))
			}
		}
	}
}

// mi300x turns the parent function of a render node into an MI300X, in the files of amdgpu and amdkfd.
func (l *identity) mi300x(render string, index, count int) {
	function := l.place(filepath.Dir(filepath.Dir(render))) // devices/pci…/<address>
	address := filepath.Base(function)
	for name, content := range map[string]string{
		"vendor": "0x1002", "device": "0x74a1", "class": "0x120000",
		"current_compute_partition": "SPX", "current_memory_partition": "NPS1",
	} {
		l.file(filepath.Join(function, name), content)
	}
	l.link(function+"/driver", "bus/pci/drivers/amdgpu")
	l.link("bus/pci/drivers/amdgpu/"+address, function)
	// The card's bridge pair.
	l.file(filepath.Dir(function)+"/vendor", "0x1002")
	l.file(filepath.Dir(function)+"/device", "0x1501")
	l.file(filepath.Dir(filepath.Dir(function))+"/vendor", "0x1022")
	l.file(filepath.Dir(filepath.Dir(function))+"/device", "0x1500")
	l.kfd(address, strings.TrimPrefix(filepath.Base(render), "renderD"), index, count)
}

// kfd adds the KFD node of a GPU, with an XGMI link to every other one. Nodes 0 and 1 are the CPUs.
func (l *identity) kfd(address, minor string, index, count int) {
	const nodes = "class/kfd/kfd/topology/nodes/"
	if index == 0 {
		l.link("module/amdgpu/drivers/pci:amdgpu", "bus/pci/drivers/amdgpu")
		l.file(nodes+"0/properties", "cpu_cores_count 2\nsimd_count 0")
		l.file(nodes+"1/properties", "cpu_cores_count 2\nsimd_count 0")
	}
	own := nodes + strconv.Itoa(index+2)
	fields := strings.FieldsFunc(address, func(r rune) bool { return r == ':' || r == '.' })
	var numbers []uint64
	for _, field := range fields {
		number, err := strconv.ParseUint(field, 16, 32)
		l.keep(err)
		numbers = append(numbers, number)
	}
	l.file(own+"/gpu_id", strconv.Itoa(1000+index))
	l.file(own+"/properties", fmt.Sprintf("cpu_cores_count 0\nsimd_count 1216\nvendor_id 4098\n"+
		"device_id 29857\nlocation_id %d\ndomain %d\ndrm_render_minor %s",
		numbers[1]<<8|numbers[2]<<3, numbers[0], minor))
	link := 0
	for other := range count {
		if other != index {
			l.file(fmt.Sprintf("%s/io_links/%d/properties", own, link),
				fmt.Sprintf("type 11\nnode_from %d\nnode_to %d\nweight 15", index+2, other+2))
			link++
		}
	}
}
