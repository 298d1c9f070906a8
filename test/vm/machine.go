package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Both machines have two sockets with the same switches.
const (
	sockets  = 2
	cores    = 2    // of a socket; more wait for each other, since the host has no more
	memory   = 2560 // MiB; from 2816 on the firmware runs out of room for so many bridges below 4 GiB
	nodeName = "node"
)

// machine is a server that is switched on once.
type machine struct {
	shape
	plain   bool // its kubelet starts with nothing but its owner's configuration, and a new user walks
	example bool // the shipped example is tried; where a new user walks it is part of that
	phases  []phase
}

// phase is what is tried between two boots. Its last set-up goes through more than its scenarios.
type phase struct {
	vfsPerPF int
	thorough bool // what takes longer is tried: faults and random admissions
	multus   bool // so is Multus
	setups   []setup
}

func (m machine) gpus() int { return len(m.buses) * m.perSwitch }

// shape is how a kind of server is built. Below every root bus there is one switch.
type shape struct {
	name      string
	server    string // of test/machines whose tree it has; "" for one of its own
	vendor    string // what the guest makes of its display devices: amd or nvidia
	resource  string // of the GPUs
	deploy    string // folder below deploy with Tandem as it is shipped
	job       string // the shipped example for it
	buses     []int  // root bus of every switch, the same number of them on each socket
	perSwitch int    // GPUs, and as many NICs
	below     func(b *bridges, n int)
}

// mi300x has the tree of a server with eight MI300X, to the bus numbers: one GPU and one NIC share a switch, each behind a
// switch further down, and the card brings two bridges of its own.
var mi300x = shape{
	name: "MI300X", server: "oci-mi300x-derived", vendor: "amd", resource: "amd.com/gpu", deploy: "tandem", job: "deployments/examples/amd-4x4.yaml",
	buses: []int{0x07, 0x25, 0x3c, 0x53, 0x81, 0xa0, 0xb8, 0xd0}, perSwitch: 1,
	below: func(b *bridges, n int) {
		b.add("xio3130-downstream", "nicside", "switch")
		b.add("xio3130-downstream", "gpuside", "switch")
		b.add("x3130-upstream", "nicswitch", "nicside")
		b.add("xio3130-downstream", "nicport", "nicswitch")
		b.nic(n, "nicport")
		b.add("x3130-upstream", "gpuswitch", "gpuside")
		b.add("xio3130-downstream", "gpuport", "gpuswitch")
		b.add("x3130-upstream", "card", "gpuport")
		b.add("xio3130-downstream", "cardport", "card")
		b.gpu("cardport")
	},
}

// h100 has two GPUs and two NICs on each of four switches.
var h100 = shape{
	name: "H100", vendor: "nvidia", resource: "nvidia.com/gpu", deploy: "nvidia", job: "deployments/examples/nvidia-4x4.yaml",
	buses: []int{0x15, 0x37, 0x95, 0xb7}, perSwitch: 2,
	below: func(b *bridges, n int) {
		for i := range 2 {
			port := "nicport" + strconv.Itoa(i)
			b.add("xio3130-downstream", port, "switch")
			b.nic(2*n+i, port)
		}
		for i := range 2 {
			port := "gpuport" + strconv.Itoa(i)
			b.add("xio3130-downstream", port, "switch")
			b.gpu(port)
		}
	},
}

// cpu is all that can be emulated but for what makes emulation slower: instructions that copy a byte at a time, a fifth level of page
// tables, protection that every system call switches, and wide registers, which every change of process has to save.
const cpu = "max,erms=off,fsrm=off,la57=off,smap=off,smep=off,umip=off,pku=off,xsave=off"

// kernelWords are for a machine that is quickly there. The kernel tries once to find room for what the firmware left
// (pci=realloc=off): that suffices for the VFs, and it would try for 20 s to find more for I/O ports. The last two lines leave out
// what costs much in emulation and is not looked at.
const kernelWords = "console=ttyS0 panic=-1 quiet random.trust_cpu=on nokaslr pci=realloc=off maxcpus=1 " +
	"mitigations=off lsm= audit=0 psi=0 " +
	"init_on_alloc=0 transparent_hugepage=never clearcpuid=rep_good "

// isolated leaves the last CPU of each socket to containers that have CPUs of their own: all of them would mostly wait for each other, since
// the host has fewer.
func isolated() string {
	var last []string
	for n := range sockets {
		last = append(last, strconv.Itoa(cores*n+cores-1))
	}
	return "isolcpus=" + strings.Join(last, ",") + " "
}

// qemu makes the command line of a machine, which has so many VFs per PF until its owner wants others.
func (c *cache) qemu(m machine, vfsPerPF int) *exec.Cmd {
	kernel, _ := c.kernelVersion() // it was built from
	share := c.path("root/usr/share")
	words := fmt.Sprintf("tandem.vfs=%d tandem.gpus=%s", vfsPerPF, m.vendor)
	if m.plain {
		words += " tandem.kubelet=plain"
	}
	args := []string{
		"-L", share + "/qemu", "-L", share + "/seabios", "-L", c.path("root/usr/lib/ipxe/qemu"),
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio",
		"-accel", "tcg,thread=multi", "-cpu", cpu,
		"-machine", "q35,smm=off", // else QEMU lays out the memory of every CPU anew whenever a window of a bridge is changed
		"-smp", fmt.Sprintf("%d,sockets=%d,cores=%d", sockets*cores, sockets, cores), "-m", strconv.Itoa(memory) + "M",
		"-kernel", c.path("root/boot/vmlinuz-" + kernel), "-initrd", c.path("initramfs.cpio"),
		"-append", kernelWords + isolated() + slowClock() + words,
		"-drive", "file=" + c.path("root.ext4") + ",format=raw,if=none,id=root,snapshot=on,cache=unsafe",
		"-device", "virtio-blk-pci,drive=root,bus=pcie.0",
		"-drive", "file=" + c.path("files.tar") + ",format=raw,if=none,id=files,readonly=on",
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
	for n, bus := range m.buses {
		b := &bridges{id: "s" + strconv.Itoa(n), number: 16 * (n + 1)}
		b.device("pxb-pcie,id=%sbus,bus_nr=%d,numa_node=%d,bus=pcie.0", b.id, bus, n*sockets/len(m.buses))
		b.add("pcie-root-port", "root", "bus")
		b.add("x3130-upstream", "switch", "root")
		m.below(b, n)
		args = append(args, b.args...)
	}
	cmd := tool(c.path("root"), "usr/bin/qemu-system-x86_64", args...)
	cmd.Env = []string{"QEMU_MODULE_DIR=" + c.path("root/usr/lib/x86_64-linux-gnu/qemu"), "TMPDIR=" + c.path("run")}
	return cmd
}

// slower is how much slower than the host's the guest's clock is. An emulated CPU is more than ten times slower than a server's,
// and waits for its turn on a busy host; with a clock that is slower too, time limits of 100 ms mean more nearly what they
// mean on a server.
const slower = 3

// slowClock tells the guest's kernel that the CPU's counter, which is the host's, is faster than it is. What would
// contradict it is switched off (arch/x86/kernel/tsc.c and apic/apic.c). It is "" where the host does not tell.
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

// bridges are what is below one root bus. Names are those within it.
type bridges struct {
	id     string
	number int // ports with a slot have one of their own in the machine
	args   []string
}

func (b *bridges) device(format string, args ...any) {
	b.args = append(b.args, "-device", fmt.Sprintf(format, args...))
}

func (b *bridges) add(kind, name, bus string) {
	slot := ""
	if !strings.HasSuffix(kind, "upstream") {
		b.number++
		slot = fmt.Sprintf(",chassis=%d,slot=%d", b.number, b.number%32)
	}
	b.device("%s,id=%s%s,bus=%s%s%s", kind, b.id, name, b.id, bus, slot)
}

func (b *bridges) nic(n int, bus string) {
	b.args = append(b.args, "-netdev", fmt.Sprintf("user,id=nic%d,restrict=on", n))
	b.device("igb,netdev=nic%d,bus=%s%s,romfile=", n, b.id, bus)
}

func (b *bridges) gpu(bus string) { b.device("virtio-gpu-pci,bus=%s%s", b.id, bus) }
