// Command vm is the end-to-end test: it boots a machine with a real kernel, real PCIe switches, NICs and VFs, makes it a node
// of a real cluster, installs Tandem on it from deployments as a user does, and looks at what pods get. "make e2e" runs it.
//
// QEMU emulates the machine, with nothing but the silicon's names made up (guest/identity.go). Everything else is what runs
// on servers: Debian's kernel, containerd and runc, the kubelet, API server, scheduler and controllers of one release.
// What is downloaded and built is kept in a folder, so that later runs take minutes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

type options struct {
	bin        string
	cache      string
	short      bool
	admissions int
	machine    string // only this shape; "" for all
	vfs        int    // only phases with so many VFs per PF; 0 for all
	run        bool   // inside the namespaces
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder with what \"make build nvml\" built; results go there too")
	flag.StringVar(&o.cache, "cache", "bin/vm", "folder for what is downloaded and built")
	flag.BoolVar(&o.short, "short", false, "one boot with few pods, and only if nothing has to be downloaded")
	flag.IntVar(&o.admissions, "admissions", 50, "pods of random sizes that come and go")
	flag.StringVar(&o.machine, "machine", "", "only one kind of machine, mi300x or h100; empty for both")
	flag.IntVar(&o.vfs, "vfs", 0, "only what is tried with so many VFs per PF, 4 or 1 (mi300x) or 2 (h100); 0 for all")
	flag.BoolVar(&o.run, "run", false, "run with what was built; only for the program itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := o.main(ctx); err != nil {
		if !errors.Is(err, errTold) {
			fmt.Fprintln(os.Stderr, "vm:", err)
		}
		os.Exit(1)
	}
}

func (o options) main(ctx context.Context) error {
	for _, dir := range []*string{&o.bin, &o.cache} {
		absolute, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = absolute
	}
	c := &cache{dir: o.cache, progress: &progress{out: os.Stdout, start: time.Now()}}
	if o.run {
		return o.test(ctx, c)
	}
	if os.Getuid() != 0 {
		return errors.New("run it as root: it makes namespaces of its own")
	}
	if o.short {
		missing, err := c.missing()
		if err != nil {
			return err
		}
		if missing != "" {
			c.say("skipped: %s has not the %s that it takes; make e2e, without --short, puts them there", c.dir, missing)
			return nil
		}
	}
	if err := c.lock(); err != nil {
		return err
	}
	defer c.locked.Close()
	if err := o.build(ctx, c); err != nil {
		return err
	}
	return enter(ctx)
}

// build makes everything that needs the network.
func (o options) build(ctx context.Context, c *cache) error {
	if err := c.packages(ctx); err != nil {
		return err
	}
	if err := c.kubernetes(ctx); err != nil {
		return err
	}
	if err := c.buildMultus(ctx); err != nil {
		return err
	}
	if !o.short {
		if err := c.user(ctx); err != nil {
			return err
		}
	}
	if err := c.rootDisk(ctx); err != nil {
		return err
	}
	return c.stage(ctx, "initial RAM disk and files", 5*time.Minute, func(ctx context.Context) error {
		if err := c.guestPrograms(ctx); err != nil {
			return err
		}
		if err := c.image(ctx, o.bin); err != nil {
			return err
		}
		if err := c.initramfs(ctx); err != nil {
			return err
		}
		return c.guestFiles(o.bin, c.path("files.tar"))
	})
}

// enter runs this program again in namespaces of its own: what it starts sees no network but its own, and ends with it. The
// session of its own is for its turn on the CPUs, which the kernel shares out by session.
func enter(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"-run"}, os.Args[1:]...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute // to stop what it started
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return errTold
	}
	return err
}

// errTold is the end of the program within the namespaces, which has said why.
var errTold = errors.New("see above")

// test runs in the namespaces.
func (o options) test(ctx context.Context, c *cache) error {
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("proc", "/proc", "proc", 0, ""),
		setUpLoopback(),
		os.RemoveAll(c.path("run")),
		os.MkdirAll(c.path("run"), 0o755),
	); err != nil {
		return fmt.Errorf("set up the namespaces: %w", err)
	}
	if err := goFirst(); err != nil {
		c.say("the machine has to wait for its turn on a busy host, and may answer late: %v", err)
	}
	return (&tester{cache: c, bin: o.bin}).all(ctx, o)
}

// goFirst has this session go before what else runs on the host: the guest's clock is the host's, and a machine that waits for
// its turn answers late. Without groups of sessions (autogroup, see sched(7)) it is the process that counts.
func goFirst() error {
	const nice = -10
	err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0o644)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syscall.Setpriority(syscall.PRIO_PGRP, 0, nice)
}
