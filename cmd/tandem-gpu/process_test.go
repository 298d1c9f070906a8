// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/test/programs"
)

// program returns a folder with tandem-gpu, tandem-rdma and, as in the image, the stock plugin's name.
func program(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for link, name := range map[string]string{
		"tandem-gpu": "tandem-gpu", "tandem-rdma": "tandem-rdma", gpus.StockNVIDIA: "tandem-gpu",
	} {
		built := filepath.Join(programs.Build(t, name), name)
		if err := os.Symlink(built, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// execute starts tandem-gpu under a name, with additional variables, and ends it after the test.
func execute(t *testing.T, name string, variables []string, args ...string) *programs.Process {
	t.Helper()
	command := exec.Command(filepath.Join(program(t), name), args...)
	command.Args[0] = name
	command.Env = append(os.Environ(), variables...)
	return programs.Start(t, command)
}

// node is a machine in folders: sysfs, the kubelet's folder, a driver.
type node struct {
	*nvml.Driver
	dir  string
	args []string // with all paths
}

// nvidiaNode lays a machine with NVIDIA GPUs out, changed as the test likes.
func nvidiaNode(t *testing.T, machine string, change func(*nvml.Machine)) *node {
	t.Helper()
	flags := layout(t, machine)
	shown, err := nvml.Record(os.DirFS(flags.SysfsRoot))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&shown)
	}
	n := &node{Driver: nvml.Start(t, shown), dir: flags.KubeletDir}
	proc := filepath.Join(n.dir, "proc")
	write(t, filepath.Join(proc, "driver/nvidia-caps/mig-minors"), shown.Minors())
	for _, name := range append(shown.Nodes(), "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools") {
		write(t, filepath.Join(n.dir, "dev", name), "")
	}
	n.args = []string{
		"--sysfs-root=" + flags.SysfsRoot, "--run-dir=" + flags.RunDir, "--proc-root=" + proc,
		"--cdi-root=" + filepath.Join(n.dir, "cdi"),
		"--driver-root-ctr-path=" + n.Root, "--nvidia-recheck=200ms",
	}
	return n
}

// tandem returns the arguments of tandem-gpu under its own name.
func (n *node) tandem(args ...string) []string {
	return append(append([]string{"--kubelet-dir=" + n.dir, "--dev-root=" + filepath.Join(n.dir, "dev")},
		n.args...), args...)
}

// offers starts a kubelet and tandem-gpu, and returns the first plugin that registers.
func (n *node) offers(t *testing.T, variables []string, args ...string) (
	*kubelettest.Kubelet, *programs.Process, *kubelettest.Plugin,
) {
	t.Helper()
	kubelet := kubelettest.Start(t, n.dir)
	p := execute(t, "tandem-gpu", variables, n.tandem(args...)...)
	return kubelet, p, kubelettest.Await(t, kubelet.Plugins)
}

// fails returns the exit code and the last line of a tandem-gpu that cannot work, without its time.
func (n *node) fails(t *testing.T, args ...string) (code int, stdout, last string) {
	t.Helper()
	p := execute(t, "tandem-gpu", nil, n.tandem(args...)...)
	code = p.Exit(t)
	return code, "", strings.ReplaceAll(p.LastLine(), n.dir, "NODE") + "\n"
}

// failsHere is fails in this process, for AMD's GPUs, so that this test judges mutations of their driver.
func (n *node) failsHere(t *testing.T, args ...string) (code int, stdout, last string) {
	t.Helper()
	var flags daemon.Flags
	var f gpus.Flags
	own, stock := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Register(own)
	f.Register(own, stock)
	own.AddFlagSet(stock)
	err := own.Parse(append(n.tandem("--vendor=amd"), args...))
	if err == nil {
		_, err = flags.Dev()
	}
	if err == nil {
		err = f.Offer(t.Context(), "tandem-gpu", flags, serve, slog.New(slog.DiscardHandler))
	}
	if err == nil {
		return 0, "", ""
	}
	return 1, "", strings.ReplaceAll(fmt.Sprintf("tandem-gpu: %v\n", err), n.dir, "NODE")
}

// TestWrongInput: what tandem-gpu says that cannot work, on a machine with some of NVIDIA's GPUs in parts,
// and on one with some of AMD's.
func TestWrongInput(t *testing.T) {
	t.Attr("parity", "nvidia/fail-on-init-error")
	t.Attr("parity", "amd/flag-naming")
	t.Attr("parity", "amd/resource-name-single")
	for machine, file := range map[string]string{
		"nv-a100pcie-cx6dx-vf-partial": "nvidia", "oci-mi300x-derived": "amd",
	} {
		n := nvidiaNode(t, machine, func(m *nvml.Machine) {
			if file == "nvidia" {
				m.GPUs[1].Split(7, 0, 9984)
			}
		})
		if file == "amd" {
			partition := "sys/bus/pci/drivers/amdgpu/0000:11:00.0/current_compute_partition"
			replace(t, filepath.Join(n.dir, partition), "DPX")
		}
		run := n.fails
		if file == "amd" {
			run = n.failsHere
		}
		golden.Script{
			Run:  func(args []string) (code int, stdout, stderr string) { return run(t, args[1:]...) },
			Word: func(string) string { return t.TempDir() },
		}.Check(t, "testdata/"+file+".txt")
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
