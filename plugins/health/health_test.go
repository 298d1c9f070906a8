// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pf = "0000:41:00.0"

func address(t testing.TB, text string) topology.Address {
	t.Helper()
	a, err := topology.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// node is a machine with PFs below a port, on a disk.
type node struct {
	t      testing.TB
	root   string
	values map[string]string
}

func newNode(t testing.TB, functions ...string) *node {
	t.Helper()
	n := &node{t: t, root: t.TempDir(), values: map[string]string{}}
	for _, f := range functions {
		dir := filepath.Join("devices/pci0000:40/0000:40:01.0", f)
		n.write(dir, map[string]string{
			"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "64.0 GT/s PCIe",
			"current_link_width": "16", "max_link_width": "16",
			"aer_dev_correctable": "RxErr 1\nTOTAL_ERR_COR 1", "aer_dev_nonfatal": "TLP 0\nTOTAL_ERR_NONFATAL 0",
			"aer_dev_fatal":  "TLP 0\nTOTAL_ERR_FATAL 0",
			"net/eth0/flags": "0x1003", "net/eth0/carrier": "1", "net/eth0/carrier_up_count": "1",
			"net/eth0/carrier_changes": "2", "net/eth0/phys_port_name": "p0",
			"net/eth0_1/flags": "0x1003", "net/eth0_1/carrier": "0", "net/eth0_1/carrier_up_count": "1",
			"net/eth0_1/phys_port_name": "pf0vf1",
			"net/ib0.8005/flags":        "0x1003", "net/ib0.8005/carrier": "1", "net/ib0.8005/carrier_up_count": "1",
			"net/ib0.8005/type":                    "32",
			"infiniband/mlx5_0/ports/1/link_layer": "Ethernet", "infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
		})
		for _, r := range defaultRules {
			dir := dir + "/infiniband/mlx5_0/ports/1/"
			switch {
			case strings.HasPrefix(r.Counter, "aer_") || r.Counter == "carrier_changes":
			case strings.HasSuffix(r.Counter, "_err") || strings.HasPrefix(r.Counter, "roce"):
				n.write(dir+"hw_counters", map[string]string{r.Counter: "7"})
			default:
				n.write(dir+"counters", map[string]string{r.Counter: "7"})
			}
		}
		n.write("bus/pci/devices", nil)
		if err := os.Symlink("../../../"+dir, filepath.Join(n.root, "bus/pci/devices", f)); err != nil {
			t.Fatal(err)
		}
	}
	n.write("devices/pci0000:40/0000:40:01.0", map[string]string{
		"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16",
	})
	if err := os.Symlink("../../../devices/pci0000:40/0000:40:01.0",
		filepath.Join(n.root, "bus/pci/devices/0000:40:01.0")); err != nil {
		t.Fatal(err)
	}
	return n
}

// write writes files in place, as the kernel changes them.
func (n *node) write(dir string, files map[string]string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.root, dir), 0o750); err != nil {
		n.t.Fatal(err)
	}
	for name, content := range files {
		file := filepath.Join(n.root, dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			n.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content+"\n"), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
}

// set changes a file of the PF.
func (n *node) set(file, content string) {
	n.t.Helper()
	n.write(filepath.Join("bus/pci/devices", pf), map[string]string{file: content})
}

// infiniband makes the PF's port an InfiniBand port, without an Ethernet netdev.
func (n *node) infiniband() {
	n.t.Helper()
	n.set("infiniband/mlx5_0/ports/1/link_layer", "InfiniBand")
	if err := os.RemoveAll(filepath.Join(n.root, "bus/pci/devices", pf, "net/eth0")); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) sys() fs.FS { return os.DirFS(n.root) }

// clock looks at a node at made-up times.
type clock struct {
	*Monitor
	now time.Time
}

func newClock(n *node, config Config, functions ...string) *clock {
	c := &clock{New(config, n.sys()), time.Unix(1e9, 0)}
	watched := map[topology.Address]bool{}
	for _, f := range functions {
		watched[address(n.t, f)] = false
	}
	c.Watch(watched)
	return c
}

// after looks every interval for some time, and returns the last verdict about the PF.
func (c *clock) after(t testing.TB, d time.Duration) Verdict {
	t.Helper()
	for until := c.now.Add(d); c.now.Before(until); {
		c.now = c.now.Add(c.config.Interval)
		c.readAll(c.now)
	}
	return c.Verdict(address(t, pf))
}

const (
	counters = "infiniband/mlx5_0/ports/1/counters/"
	hardware = "infiniband/mlx5_0/ports/1/hw_counters/"
)

// Each cause makes a function worse at the next look, within the five seconds in which a failed port must be
// withdrawn, and the function is good again after the quiet time. A state that cannot be read keeps its
// cause.
func TestCauses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, value string
		state       State
		reason      string
		back        string // value without the cause; "" if the new value is none
	}{
		{counters + "link_downed", "8", Failed, "link_downed increased", ""},
		{counters + "excessive_buffer_overrun_errors", "8", Failed,
			"excessive_buffer_overrun_errors increased", ""},
		{counters + "local_link_integrity_errors", "8", Failed, "local_link_integrity_errors increased", ""},
		{hardware + "rnr_nak_retry_err", "8", Failed, "rnr_nak_retry_err increased", ""},
		{counters + "symbol_error", "127", Degraded, "symbol_error increased by more than 100 in 10s", ""},
		{counters + "link_error_recovery", "13", Degraded,
			"link_error_recovery increased by more than 5 in 1m", ""},
		{counters + "port_rcv_errors", "108", Degraded, "port_rcv_errors increased by more than 100 in 10s", ""},
		{hardware + "local_ack_timeout_err", "18", Degraded,
			"local_ack_timeout_err increased by more than 10 in 10s", ""},
		{counters + "port_xmit_discards", "1008", Degraded,
			"port_xmit_discards increased by more than 1000 in 10s", ""},
		{hardware + "roce_slow_restart", "108", Degraded,
			"roce_slow_restart increased by more than 100 in 10s", ""},
		{"net/eth0/carrier_changes", "4", Degraded, "carrier_changes increased by more than 1 in 1m", ""},
		{"aer_dev_fatal", "TLP 1\nTOTAL_ERR_FATAL 1", Failed, "aer_fatal increased", ""},
		{"aer_dev_nonfatal", "TLP 1\nTOTAL_ERR_NONFATAL 1", Degraded, "aer_nonfatal increased", ""},
		{"aer_dev_correctable", "RxErr 102\nTOTAL_ERR_COR 102", Degraded,
			"aer_correctable increased by more than 100 in 10s", ""},
		{"net/eth0/carrier", "0", Failed, "netdev eth0 is without carrier", "1"},
		{"infiniband/mlx5_0/ports/1/state", "1: DOWN", Failed, "port mlx5_0/1 is DOWN", "4: ACTIVE"},
		{"current_link_width", "8", Degraded, "PCIe width 8 of 16", "16"},
		{"current_link_speed", "16.0 GT/s PCIe", Degraded, "PCIe speed 16 of 32 GT/s", "32.0 GT/s PCIe"},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pf)
			if strings.HasSuffix(c.file, "/state") {
				n.infiniband()
			}
			monitor := newClock(n, Default(), pf)
			if v := monitor.after(t, 3*time.Minute); v != (Verdict{}) {
				t.Fatalf("at first %v", v)
			}
			n.set(c.file, c.value)
			want := Verdict{c.state, c.reason}
			if v := monitor.after(t, monitor.config.Interval); v != want {
				t.Fatalf("got %v, want %v", v, want)
			}
			if c.back != "" {
				n.set(c.file, "?")
				if v := monitor.after(t, 3*time.Minute); v != want {
					t.Errorf("while the file cannot be read %v", v)
				}
				n.set(c.file, c.back)
			}
			if v := monitor.after(t, 50*time.Second); v != want {
				t.Errorf("within the quiet time %v", v)
			}
			if v := monitor.after(t, 2*time.Minute); v != (Verdict{}) {
				t.Errorf("after the quiet time %v", v)
			}
		})
	}
}

// Values that say nothing about the port are no causes.
func TestNoCauses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]map[string]string{
		"a counter that is reset":           {counters + "link_downed": "0"},
		"one change of the carrier":         {"net/eth0/carrier_changes": "3"},
		"a netdev that is switched off":     {"net/eth0/flags": "0x1002", "net/eth0/carrier": "0"},
		"a representor":                     {"net/eth0_1/carrier": "0"},
		"a partition without a group":       {"net/ib0.8005/carrier": "0"},
		"no number":                         {counters + "link_downed": "-"},
		"an unknown speed":                  {"current_link_speed": "Unknown"},
		"more than both ends of a link can": {"current_link_width": "16", "max_link_width": "32"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pf)
			monitor := newClock(n, Default(), pf)
			monitor.after(t, time.Minute)
			for file, value := range change {
				n.set(file, value)
			}
			if v := monitor.after(t, 3*time.Minute); v != (Verdict{}) {
				t.Errorf("got %v", v)
			}
		})
	}
}

// The reason is text for other pods' events whatever name a pod has given to its netdev or RDMA device.
func TestOddName(t *testing.T) {
	t.Parallel()
	const name = "\x1b[2J\u202e"
	n := newNode(t, pf)
	n.set("net/eth0/flags", "0x1002")
	n.set("net/"+name+"/flags", "0x1003")
	n.set("net/"+name+"/carrier", "0")
	want := Verdict{Failed, `netdev "\x1b[2J\u202e" is without carrier`}
	if got := newClock(n, Default(), pf).after(t, time.Second); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	n = newNode(t, pf)
	n.infiniband()
	n.set("infiniband/"+name+"/ports/1/link_layer", "InfiniBand")
	n.set("infiniband/"+name+"/ports/1/state", "1: DOWN")
	want = Verdict{Degraded, `port "\x1b[2J\u202e"/1 is DOWN`}
	if got := newClock(n, Default(), pf).after(t, time.Second); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSeveralPorts: of several ports of a function the best counts. With a link on one of them the function
// is degraded, with the port in the reason; without any link it has failed.
func TestSeveralPorts(t *testing.T) {
	t.Parallel()
	n := newNode(t, pf)
	for _, port := range []string{"net/eth0/", "net/eth1/"} {
		for file, value := range map[string]string{"flags": "0x1003", "carrier": "1", "carrier_up_count": "1"} {
			n.set(port+file, value)
		}
	}
	monitor := newClock(n, Default(), pf)
	monitor.after(t, time.Minute)
	n.set("net/eth1/carrier", "0")
	want := Verdict{Degraded, "netdev eth1 is without carrier"}
	if v := monitor.after(t, 5*time.Minute); v != want {
		t.Errorf("with one of two links %v, want %v", v, want)
	}
	n.set("net/eth0/carrier", "0")
	if v := monitor.after(t, monitor.config.Interval); v.State != Failed {
		t.Errorf("without a link %v", v)
	}
	n.set("net/eth1/carrier", "1")
	want.Reason = "netdev eth0 is without carrier"
	if v := monitor.after(t, 2*time.Minute); v != want {
		t.Errorf("with the other link %v, want %v", v, want)
	}
}

// TestSeveralInfiniBandPorts: a function with a link on one of two InfiniBand ports has not failed.
func TestSeveralInfiniBandPorts(t *testing.T) {
	t.Parallel()
	n := newNode(t, pf)
	n.infiniband()
	n.set("infiniband/mlx5_0/ports/2/link_layer", "InfiniBand")
	n.set("infiniband/mlx5_0/ports/2/state", "1: DOWN")
	if v := newClock(n, Default(), pf).after(t, time.Minute); v != (Verdict{Degraded, "port mlx5_0/2 is DOWN"}) {
		t.Errorf("with one of two links %v", v)
	}
}

// A port that has never had a link is chosen last, but offered; after a restart of the daemon too.
func TestNeverUp(t *testing.T) {
	t.Parallel()
	n := newNode(t, pf)
	n.set("net/eth0/carrier", "0")
	n.set("net/eth0/carrier_up_count", "0")
	want := Verdict{Degraded, "netdev eth0 is without carrier since its creation"}
	if v := newClock(n, Default(), pf).after(t, time.Second); v != want {
		t.Errorf("got %v, want %v", v, want)
	}
	n.set("net/eth0/carrier_up_count", "1")
	if v := newClock(n, Default(), pf).after(t, time.Second); v.State != Failed {
		t.Errorf("a port that had a link is %v", v)
	}
}

// TestInfiniBandNeverUp: an InfiniBand port that has never had a link counts its downs: none.
func TestInfiniBandNeverUp(t *testing.T) {
	t.Parallel()
	n := newNode(t, pf)
	n.infiniband()
	n.set("infiniband/mlx5_0/ports/1/state", "1: DOWN")
	n.set(counters+"link_downed", "0")
	want := Verdict{Degraded, "port mlx5_0/1 is DOWN since its creation"}
	if v := newClock(n, Default(), pf).after(t, time.Second); v != want {
		t.Errorf("got %v, want %v", v, want)
	}
}

// A link that goes up and down changes the state at most once a minute.
func TestFlapping(t *testing.T) {
	t.Parallel()
	n := newNode(t, pf)
	monitor := newClock(n, Default(), pf)
	monitor.after(t, time.Minute)
	changes, before := 0, Good
	for i := range 600 { // twenty minutes
		n.set("net/eth0/carrier", fmt.Sprint(i%7%2))
		v := monitor.after(t, monitor.config.Interval)
		if v.State != before {
			changes, before = changes+1, v.State
		}
	}
	if changes != 1 {
		t.Errorf("%d changes of the state", changes)
	}
}

// A port that drops packets is not good again because its counter of 16 bits is full; a reset ends the state.
func TestFullCounter(t *testing.T) {
	t.Parallel()
	n := newNode(t, pf)
	monitor := newClock(n, Default(), pf)
	for value := 0; value < 80_000; value += 2000 {
		n.set(counters+"port_xmit_discards", fmt.Sprint(min(value, 1<<16-1)))
		monitor.after(t, monitor.config.Interval)
	}
	if v := monitor.after(t, 5*time.Minute); v.State != Degraded {
		t.Errorf("with a full counter %v", v)
	}
	n.set(counters+"port_xmit_discards", "0")
	if v := monitor.after(t, 2*time.Minute); v != (Verdict{}) {
		t.Errorf("after a reset %v", v)
	}
	n.set(counters+"port_rcv_errors", "65535")
	if v := newClock(n, Default(), pf).after(t, 5*time.Minute); v != (Verdict{}) {
		t.Errorf("a counter that was full before: %v", v)
	}
}

// A function whose driver is loaded again begins anew, with the new files.
func TestDriverReload(t *testing.T) {
	t.Parallel()
	n := newNode(t, pf)
	monitor := newClock(n, Default(), pf)
	monitor.after(t, time.Minute)
	dir := filepath.Join(n.root, "bus/pci/devices", pf, "infiniband")
	if err := os.Rename(dir, dir+".gone"); err != nil {
		t.Fatal(err)
	}
	monitor.after(t, 3*time.Minute)
	if err := os.Rename(dir+".gone", dir); err != nil {
		t.Fatal(err)
	}
	n.set(counters+"link_downed", "9")
	if v := monitor.after(t, 3*time.Minute); v != (Verdict{}) {
		t.Errorf("after the reload %v", v)
	}
	n.set(counters+"link_downed", "10")
	if v := monitor.after(t, monitor.config.Interval); v.State != Failed {
		t.Errorf("after a fault %v", v)
	}
}

// A port of a driver that comes later is judged at the next look after the change of the machine.
func TestLateDriver(t *testing.T) {
	t.Parallel()
	n := newNode(t, pf)
	net := filepath.Join(n.root, "bus/pci/devices", pf, "net")
	if err := os.Rename(net, net+".gone"); err != nil {
		t.Fatal(err)
	}
	monitor := newClock(n, Default(), pf)
	if v := monitor.after(t, 10*time.Second); v != (Verdict{}) {
		t.Fatalf("without a driver %v", v)
	}
	n.set("net.gone/eth0/carrier", "0")
	if err := os.Rename(net+".gone", net); err != nil {
		t.Fatal(err)
	}
	monitor.Watch(map[topology.Address]bool{address(t, pf): false})
	if v := monitor.after(t, monitor.config.Interval); v.State != Failed {
		t.Errorf("with a driver %v", v)
	}
}

// A device that does not answer does not delay the start of a daemon; its state is told later.
func TestSilentDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := topology.PCIDevices + "/" + pf + "/net/eth0/"
		answer := make(chan struct{})
		monitor := New(Default(), functions.Faulty{
			Files: fstest.MapFS{
				dir + "flags": {Data: []byte("0x1003")}, dir + "carrier": {Data: []byte("0")},
				dir + "carrier_up_count": {Data: []byte("1")},
			},
			Fail: func(_, name string) error {
				if strings.HasSuffix(name, "/carrier") {
					<-answer
				}
				return nil
			},
		})
		monitor.Watch(map[topology.Address]bool{address(t, pf): false})
		monitor.Look()
		if v := monitor.Verdict(address(t, pf)); v != (Verdict{}) {
			t.Errorf("without an answer %v", v)
		}
		close(answer)
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan State, 1)
		done := make(chan error)
		go func() {
			done <- monitor.Run(ctx, func() { told <- monitor.Verdict(address(t, pf)).State })
		}()
		if state := <-told; state != Failed {
			t.Errorf("with an answer %v", state)
		}
		cancel()
		<-done
	})
}

// Thousands of periods with noise below every threshold raise no alarm.
func TestNoFalseAlarm(t *testing.T) {
	t.Parallel()
	config, random := Default(), rand.New(rand.NewPCG(1, 2))
	j := newJudge(&config, false)
	now := time.Unix(1e9, 0)
	values := map[counterKey]uint64{}
	budget := map[counterKey]float64{}
	for range scale.Rounds(10_000) {
		now = now.Add(config.Interval)
		for _, r := range config.Rules {
			c := counterKey{Name: r.Counter}
			rate := float64(r.Above) / r.Window.Seconds() * config.Interval.Seconds() * 0.9
			for _, s := range config.Rules { // the strictest rule of the counter
				if s.Counter == r.Counter {
					rate = min(rate, float64(s.Above)/s.Window.Seconds()*config.Interval.Seconds()*0.9)
				}
			}
			budget[c] += rate * random.Float64()
			step := uint64(budget[c])
			values[c] += step
			budget[c] -= float64(step)
		}
		if v := j.addSample(reading{Counters: values}, now); v != (Verdict{}) {
			t.Fatalf("at %s: %v", now, v)
		}
		for at, r := range j.rises {
			if len(r.points) > mostPoints+1 {
				t.Fatalf("%v has %d points", at, len(r.points))
			}
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"on": "on", "off": "off", "": "on",
		"port": "port", "link, port": "port,link", "counters": "counters", "port,link,counters": "on",
	} {
		var c Config
		if err := c.Set(text); err != nil || c.String() != want {
			t.Errorf("%q: got %q, %v; want %q", text, c.String(), err, want)
		}
	}
	for text, want := range map[string]string{
		"x":        `"x" is none of on, off, and port, link, counters with commas between`,
		"off,port": `"off" is none of`, "port,": `"" is none of`, "quiet=5m": `"quiet=5m" is none of`,
	} {
		var c Config
		if err := c.Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// BenchmarkLook reads eight PFs once, as a daemon does every two seconds; 0.1 % of a core is 2 ms.
func BenchmarkLook(b *testing.B) {
	var functions []string
	for i := range 8 {
		functions = append(functions, fmt.Sprintf("0000:%02x:00.0", 0x41+i))
	}
	n := newNode(b, functions...)
	c := newClock(n, Default(), functions...)
	for b.Loop() {
		c.now = c.now.Add(2 * time.Second)
		c.readAll(c.now)
	}
}

// TestUnreadKind: a netdev or port whose kind cannot be read is not judged until it can.
func TestUnreadKind(t *testing.T) {
	t.Parallel()
	n := newNode(t, pf)
	n.infiniband()
	n.set("net/ib0.8005/carrier", "0") // of a partition's multicast group
	n.set("infiniband/mlx5_0/ports/1/state", "1: DOWN")
	n.set(counters+"link_downed", "0")
	monitor := newClock(n, Default(), pf)
	for _, step := range []struct {
		file string
		want Verdict
	}{
		{"infiniband/mlx5_0/ports/1/link_layer", Verdict{}},
		{"net/ib0.8005/type", Verdict{Degraded, "port mlx5_0/1 is DOWN since its creation"}},
	} {
		file := filepath.Join(n.root, "bus/pci/devices", pf, step.file)
		content, err := os.ReadFile(file)
		if err := errors.Join(err, os.Remove(file), os.Mkdir(file, 0o750)); err != nil {
			t.Fatal(err)
		}
		if v := newClock(n, Default(), pf).after(t, time.Second); v != step.want {
			t.Errorf("without %s: %v, want %v", step.file, v, step.want)
		}
		monitor.after(t, time.Second)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		n.set(step.file, strings.TrimSpace(string(content)))
	}
	want := Verdict{Degraded, "port mlx5_0/1 is DOWN since its creation"}
	if v := monitor.after(t, 2*time.Second); v != want {
		t.Errorf("got %v, want %v", v, want)
	}
}

// TestLinkWithoutSpeed: a speed that no file tells keeps no width.
func TestLinkWithoutSpeed(t *testing.T) {
	t.Parallel()
	n := newNode(t, pf)
	if err := os.Remove(filepath.Join(n.root, "bus/pci/devices", pf, "current_link_speed")); err != nil {
		t.Fatal(err)
	}
	n.set("current_link_width", "8")
	monitor := newClock(n, Default(), pf)
	want := Verdict{Degraded, "PCIe width 8 of 16"}
	if v := monitor.after(t, time.Second); v != want {
		t.Errorf("got %v, want %v", v, want)
	}
	n.set("current_link_width", "16")
	if v := monitor.after(t, 3*time.Minute); v != (Verdict{}) {
		t.Errorf("after the quiet time %v", v)
	}
}
