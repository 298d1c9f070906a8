// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// pool returns a configuration with one resource.
func pool(selectors string) string {
	return `{"resourceList": [{"resourceName": "vf", "selectors": {` + selectors + `}}]}`
}

// TestOffered: the devices that the kubelet gets, on machines with functions that a configuration selects and
// the node needs itself, or that it selects by a name in an unusual place.
func TestOffered(t *testing.T) {
	rdma, shared := pool(`"isRdma": true`), `{"configList": [
		{"resourceName": "vf", "rdmaHcaMax": 1, "selectors": {"vendors": ["15b3"]}}]}`
	bridges := slices.Concat(functions.Bridges, []string{"0000:75:00.0"})
	for _, c := range []struct {
		name   string
		sys    functions.Sysfs
		uplink string // netdev of the default route
		config string
		want   []string
	}{
		{name: "NICs", sys: functions.ConnectX7(), config: rdma, want: bridges},
		{
			name: "NVSwitch bridges",
			sys:  functions.ConnectX7(functions.Bridges...), config: rdma, want: []string{"0000:75:00.0"},
		},
		{
			name: "NVSwitch bridges, shared",
			sys:  functions.ConnectX7(functions.Bridges...), config: shared,
			want: []string{"0000:75:00.0::0"},
		},
		{name: "NIC of the default route", sys: twoPorts(), uplink: "ens1f0", config: rdma,
			want: []string{"0000:17:00.1", "0000:29:00.0"}},
		{
			name: "VF below a guest's uplink",
			sys:  twoPorts([]string{"eth0", "ens1f0"}), uplink: "eth0", config: rdma,
			want: []string{"0000:17:00.1", "0000:29:00.0"},
		},
		{
			name: "bond of the default route",
			sys:  twoPorts(bond), uplink: "bond0", config: rdma,
			want: []string{"0000:29:00.0"},
		},
		{
			name: "VLAN above a bond",
			sys:  twoPorts(bond, []string{"vlan7", "bond0"}), uplink: "vlan7", config: rdma,
			want: []string{"0000:29:00.0"},
		},
		{name: "netdev of the PF", sys: dpu(""), config: pool(`"pfNames": ["uplink0#1-3"]`), want: dpuVFs},
		{name: "VFs of a DPU by address", sys: dpu("virtio3/"), config: pool(`"rootDevices": ["0000:81:00.0#1-3"]`),
			want: dpuVFs},
		{
			name: "netdev of the PF below a virtio device",
			sys:  dpu("virtio3/"), config: pool(`"pfNames": ["uplink0#1-3"]`), want: dpuVFs,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.uplink != "" {
				needNamespaces(t)
			}
			n := nodeOf(t, c.sys.FS())
			n.write(t, "config.json", c.config)
			if got, log := n.offered(t, c.uplink); !slices.Equal(got, c.want) {
				t.Errorf("offers %v; want %v:\n%s", got, c.want, log)
			}
		})
	}
}

var allPorts = []string{"0000:17:00.0", "0000:17:00.1", "0000:29:00.0"}

var bond = []string{"bond0", "ens1f0", "ens1f1"}

// twoPorts returns a machine with a NIC of two ports, and another NIC. The first netdev of each list is above
// the others.
func twoPorts(uppers ...[]string) functions.Sysfs {
	s := functions.New()
	for i, netdev := range []string{"ens1f0", "ens1f1", "ens2"} {
		s.Function(allPorts[i], functions.Facts{"netdev": netdev, "rdma": fmt.Sprint("mlx5_", i)})
	}
	for _, upper := range uppers {
		s.Upper(upper[0], upper[1:]...)
	}
	return s
}

var dpuVFs = []string{"0000:81:00.2", "0000:81:00.3", "0000:81:00.4"}

// dpu returns a machine with a DPU bound to virtio-pci; its netdev is in a folder below the function.
func dpu(folder string) functions.Sysfs {
	s := functions.New()
	s.PF(0x81, "uplink0", 4, functions.Facts{
		"netdev": "", "driver": "virtio-pci", "vendor": "0x1af4", "device": "0x1041",
	})
	netdev := functions.Dir("0000:81:00.0") + "/" + folder + "net/uplink0"
	s.Write(netdev+"/type", "1")
	s.Symlink("class/net/uplink0", "../../"+netdev)
	return s
}

// offered runs the daemon until the kubelet has a list, or the log says that there is none, and returns the
// healthy devices.
func (n node) offered(t *testing.T, uplink string) (healthy []string, log string) {
	t.Helper()
	kubelet := kubelettest.Start(t, n.kubelet)
	cmd, _ := n.daemon(t.Context())
	if uplink != "" {
		cmd.SysProcAttr = namespaces()
		cmd.Env = append(cmd.Env, defaultRoute+"="+uplink, nodeSysfs+"="+n.path("sys"))
		cmd.Args = append(cmd.Args, "--sysfs-root=/sys")
	}
	said := awaited{part: "resource has no device", seen: make(chan struct{})}
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case plugin := <-kubelet.Plugins:
		healthy = healthyOf(kubelettest.Await(t, plugin.Lists))
	case <-said.seen:
	case <-time.After(kubelettest.Limit):
		end(t, cmd)
		t.Fatalf("nothing is registered, and nothing is said:\n%s", &said.log)
	}
	end(t, cmd)
	return healthy, said.log.String()
}

// awaited is a log in which a test awaits a text. It is read after the end of the program.
type awaited struct {
	part string
	seen chan struct{}
	log  bytes.Buffer
	once sync.Once
}

func (a *awaited) Write(text []byte) (int, error) {
	n, err := a.log.Write(text)
	if strings.Contains(a.log.String(), a.part) {
		a.once.Do(func() { close(a.seen) })
	}
	return n, err
}

func healthyOf(devices []*v1beta1.Device) (ids []string) {
	for _, d := range devices {
		if d.GetHealth() == v1beta1.Healthy {
			ids = append(ids, d.GetID())
		}
	}
	slices.Sort(ids)
	return ids
}

// end ends the daemon.
func end(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, cmd.Stderr)
	}
}
