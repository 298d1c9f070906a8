// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tandem-k8s/tandem/test/nvml"
)

const nvidia = "nvidia"

// Paths of the driver: its library, and its data in /proc.
const (
	driver  = "/run/nvidia"
	library = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
)

// h100 turns the parent function of a render node into an H100, in the files of NVIDIA's driver.
func (l *identity) h100(render string) {
	function := l.place(filepath.Dir(filepath.Dir(render)))
	for name, content := range map[string]string{"vendor": "0x10de", "device": "0x2330", "class": "0x030200"} {
		l.file(filepath.Join(function, name), content)
	}
	l.link(function+"/driver", "bus/pci/drivers/nvidia")
	l.link("bus/pci/drivers/nvidia/"+filepath.Base(function), function)
}

// installDriver creates the parts of NVIDIA's driver outside sysfs: device nodes, /proc/driver/nvidia, and
// NVML's data.
func installDriver() error {
	machine, err := nvml.Record(os.DirFS(sysroot))
	if err != nil {
		return err
	}
	for i, name := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"} {
		if err := character("/dev/"+name, 255-i); err != nil {
			return err
		}
	}
	for _, gpu := range machine.GPUs {
		folder := filepath.Join(driver, "proc/driver/nvidia/gpus", gpu.Address.String())
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		information := fmt.Sprintf("Model: \t\t %s\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %d\n",
			gpu.Name, gpu.UUID, gpu.Address, gpu.Minor)
		if err := os.WriteFile(folder+"/information", []byte(information), 0o444); err != nil {
			return err
		}
		if err := character(fmt.Sprintf("/dev/nvidia%d", gpu.Minor), gpu.Minor); err != nil {
			return err
		}
	}
	return machine.Write(driver + "/machine")
}

// completeContainer mounts the driver's library, its folder in /proc and the device nodes into a new
// container whose environment names GPUs, like NVIDIA's container runtime. It runs as a hook
// "createContainer" of the OCI runtime specification: in the container's mount namespace, before pivot_root.
func completeContainer() error {
	var state struct{ Bundle string }
	if err := json.NewDecoder(os.Stdin).Decode(&state); err != nil {
		return err
	}
	content, err := os.ReadFile(state.Bundle + "/config.json")
	if err != nil {
		return err
	}
	var config struct {
		Root    struct{ Path string }
		Process struct{ Env []string }
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return err
	}
	visible, named := "", false
	for _, variable := range config.Process.Env {
		if value, ok := strings.CutPrefix(variable, "NVIDIA_VISIBLE_DEVICES="); ok {
			visible, named = value, true // the last one counts: the first is the image's
		}
	}
	if !named {
		return nil
	}
	nodes, err := nodesOf(strings.Split(visible, ","))
	if err != nil {
		return err
	}
	root := config.Root.Path
	if !filepath.IsAbs(root) {
		root = filepath.Join(state.Bundle, root)
	}
	mounts := map[string]string{
		"/" + library: library, driver + "/machine": "run/nvidia-machine", driver + "/proc/driver": "proc/driver",
	}
	for _, node := range nodes {
		mounts["/"+node] = node
	}
	for from, to := range mounts {
		if err := bind(from, filepath.Join(root, to)); err != nil {
			return err
		}
	}
	return nil
}

// nodesOf returns the device nodes of GPUs by UUID, and the nodes that all GPUs share.
func nodesOf(uuids []string) ([]string, error) {
	nodes := []string{"dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-uvm-tools"}
	files, err := filepath.Glob(driver + "/proc/driver/nvidia/gpus/*/information")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		named, minor := false, ""
		for line := range strings.Lines(string(content)) {
			key, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimSpace(value); key {
			case "GPU UUID":
				named = slices.Contains(uuids, value)
			case "Device Minor":
				minor = value
			}
		}
		if named {
			nodes = append(nodes, "dev/nvidia"+minor)
		}
	}
	return nodes, nil
}

// bind bind-mounts a file or folder, and creates the missing target.
func bind(from, to string) error {
	if info, err := os.Stat(from); err != nil {
		return err
	} else if _, err := os.Stat(to); err != nil && !info.IsDir() {
		if err := unpackFile(to, 0o644, strings.NewReader("")); err != nil {
			return err
		}
	}
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s onto %s: %w", from, to, err)
	}
	return nil
}
