package main

import (
	"fmt"
	"os/exec"
	"strconv"
)

// The machine is shaped like a node with eight MI300X: two sockets, four switches under each; below every switch a NIC and,
// one switch further down and behind the bridge pair that such a card brings, a GPU.
const (
	sockets           = 2
	switchesPerSocket = 4
	cores             = 2    // of a socket; more wait for each other, since the host has no more
	memory            = 2560 // MiB; from 2816 on the firmware runs out of room for so many bridges below 4 GiB
	nodeName          = "mi300x"
)

// qemu makes the command line of a machine with this many VFs on every NIC.
func (c *cache) qemu(vfsPerPF int) *exec.Cmd {
	kernel, _ := c.kernelVersion() // it was built from
	share := c.path("root/usr/share")
	args := []string{
		"-L", share + "/qemu", "-L", share + "/seabios", "-L", c.path("root/usr/lib/ipxe/qemu"),
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35",
		"-smp", fmt.Sprintf("%d,sockets=%d,cores=%d", sockets*cores, sockets, cores), "-m", strconv.Itoa(memory) + "M",
		"-kernel", c.path("root/boot/vmlinuz-" + kernel), "-initrd", c.path("initramfs.cpio"),
		"-append", "console=ttyS0 panic=-1 quiet maxcpus=1 mitigations=off nokaslr random.trust_cpu=on tandem.vfs=" + strconv.Itoa(vfsPerPF),
		"-drive", "file=" + c.path("root.ext4") + ",format=raw,if=none,id=root,snapshot=on,cache=unsafe",
		"-device", "virtio-blk-pci,drive=root,bus=pcie.0",
		"-drive", "file=" + c.path("files.tar") + ",format=raw,if=none,id=files,readonly=on",
		"-device", "virtio-blk-pci,drive=files,bus=pcie.0",
		"-netdev", "user,id=node,hostfwd=tcp:10.0.2.15:10250-:10250,hostfwd=tcp:10.0.2.15:8080-:8080",
		"-device", "virtio-net-pci,netdev=node,bus=pcie.0,romfile=",
	}
	for socket := range sockets {
		args = append(args, numaNode(socket)...)
	}
	args = append(args, "-numa", "dist,src=0,dst=1,val=21")
	for socket := range sockets {
		for i := range switchesPerSocket {
			args = append(args, switchBelow(socket, socket*switchesPerSocket+i)...)
		}
	}
	cmd := tool(c.path("root"), "usr/bin/qemu-system-x86_64", args...)
	cmd.Env = []string{"QEMU_MODULE_DIR=" + c.path("root/usr/lib/x86_64-linux-gnu/qemu"), "TMPDIR=" + c.path("run")}
	return cmd
}

// numaNode is a socket with its CPUs, its memory and its host bridge.
func numaNode(n int) []string {
	return []string{
		"-object", fmt.Sprintf("memory-backend-ram,id=memory%d,size=%dM", n, memory/sockets),
		"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=memory%d", n, cores*n, cores*n+cores-1, n),
		"-device", fmt.Sprintf("pxb-pcie,id=socket%d,bus_nr=%d,numa_node=%d,bus=pcie.0", n, 32+96*n, n),
	}
}

// switchBelow is a root port of a socket and what hangs on it: a switch, and below it a switch with the NIC and the card.
func switchBelow(socket, n int) []string {
	b := &bridges{id: "s" + strconv.Itoa(n), number: 16 * (n + 1)}
	b.add("pcie-root-port", "root", fmt.Sprintf("socket%d", socket))
	b.add("x3130-upstream", "outer", b.id+"root")
	b.add("xio3130-downstream", "outerport", b.id+"outer")
	b.add("x3130-upstream", "inner", b.id+"outerport")
	b.add("xio3130-downstream", "nicport", b.id+"inner")
	b.add("xio3130-downstream", "cardport", b.id+"inner")
	b.add("x3130-upstream", "card", b.id+"cardport")
	b.add("xio3130-downstream", "gpuport", b.id+"card")
	return append(b.args,
		"-netdev", fmt.Sprintf("user,id=nic%d,restrict=on", n),
		"-device", fmt.Sprintf("igb,netdev=nic%d,bus=%snicport,romfile=", n, b.id),
		"-device", fmt.Sprintf("virtio-gpu-pci,bus=%sgpuport", b.id),
	)
}

// bridges are those of one switch. Ports with a slot have a number of their own in the machine.
type bridges struct {
	id     string
	number int
	args   []string
}

func (b *bridges) add(kind, name, bus string) {
	device := fmt.Sprintf("%s,id=%s%s,bus=%s", kind, b.id, name, bus)
	if kind != "x3130-upstream" {
		b.number++
		device += fmt.Sprintf(",chassis=%d,slot=%d", b.number, b.number%32)
	}
	b.args = append(b.args, "-device", device)
}
