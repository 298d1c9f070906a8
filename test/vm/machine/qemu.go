// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/test/vm/build"
)

// Settings are the owner's settings before the boot.
type Settings struct {
	VFsPerPF     int  // the owner may change the number later
	PlainKubelet bool // starts with nothing but its own configuration
	SharedRDMA   bool // every network namespace has all RDMA devices, as by default
}

// cpu has all features that can be emulated, except those that slow emulation down: instructions that copy a
// byte at a time, a fifth level of page tables, protection switched by every system call, and wide registers,
// saved at every process switch.
const cpu = "max,erms=off,fsrm=off,la57=off,smap=off,smep=off,umip=off,pku=off,xsave=off"

// kernelWords make the boot fast. pci=realloc=off limits the kernel to one attempt to find room for devices
// that the firmware left out: this suffices for the VFs, and the kernel would spend 20 s on I/O ports. The
// last two lines disable features that are expensive in emulation and not tested.
const kernelWords = "console=ttyS0 panic=-1 quiet random.trust_cpu=on nokaslr pci=realloc=off maxcpus=1 " +
	"mitigations=off lsm= audit=0 psi=0 " +
	"init_on_alloc=0 transparent_hugepage=never clearcpuid=rep_good "

// isolated reserves the last CPU of each socket for containers with exclusive CPUs. All CPUs would mostly
// wait for each other, since the host has fewer.
func isolated() string {
	var last []string
	for n := range sockets {
		last = append(last, strconv.Itoa(cores*n+cores-1))
	}
	return "isolcpus=" + strings.Join(last, ",") + " "
}

// qemu returns the command line of a machine.
func qemu(c *build.Cache, s Shape, o Settings) *exec.Cmd {
	kernel, _ := c.KernelVersion() // built from the same kernel
	share := c.Path("root/usr/share")
	words := fmt.Sprintf("tandem.vfs=%d tandem.gpus=%s", o.VFsPerPF, s.vendor)
	if o.PlainKubelet {
		words += " tandem.kubelet=plain"
	}
	if o.SharedRDMA {
		words += " tandem.rdma=shared"
	}
	args := []string{
		"-L", share + "/qemu", "-L", share + "/seabios", "-L", c.Path("root/usr/lib/ipxe/qemu"),
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio",
		"-accel", "tcg,thread=multi", "-cpu", cpu,
		// otherwise QEMU rebuilds the memory map of every CPU whenever a bridge window changes
		"-machine", "q35,smm=off",
		"-smp", fmt.Sprintf("%d,sockets=%d,cores=%d", sockets*cores, sockets, cores), "-m",
		strconv.Itoa(memory) + "M",
		"-kernel", c.Path("root/boot/vmlinuz-" + kernel), "-initrd", c.Path("initramfs.cpio"),
		"-append", kernelWords + isolated() + slowClock() + words,
		"-drive", "file=" + c.Path("root.ext4") + ",format=raw,if=none,id=root,snapshot=on,cache=unsafe",
		"-device", "virtio-blk-pci,drive=root,bus=pcie.0",
		"-drive", "file=" + c.Path("files.tar") + ",format=raw,if=none,id=files,readonly=on",
		"-device", "virtio-blk-pci,drive=files,bus=pcie.0",
		"-netdev", "user,id=node,hostfwd=tcp:10.0.2.15:10250-:10250,hostfwd=tcp:10.0.2.15:8080-:8080",
		"-device", "virtio-net-pci,netdev=node,bus=pcie.0,romfile=",
	}
	for n := range sockets {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=memory%d,size=%dM", n, memory/sockets),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=memory%d", n, cores*n, cores*n+cores-1, n))
	}
	args = append(args, "-numa", "dist,src=0,dst=1,val=21")
	for n, bus := range s.buses {
		b := &bridges{id: "s" + strconv.Itoa(n), number: 16 * (n + 1)}
		b.device("pxb-pcie,id=%sbus,bus_nr=%d,numa_node=%d,bus=pcie.0", b.id, bus, n*sockets/len(s.buses))
		b.add("pcie-root-port", "root", "bus")
		b.add("x3130-upstream", "switch", "root")
		s.below(b, n)
		args = append(args, b.args...)
	}
	cmd := c.Tool("usr/bin/qemu-system-x86_64", args...)
	modules := c.Path("root/usr/lib/x86_64-linux-gnu/qemu")
	cmd.Env = []string{"QEMU_MODULE_DIR=" + modules, "TMPDIR=" + c.Path("run")}
	return cmd
}

// slower is the factor by which the guest's clock is slowed down. An emulated CPU is more than ten times
// slower than a server's, and waits for its turn on a busy host; a slower clock makes time limits of 100 ms
// closer to those on a server.
const slower = 3

// slowClock returns kernel parameters with a too high frequency of the CPU's counter, which is the host's.
// They disable the checks that would contradict (arch/x86/kernel/tsc.c and apic/apic.c). It returns "" if the
// host's frequency is unknown.
func slowClock() string {
	content, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "cpu MHz" {
			continue
		}
		megahertz, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return ""
		}
		return fmt.Sprintf("tsc=reliable tsc_early_khz=%.0f pmtmr=0 hpet=disable ", slower*1000*megahertz)
	}
	return ""
}
