// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
)

// What selectors reject and what is odd in the configuration is told at the start, and not again when the
// machine is looked at again.
func TestRejectedIsTold(t *testing.T) {
	var log bytes.Buffer
	c := config(t, `{"version": 1,
		"resourceList": [{"resourceName": "a", "selectors": {"vendors": ["8086"], "drivers": ["ice"]}}],
		"configList": [{"resourceName": "b", "rdmaHcaMax": 1, "selectors": {"ifNames": ["ens1"], "vendors": ["8086"]}}]}`)
	finder := pools.Finder{Sys: functions.Example().FS(), Prefix: "intel.com"}
	vfs, err := FindVFs(finder, c, Known{File: filepath.Join(t.TempDir(), "vfs.json")}, nil,
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	scan(t, vfs)
	for _, want := range []string{
		`note="key \"version\" is unknown and ignored"`,
		`msg="selector rejected devices" resource=intel.com/a selector=1 selected=1 rejected=8 by="vendors 7 (1 alone), drivers 7 (1 alone)" ` +
			`nearest="0000:82:00.2: vendors: want 8086, it has 15b3; 0000:85:00.0: drivers: want ice, it has e1000e"`,
		`msg="selector rejected devices" resource=rdma/b selector=1 selected=0 rejected=11 by="vendors 10 (1 alone), ifNames 10 (1 alone)" `,
	} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("not told once: %s\n%s", want, log.String())
		}
	}
}

// What a container holds stays listed over a restart of the daemon, whatever its namespaces hide.
func TestRestartWithVFsInContainers(t *testing.T) {
	t.Attr("parity", "sriov/restart-with-vfs-in-pods")
	const eth, ib, pf = "0000:81:00.1", "0000:83:00.1", "0000:84:00.0"
	machine := func() functions.Sysfs {
		s := functions.Example()
		s.Netdev(ib, "ibs3v0", "32")
		return s
	}
	for _, c := range []struct {
		name, selectors, id string
	}{
		{"RDMA", `{"isRdma": true, "pciAddresses": ["0000:81:00.1"]}`, eth},
		{"link type", `{"linkTypes": ["ether"], "pfNames": ["ens1#0"]}`, eth},
		{"InfiniBand", `{"linkTypes": ["infiniband"], "isRdma": true}`, ib},
		{"partition key", `{"pKeys": ["0x8001"]}`, ib},
		{"vendor", `{"vendors": ["15b3"], "pciAddresses": ["0000:81:00.1"]}`, eth},
		{"PF without VFs", `{"isRdma": true, "linkTypes": ["ether"], "pciAddresses": ["0000:84:00.0"]}`, pf},
	} {
		for _, mode := range []string{"shared", "exclusive"} {
			t.Run(c.name+" "+mode, func(t *testing.T) {
				s := machine()
				vfs := find(t, s.FS(), resources(`{"resourceName": "a", "selectors": `+c.selectors+`}`), "intel.com", nil)
				s.Hide(c.id, mode == "exclusive")
				if diff := cmp.Diff([]string{c.id}, state(restarted(t, vfs), "intel.com/a")); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// The RDMA device of a driver without an auxiliary device for it, whose link type says nothing either.
func TestHiddenFactsAreOfOneDriver(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 2, functions.Facts{"driver": "other"})
	vfs := find(t, s.FS(), resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`), "intel.com", nil)
	s.Hide("0000:81:00.1", true)
	s.Hide("0000:81:00.2", true)
	s.Symlink(functions.Dir("0000:81:00.2")+"/driver", "../../../../bus/pci/drivers/vfio-pci")
	want := []string{"0000:81:00.1", "0000:81:00.2 no longer selected by the resource"}
	if diff := cmp.Diff(want, state(restarted(t, vfs), "intel.com/a")); diff != "" {
		t.Error(diff)
	}
}

// A device that was listed is listed for ever: the kubelet dies of one that a container holds and that is no
// longer there.
func TestRestartWithoutVFs(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 2, functions.Facts{"numa_node": "1"})
	vfs := find(t, s.FS(), resources(`{"resourceName": "a"}`), "intel.com", nil)
	unplugFrom(s, "0000:81:00.2")
	after := restarted(t, vfs)
	if diff := cmp.Diff([]string{"0000:81:00.1", "0000:81:00.2 gone"}, state(after, "intel.com/a")); diff != "" {
		t.Error(diff)
	}
	pool, _ := after.latestPool("intel.com/a")
	if node, known := pool.Devices[1].NUMA.Number(); node != 1 || !known ||
		pool.Devices[1].PF != pool.Devices[0].PF {
		t.Errorf("the device that is gone is %+v", pool.Devices[1])
	}
}

// Of what was listed before, only what containers hold is listed on; what they hold is listed whether it was
// known or not.
func TestRestartKeepsWhatIsHeld(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 3, nil)
	before := find(t, s.FS(), resources(`{"resourceName": "a"}`), "intel.com", nil)
	unplugFrom(s, "0000:81:00.2", "0000:81:00.3")
	held := func() (map[string][]string, error) {
		return map[string][]string{
			"intel.com/a": {"0000:81:00.3", "0000:99:00.1"}, "nvidia.com/gpu": {"GPU-1"},
		}, nil
	}
	known := Known{File: before.known.File, Held: held}
	after := findAgain(t, before, known)
	if diff := cmp.Diff([]string{"0000:81:00.1", "0000:81:00.3 gone", "0000:99:00.1 gone"},
		state(after, "intel.com/a")); diff != "" {
		t.Error(diff)
	}
}

// A device that is gone is known until no container holds it and a scan has told of it; with the device, the
// properties go that containers hid. While the holders are unknown it stays.
func TestGoneDevicesAreForgotten(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 3, nil)
	holders, unknown := []string{"0000:81:00.3"}, error(nil)
	list := resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`)
	start := find(t, s.FS(), list, "intel.com", nil)
	known := Known{File: start.known.File, Held: func() (map[string][]string, error) {
		return map[string][]string{"intel.com/a": holders}, unknown
	}}
	vfs := findAgain(t, start, known)
	unplugFrom(s, "0000:81:00.2", "0000:81:00.3")
	for i, step := range []struct {
		unknown error
		holders []string
		want    []string
	}{
		{nil, holders, []string{"0000:81:00.1", "0000:81:00.2 gone", "0000:81:00.3 gone"}},
		{errors.New("damaged"), nil, []string{"0000:81:00.1", "0000:81:00.2 gone", "0000:81:00.3 gone"}},
		{nil, holders, []string{"0000:81:00.1", "0000:81:00.3 gone"}},
		{nil, nil, []string{"0000:81:00.1"}},
	} {
		holders, unknown = step.holders, step.unknown
		scan(t, vfs)
		if diff := cmp.Diff(step.want, state(vfs, "intel.com/a")); diff != "" {
			t.Errorf("scan %d: %s", i, diff)
		}
	}
	if got := slices.Collect(maps.Keys(vfs.memory.Hidden)); !slices.Equal(got, []string{"0000:81:00.1"}) {
		t.Errorf("properties of %v are known", got)
	}
}

// A memory whose file was removed is written again at the next look, though nothing has changed: after a
// restart it alone tells what containers hide.
func TestMemoryIsWrittenAgain(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 1, nil)
	list := resources(`{"resourceName": "a", "selectors": {"isRdma": true, "linkTypes": ["ether"]}}`)
	vfs := find(t, s.FS(), list, "intel.com", nil)
	s.Hide("0000:81:00.1", true)
	if err := os.Remove(vfs.known.File); err != nil {
		t.Fatal(err)
	}
	scan(t, vfs)
	if diff := cmp.Diff([]string{"0000:81:00.1"}, state(restarted(t, vfs), "intel.com/a")); diff != "" {
		t.Error(diff)
	}
}

// What containers hid before a boot does not count: a VF whose RDMA driver is missing since is not offered.
func TestMemoryOfAnEarlierBoot(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 1, nil)
	vfs := find(t, s.FS(), resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`), "intel.com", nil)
	s.Hide("0000:81:00.1", true)
	for boot, want := range map[string][]string{"": {"0000:81:00.1"}, "another": nil} {
		known := Known{File: filepath.Join(t.TempDir(), "vfs.json"), Disk: system.Disk{Boot: boot}}
		if err := os.Link(vfs.known.File, known.File); err != nil {
			t.Fatal(err)
		}
		after := findAgain(t, vfs, known)
		if diff := cmp.Diff(want, state(after, "intel.com/a")); diff != "" {
			t.Errorf("boot %q: %s", boot, diff)
		}
	}
}

// A memory that cannot be read costs what it held, not the start.
func TestUnreadableMemory(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 1, nil)
	vfs := find(t, s.FS(), resources(`{"resourceName": "a"}`), "intel.com", nil)
	for _, content := range []string{"{", "null", `{"listed": null}`} {
		if err := os.WriteFile(vfs.known.File, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"0000:81:00.1"}, state(restarted(t, vfs), "intel.com/a")); diff != "" {
			t.Error(diff)
		}
	}
	var log strings.Builder
	vfs.log, vfs.written = slog.New(slog.NewTextHandler(&log, nil)), nil
	vfs.known.File = filepath.Join(vfs.known.File, "below a file")
	if err := vfs.scanMachine(); err != nil ||
		!strings.Contains(log.String(), "known devices not saved") {
		t.Errorf("scan: %v, log %s", err, &log)
	}
}

// Pools follow the machine: VFs appear, change their driver, vanish and come back.
func TestRescan(t *testing.T) {
	t.Attr("parity", "sriov/rescan")
	s := functions.New()
	s.PF(0x81, "ens1", 1, nil)
	vfs := find(t, s.FS(), resources(
		`{"resourceName": "netdev", "selectors": {"drivers": ["mlx5_core"]}}`,
		`{"resourceName": "dpdk", "selectors": {"drivers": ["vfio-pci"]}}`,
	), "intel.com", nil)
	driver := func(name string) {
		s.Symlink(functions.Dir("0000:81:00.2")+"/driver", "../../../../bus/pci/drivers/"+name)
	}
	for _, step := range []struct {
		what         string
		do           func()
		netdev, dpdk []string
	}{
		{"start", func() {}, []string{"0000:81:00.1"}, nil},
		{"a VF appears", func() { s.PF(0x81, "ens1", 2, nil) }, []string{"0000:81:00.1", "0000:81:00.2"}, nil},
		{"it changes its driver", func() { driver("vfio-pci") },
			[]string{"0000:81:00.1", "0000:81:00.2 no longer selected by the resource"}, []string{"0000:81:00.2"}},
		{"and back", func() { driver("mlx5_core") },
			[]string{"0000:81:00.1", "0000:81:00.2"}, []string{"0000:81:00.2 no longer selected by the resource"}},
		{"it vanishes",
			func() { unplugFrom(s, "0000:81:00.2") },
			[]string{"0000:81:00.1", "0000:81:00.2 gone"}, []string{"0000:81:00.2 gone"}},
		{"it comes back", func() { s.PF(0x81, "ens1", 2, nil) },
			[]string{"0000:81:00.1", "0000:81:00.2"}, []string{"0000:81:00.2 no longer selected by the resource"}},
	} {
		_, changed := vfs.All()
		step.do()
		scan(t, vfs)
		select {
		case <-changed:
		default:
			if step.what != "start" {
				t.Errorf("%s: nobody is told", step.what)
			}
		}
		if diff := cmp.Diff(step.netdev, state(vfs, "intel.com/netdev")); diff != "" {
			t.Errorf("%s: netdev: %s", step.what, diff)
		}
		if diff := cmp.Diff(step.dpdk, state(vfs, "intel.com/dpdk")); diff != "" {
			t.Errorf("%s: dpdk: %s", step.what, diff)
		}
	}
	all, _ := vfs.All()
	if len(all) != 2 || all[0].Name != "intel.com/netdev" || len(all[1].Devices) != 1 {
		t.Errorf("all pools %+v", all)
	}
}

// Each check of health counts where it is asked for, and ends with its cause.
func TestHealth(t *testing.T) {
	t.Attr("parity", "sriov/health")
	const vf = "0000:81:00.1"
	carrier := func(s functions.Sysfs, value string) {
		s.Write(functions.Dir("0000:81:00.0")+"/net/ens1/carrier", value)
	}
	port := func(s functions.Sysfs, address, rdma, state string) {
		s.Write(functions.Dir(address)+"/infiniband/"+rdma+"/ports/1/state", state)
	}
	for _, c := range []struct {
		name, key string
		change    func(functions.Sysfs)
		want      string
	}{
		{"nothing to read",
			`"checkHealthOnPf": true, "checkHealthOnRdmaPort": true, "checkHealthOnDeviceExist": true`,
			func(functions.Sysfs) {}, ""},
		{"no check",
			`"checkHealthOnPf": false`,
			func(s functions.Sysfs) { carrier(s, "0"); port(s, vf, "mlx5_1291", "1: DOWN") }, ""},
		{"carrier", `"checkHealthOnPf": true`, func(s functions.Sysfs) { carrier(s, "1") }, ""},
		{"no carrier", `"CheckHealthOnPf": true`, func(s functions.Sysfs) { carrier(s, "0") },
			"no carrier on the PF"},
		{"PF is down",
			`"checkHealthOnPf": true`,
			func(s functions.Sysfs) { s.Write(functions.Dir("0000:81:00.0")+"/net/ens1/operstate", "down") },
			"no carrier on the PF"},
		{"port active",
			`"checkHealthOnRdmaPort": true`, func(s functions.Sysfs) { port(s, vf, "mlx5_1291", "4: ACTIVE") }, ""},
		{"port down",
			`"checkHealthOnRdmaPort": true`, func(s functions.Sysfs) { port(s, vf, "mlx5_1291", "1: DOWN") },
			"the RDMA port is not active"},
		{"port deferred",
			`"checkHealthOnRdmaPort": true`, func(s functions.Sysfs) { port(s, vf, "mlx5_1291", "5: ACTIVE_DEFER") },
			"the RDMA port is not active"},
		{"in a container",
			`"checkHealthOnRdmaPort": true`,
			func(s functions.Sysfs) { s.Hide(vf, true); port(s, "0000:81:00.0", "mlx5_1290", "1: DOWN") },
			"the RDMA port is not active"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := functions.New()
			s.PF(0x81, "ens1", 1, nil)
			vfs := find(t, s.FS(), resources(`{"resourceName": "a", `+c.key+`}`), "intel.com", nil)
			healthy := state(vfs, "intel.com/a")
			before := fstest.MapFS(maps.Clone(s))
			c.change(s)
			scan(t, vfs)
			if diff := cmp.Diff([]string{strings.TrimSpace(vf + " " + c.want)},
				state(vfs, "intel.com/a")); diff != "" {
				t.Error(diff)
			}
			vfs.finder.Sys = before
			if err := vfs.scanMachine(); err != nil || !slices.Equal(state(vfs, "intel.com/a"), healthy) {
				t.Errorf("afterwards %v, %v; want %v", state(vfs, "intel.com/a"), err, healthy)
			}
		})
	}
}

// A burst of events is one look, at its end; where there are no events there is a look from time to time, for
// shared HCAs as often as periodicUpdateInterval says, and never if that is 0.
func TestWhenToLook(t *testing.T) {
	t.Attr("parity", "shared/periodic-update")
	const never = 2 * time.Hour
	silent := func(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }
	vfs := func(keys string) string { return resources(`{"resourceName": "a"` + keys + `}`) }
	hcas := func(seconds int) string {
		return fmt.Sprintf(`{"periodicUpdateInterval": %d, "configList": [{"resourceName": "a",
			"resourcePrefix": "intel.com", "rdmaHcaMax": 1, "selectors": {"vendors": ["15b3"]}}]}`, seconds)
	}
	for _, c := range []struct {
		name   string
		config string
		events events
		want   time.Duration // until the VF that has come is seen
	}{
		{"events", vfs(""), func(ctx context.Context, changed func()) error {
			for range 5 {
				changed()
				<-time.After(quiet / 2)
			}
			<-ctx.Done()
			return nil
		}, 4*quiet/2 + quiet},
		{"events without end", vfs(""), func(ctx context.Context, changed func()) error {
			for ctx.Err() == nil {
				changed()
				<-time.After(quiet / 2)
			}
			return nil
		}, longest},
		{"no events", vfs(""), nil, interval},
		{"no more events", vfs(""), func(context.Context, func()) error { return os.ErrClosed }, interval},
		{"silence", vfs(""), silent, never},
		{"ports", vfs(`, "checkHealthOnRdmaPort": true`), silent, interval},
		{"the metrics exporter", vfs(`, "enableExporterHealthCheck": true`), silent, interval},
		{"HCAs", hcas(300), silent, 5 * time.Minute},
		{"HCAs, often", hcas(5), silent, 5 * time.Second},
		{"HCAs, never", hcas(0), silent, never},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := functions.New()
			s.PF(0x81, "ens1", 1, nil)
			parsed, file := config(t, c.config), filepath.Join(t.TempDir(), "vfs.json")
			synctest.Test(t, func(t *testing.T) {
				vfs, err := FindVFs(pools.Finder{Sys: s.FS(), Prefix: "intel.com"}, parsed, Known{File: file}, c.events,
					slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				s.PF(0x81, "ens1", 2, nil)
				start := time.Now()
				_, changed := vfs.latestPool("intel.com/a")
				runs(t, vfs.Run)
				select {
				case <-changed:
				case <-time.After(never):
				}
				if got := time.Since(start); got != c.want {
					t.Errorf("seen after %s; want %s", got, c.want)
				}
			})
		})
	}
}

// Events that could not be received are asked for again: a change is then seen at once.
func TestEventsComeBack(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 1, nil)
	parsed, file := config(t, resources(`{"resourceName": "a"}`)), filepath.Join(t.TempDir(), "vfs.json")
	synctest.Test(t, func(t *testing.T) {
		calls, come := 0, make(chan struct{})
		events := func(ctx context.Context, changed func()) error {
			if calls++; calls < 3 {
				return os.ErrClosed
			}
			select {
			case <-come:
				changed()
			case <-ctx.Done():
			}
			<-ctx.Done()
			return nil
		}
		vfs, err := FindVFs(pools.Finder{Sys: s.FS(), Prefix: "intel.com"}, parsed, Known{File: file}, events,
			slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		runs(t, vfs.Run)
		<-time.After(10*interval + time.Second)
		synctest.Wait()
		s.PF(0x81, "ens1", 2, nil)
		_, changed := vfs.latestPool("intel.com/a")
		start := time.Now()
		close(come)
		<-changed
		if got := time.Since(start); got != quiet {
			t.Errorf("seen after %s, want %s", got, quiet)
		}
	})
}
