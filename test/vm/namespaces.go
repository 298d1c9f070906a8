// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// enter runs this program again in namespaces of its own: its children have only that network, and end with
// it. A session of its own affects its share of the CPUs, which the kernel divides by session.
func enter(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"-run"}, os.Args[1:]...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute // to stop its children
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return errTold
	}
	return err
}

// errTold is the failure of the program within the namespaces, which has printed the reason.
var errTold = errors.New("see above")

// setUp prepares the namespaces for the run, with an empty folder.
func setUp(c *build.Cache) error {
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("proc", "/proc", "proc", 0, ""),
		setUpLoopback(),
		os.RemoveAll(c.Path("run")),
		os.MkdirAll(c.Path("run"), 0o755),
	); err != nil {
		return fmt.Errorf("set up the namespaces: %w", err)
	}
	if err := goFirst(); err != nil {
		c.Say("the machine has to wait for its turn on a busy host, and may answer late: %v", err)
	}
	return nil
}

// setUpLoopback prepares the network namespace for the cluster. Packets to the guest need another source
// address, because the guest would not answer its own. The API server has the address of its Service, so that
// the guest's packets to it arrive here without a proxy.
func setUpLoopback() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	// the routing table of local addresses, and their type is 2 (include/uapi/linux/rtnetlink.h)
	const local = 255
	service, err := netlink.ParseAddr(cluster.ServiceIP + "/32")
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(loopback), netlink.AddrAdd(loopback, service),
		netlink.RouteAdd(&netlink.Route{
			LinkIndex: loopback.Attrs().Index, Table: local, Type: 2, Scope: netlink.SCOPE_HOST,
			Dst: &net.IPNet{IP: net.IPv4(10, 0, 2, 15), Mask: net.CIDRMask(32, 32)},
			Src: net.IPv4(127, 0, 0, 1),
		}))
}

// goFirst raises this session's priority on the host: the guest's clock is the host's, and a waiting machine
// answers late. Without session groups (autogroup, see sched(7)) the priority of the process counts.
func goFirst() error {
	const nice = -10
	err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0o644)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syscall.Setpriority(syscall.PRIO_PGRP, 0, nice)
}
