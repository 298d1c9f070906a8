// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/test/amdsmi"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// fatal is a counter of a GPU's PCI Express errors: an increase makes the GPU unhealthy, and is a reason for
// a discovery of all GPUs.
type fatal string

// newFatal creates the counter of a GPU.
func newFatal(t *testing.T, sysfs, address string) fatal {
	t.Helper()
	file := filepath.Join(sysfs, "bus/pci/devices", address, "aer_dev_fatal")
	write(t, file, "TOTAL_ERR_FATAL 0\n")
	return fatal(file)
}

// increase changes the counter in place, as the kernel does.
func (f fatal) increase(t *testing.T) {
	t.Helper()
	file, err := os.OpenFile(string(f), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("TOTAL_ERR_FATAL 1\n"); err != nil {
		t.Fatal(err)
	}
}

// TestMemoryErrorLasts: a GPU with a memory error stays unhealthy until the next check, also if another GPU
// becomes unhealthy before.
func TestMemoryErrorLasts(t *testing.T) {
	flags := layout(t, "oci-mi300x-derived")
	description, err := amdsmi.Describe(os.DirFS(flags.SysfsRoot))
	if err != nil {
		t.Fatal(err)
	}
	first := newFatal(t, flags.SysfsRoot, "0000:11:00.0")
	second := newFatal(t, flags.SysfsRoot, "0000:2f:00.0")
	if err := flags.DeviceHealth.Set("on"); err != nil {
		t.Fatal(err)
	}
	flags.DeviceHealth.Interval = 50 * time.Millisecond
	own := pulsing(amd.Single, time.Hour)
	own.Library = amdsmi.Build(t, description)
	kubelet := kubelettest.Start(t, flags.KubeletDir)
	start(t, flags, own)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	awaitHealth(t, plugin, "")
	const broken, line = "0000:da:00.0", "206141652992 0\n" // the memory of the last GPU, and its errors
	at := strings.LastIndex(description, line)
	amdsmi.Say(t, own.Library, description[:at]+"206141652992 1\n"+description[at+len(line):])
	first.increase(t)
	awaitHealth(t, plugin, "0000:11:00.0 "+broken) // control
	second.increase(t)
	for {
		list := unhealthy(kubelettest.Await(t, plugin.Lists))
		if !strings.Contains(list, "0000:2f:00.0") {
			continue
		}
		if !strings.Contains(list, broken) {
			t.Errorf("unhealthy are %s: the memory error was over with the fault of another GPU", list)
		}
		return
	}
}
