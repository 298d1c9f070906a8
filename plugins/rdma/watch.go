// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

const (
	// quiet and longest delay a scan until a burst of events ends: a PF creates its VFs in a burst, which
	// takes seconds for a hundred VFs.
	quiet   = 100 * time.Millisecond
	longest = time.Second
	// interval is the time between two scans if changes are not reported. It is the interval of the stock
	// plugin's health check.
	interval = 20 * time.Second
)

// Look requests a scan.
func (v *VFs) Look() { v.look.Fire() }

// Run scans for changes until ctx is done: after events, and periodically if events are not available, if
// ports are watched or if the metrics exporter is used, which report no changes.
func (v *VFs) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	deaf := make(chan error, 1)
	if v.events != nil {
		g.Go(func() error { v.listenForever(ctx, deaf); return nil })
	}
	g.Go(func() error { v.keepLooking(ctx, deaf); return nil })
	g.Go(func() error { return v.health.Run(ctx, v.Look) })
	return g.Wait()
}

// listenForever forwards events until ctx is done. If the source ends, listenForever restarts it, because the
// reason, such as a lack of memory, may be temporary. The first reason is forwarded to keepLooking.
func (v *VFs) listenForever(ctx context.Context, deaf chan<- error) {
	for {
		err := v.events(ctx, v.Look)
		select {
		case deaf <- err:
		default: // keepLooking looks from time to time already
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return
		}
	}
}

func (v *VFs) keepLooking(ctx context.Context, deaf <-chan error) {
	pause := v.scanPause()
	ticker := time.NewTicker(cmp.Or(pause, interval))
	defer ticker.Stop()
	decide := time.NewTicker(decidePause)
	defer decide.Stop()
	ticks := ticker.C
	if pause == 0 {
		ticks = nil
	}
	for {
		select {
		case <-v.look:
			v.awaitQuiet(ctx)
		case <-ticks:
		case <-decide.C:
			v.decideAgain()
			continue
		case err := <-deaf:
			if ctx.Err() == nil {
				v.log.Warn("kernel events not available; polling",
					"interval", interval, "error", err)
			}
			ticker.Reset(interval)
			ticks, deaf = ticker.C, nil
			continue
		case <-ctx.Done():
			return
		}
		v.scanAgain()
	}
}

// scanPause returns the time between two periodic scans; 0 for none if events are available.
func (v *VFs) scanPause() time.Duration {
	asked := func(h pools.Health) bool { return h.CheckPort || h.CheckExporter }
	if v.events == nil || v.config.Checks(asked) {
		return interval
	}
	return v.config.Interval
}

// awaitQuiet waits for the end of a burst of changes.
func (v *VFs) awaitQuiet(ctx context.Context) {
	limit := time.NewTimer(longest)
	defer limit.Stop()
	for {
		pause := time.NewTimer(quiet)
		select {
		case <-v.look:
			pause.Stop()
		case <-pause.C:
			return
		case <-limit.C:
			pause.Stop()
			return
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// events calls changed after each possible change of the machine, until ctx is done, and once when it begins
// to receive changes; earlier changes are not reported. It returns an error if it cannot receive changes.
type events func(ctx context.Context, changed func()) error

// MachineEvents returns the events of the machine below a sysfs root. For /sys they come from the kernel over
// netlink: inotify does not report changes that the kernel itself makes in sysfs. For any other root, a
// directory, they come from inotify, and a change is assumed after each interval.
func MachineEvents(sysfsRoot string, c *pools.Config) events {
	if filepath.Clean(sysfsRoot) != "/sys" {
		bus := system.Watch{Paths: []string{filepath.Join(sysfsRoot, topology.PCIDevices)}, Interval: interval}
		return func(ctx context.Context, changed func()) error {
			return bus.Run(ctx, func() error { changed(); return nil })
		}
	}
	return func(ctx context.Context, changed func()) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error {
			return kernelEvents(ctx, syscall.NETLINK_KOBJECT_UEVENT, ueventGroup, concernsDevice, changed)
		})
		if c.Checks(func(h pools.Health) bool { return h.CheckPF }) {
			any := func([]byte) bool { return true }
			g.Go(func() error { return kernelEvents(ctx, syscall.NETLINK_ROUTE, linkGroup, any, changed) })
		}
		return g.Wait()
	}
}

const (
	ueventGroup = 1 // multicast group of the kernel's own events; group 2 belongs to udev (lib/kobject_uevent.c)
	// RTMGRP_LINK of include/uapi/linux/rtnetlink.h: events of netdevs, including carrier changes.
	linkGroup = 1
)

// kernelEvents reads the messages of a netlink multicast group.
func kernelEvents(
	ctx context.Context, protocol int, group uint32, concerns func([]byte) bool, changed func(),
) error {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK,
		protocol)
	if err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "netlink") // nonblocking, so that closing the socket ends a read
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	if err := syscall.Bind(fd, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: group}); err != nil {
		return fmt.Errorf("bind netlink socket: %w", err)
	}
	changed()
	message := make([]byte, 16<<10)
	for {
		n, err := socket.Read(message)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.ENOBUFS): // the socket buffer overflowed and messages were lost
			changed()
		case err != nil:
			return fmt.Errorf("read kernel events: %w", err)
		case concerns(message[:n]):
			changed()
		}
	}
}

// concernsDevice reports whether a uevent concerns a PCI function, its driver, netdev, RDMA device or RDMA
// character device, or a vDPA or auxiliary device. A message is a list of KEY=value strings, each terminated
// by NUL (Documentation/ABI/testing/sysfs-uevent).
func concernsDevice(message []byte) bool {
	for field := range bytes.SplitSeq(message, []byte{0}) {
		key, value, _ := strings.Cut(string(field), "=")
		switch key {
		case "DEVPATH":
			if strings.HasPrefix(value, "/devices/virtual/") { // netdevs of containers
				return false
			}
		case "SUBSYSTEM":
			return slices.Contains([]string{
				"pci", "net", "infiniband", "infiniband_verbs", "infiniband_mad", "vdpa", "auxiliary",
			}, value)
		}
	}
	return false
}
