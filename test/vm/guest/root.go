// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
)

// Disks attached by the host.
const (
	rootDisk  = "/dev/vda" // ext4
	filesDisk = "/dev/vdb" // a raw tarball
)

// mount creates the folder and mounts onto it.
func mount(source, target, kind string, flags uintptr, options string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}

// enterRoot leaves the initial RAM disk, whose folder /modules has the modules for the disk, in order.
func enterRoot() error {
	for _, kind := range []string{"devtmpfs:/dev", "proc:/proc", "sysfs:/sys"} {
		name, target, _ := strings.Cut(kind, ":")
		if err := mount(name, target, name, 0, ""); err != nil && !errors.Is(err, syscall.EBUSY) {
			return err
		}
	}
	files, err := filepath.Glob("/modules/*.ko.xz")
	if err != nil {
		return err
	}
	for _, file := range files { // sorted by name
		if err := loadModule(file); err != nil {
			return err
		}
	}
	if err := mount(rootDisk, "/root", "ext4", 0, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/dev", "/proc", "/sys"} {
		if err := mount(dir, "/root"+dir, "", syscall.MS_MOVE, ""); err != nil {
			return err
		}
	}
	if err := os.Chdir("/root"); err != nil {
		return err
	}
	if err := syscall.Mount(".", "/", "", syscall.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	return errors.Join(syscall.Chroot("."), os.Chdir("/"))
}

func mountAll() error {
	for _, m := range []struct{ kind, target, options string }{
		{"devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666"},
		{"tmpfs", "/dev/shm", ""},
		{"mqueue", "/dev/mqueue", ""},
		{"tmpfs", "/run", "mode=755"},
		{"tmpfs", "/tmp", ""},
		{"cgroup2", "/sys/fs/cgroup", "nsdelegate"},
	} {
		if err := mount(m.kind, m.target, m.kind, 0, m.options); err != nil {
			return err
		}
	}
	// The kubelet mounts volumes that containers must see.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return syscall.Sethostname([]byte("node"))
}

// unpackFiles unpacks the host's files over the root, once: changes by the node's users survive reboots.
func unpackFiles() error {
	const done = "/var/lib/unpacked"
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	if err := unpackDisk(); err != nil {
		return err
	}
	if told("kubelet") == "plain" {
		const dropIns = "/etc/kubernetes/kubelet.conf.d" // the kubelet wants the folder
		if err := errors.Join(os.RemoveAll(dropIns), os.Mkdir(dropIns, 0o755)); err != nil {
			return err
		}
	}
	return os.WriteFile(done, nil, 0o644)
}

func unpackDisk() error {
	disk, err := os.Open(filesDisk)
	if err != nil {
		return err
	}
	defer disk.Close()
	archive := tar.NewReader(bufio.NewReaderSize(disk, 1<<20))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", filesDisk, err)
		}
		if err := unpackFile(filepath.Join("/", header.Name), header.FileInfo().Mode(), archive); err != nil {
			return err
		}
	}
}

func unpackFile(name string, mode fs.FileMode, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// modules are those of the node and of the stand-ins. virtio-net comes first, so that its netdev is eth0.
var modules = []string{
	"virtio_net", "overlay", "veth", "bridge", "br_netfilter",
	"virtio_gpu", "igb", "igbvf", "ib_uverbs", "ib_umad", "rdma_ucm", "rdma_rxe",
}

// loadModules follows modules.dep: a line per module, "file: file…", whose last file is loaded first.
func loadModules() error {
	folders, err := filepath.Glob("/lib/modules/*/modules.dep")
	if err != nil || len(folders) != 1 {
		return fmt.Errorf("want one modules.dep in /lib/modules: %v %w", folders, err)
	}
	content, err := os.ReadFile(folders[0])
	if err != nil {
		return err
	}
	needs := map[string][]string{} // by module, itself first
	for line := range strings.Lines(string(content)) {
		files := strings.Fields(strings.Replace(line, ":", " ", 1))
		name, _, _ := strings.Cut(filepath.Base(files[0]), ".")
		needs[strings.ReplaceAll(name, "-", "_")] = files
	}
	for _, module := range modules {
		if len(needs[module]) == 0 {
			return fmt.Errorf("the kernel has no module %s", module)
		}
		for _, file := range slices.Backward(needs[module]) {
			if err := loadModule(filepath.Join(filepath.Dir(folders[0]), file)); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	finitModule    = 313 // its number on amd64, of arch/x86/entry/syscalls/syscall_64.tbl
	compressedFile = 4   // MODULE_INIT_COMPRESSED_FILE of include/uapi/linux/module.h
)

// loadModule loads a compressed module file.
func loadModule(file string) error {
	module, err := os.Open(file)
	if err != nil {
		return err
	}
	defer module.Close()
	options := []byte{0}
	_, _, failed := syscall.Syscall(finitModule, module.Fd(), uintptr(unsafe.Pointer(&options[0])),
		compressedFile)
	if failed != 0 && failed != syscall.EEXIST {
		return fmt.Errorf("load %s: %w", file, failed)
	}
	return nil
}

// onlineCPUs starts the CPUs that the command line keeps offline: a late start makes the boot faster.
func onlineCPUs() error {
	files, err := filepath.Glob("/sys/devices/system/cpu/cpu[1-9]*/online")
	for _, file := range files {
		err = errors.Join(err, os.WriteFile(file, []byte("1"), 0o644))
	}
	return err
}

// Addresses in QEMU's user network.
const (
	address = "10.0.2.15/24"
	gateway = "10.0.2.2" // the host's loopback
)

func setUpNetwork() error {
	// Pods have addresses of QEMU's network, for which the guest answers, so that they reach the API server.
	for _, setting := range []string{"ip_forward", "conf/all/proxy_arp"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+setting, []byte("1"), 0o644); err != nil {
			return err
		}
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	own, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	// Otherwise the kernel adds all RDMA devices to every network namespace, with 1024 GIDs each, which takes a
	// second here. Pods with traffic need it: in mode exclusive perftest sees no device in a pod's namespace.
	if told("rdma") != "shared" {
		if err := netlink.RdmaSystemSetNetnsMode("exclusive"); err != nil {
			return fmt.Errorf("keep RDMA devices in their network namespace: %w", err)
		}
	}
	return errors.Join(
		netlink.LinkSetUp(loopback),
		netlink.LinkSetUp(link),
		netlink.AddrAdd(link, own),
		netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)}),
	)
}

// createVFs creates VFs on every NIC, by default as many as the host requests.
func createVFs() error {
	number := told("vfs")
	if wanted, err := os.ReadFile("/etc/vfs"); err == nil {
		number = strings.TrimSpace(string(wanted))
	}
	files, err := filepath.Glob("/sys/bus/pci/drivers/igb/*/sriov_numvfs")
	if err == nil && len(files) == 0 {
		err = errors.New("no NIC has VFs")
	}
	if err != nil {
		return err
	}
	var all errgroup.Group // each takes the kernel some time
	for _, file := range files {
		all.Go(func() error { return os.WriteFile(file, []byte(number), 0o644) })
	}
	return all.Wait()
}

// createRDMA creates a software RDMA device over every NIC and VF without one, with mlx5's names: NICs first.
// Recreated VFs get their former names.
func createRDMA() error {
	number := 0
	for _, driver := range []string{"igb", "igbvf"} {
		netdevs, err := filepath.Glob("/sys/bus/pci/drivers/" + driver + "/0*/net/*")
		if err != nil {
			return err
		}
		for _, netdev := range netdevs {
			name := "mlx5_" + strconv.Itoa(number)
			number++
			if _, err := os.Stat("/sys/class/infiniband/" + name); err == nil {
				continue
			}
			if err := netlink.RdmaLinkAdd(name, "rxe", filepath.Base(netdev)); err != nil {
				return fmt.Errorf("add %s to %s: %w", name, netdev, err)
			}
		}
	}
	return nil
}
