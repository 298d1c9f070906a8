// SPDX-License-Identifier: Apache-2.0

// Package gpus has the common parts of the daemons that offer GPUs: the flags that select and find GPUs, and
// the wait for a driver.
package gpus

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/topology"
)

// Flags are the flags of all vendors.
type Flags struct {
	Vendor  string
	AMD     AMD
	NVIDIA  NVIDIA
	Recheck time.Duration // interval between checks for an absent driver, and of a broken NVIDIA GPU
	CDIRoot string        // folder for CDI specs

	configFile string // name of the flag for the file of NVIDIA's plugin
}

// allVendors returns the flags by the vendor's name in the table of package gpu. A new vendor adds its own.
func (f *Flags) allVendors() map[string]vendor {
	return map[string]vendor{gpu.AMD: &f.AMD, gpu.NVIDIA: &f.NVIDIA}
}

// pluginFlags are the vendors' flags without effect on a DRA driver.
var pluginFlags = []string{
	"driver_type", "kubelet-socket", "device-list-strategy", "cdi-annotation-prefix", "pass-device-specs",
	"fail-on-init-error", "mps-root", "shared-devices-allocation-policy",
}

// driverPulse is the preset of --pulse for a DRA driver, which always looks for changes, unlike AMD's plugin.
const driverPulse = "30"

// vendor finds and offers the GPUs of one vendor as configured by the vendor's flags.
type vendor interface {
	// Register adds Tandem's flags to own and those of the vendor's plugin to stock.
	Register(own, stock *pflag.FlagSet)
	// offerGPUs finds the GPUs for a device plugin, waits for an absent driver, and serves the GPUs until ctx is
	// done.
	offerGPUs(ctx context.Context, n node, serve serve) error
	// findGPUs finds the GPUs for a daemon that passes GPUs to containers through CDI. The vendor's library
	// stays in use until leave is called.
	findGPUs(n node) (found *gpu.GPUs, leave func(), err error)
}

// serve offers GPUs to the kubelet until ctx is done.
type serve func(ctx context.Context, flags daemon.Flags, found *gpu.GPUs, log *slog.Logger) error

// node is the node with the GPUs.
type node struct {
	daemon.Flags
	sys     fs.FS
	flag    string // value of --vendor
	recheck time.Duration
	cdiRoot string
	log     *slog.Logger
}

// Register adds the flags of a device plugin: Tandem's to own, those of the vendors' plugins to stock.
func (f *Flags) Register(own, stock *pflag.FlagSet) {
	f.registerCommon(own, stock)
	plainflag.Choice(own, &f.Vendor, "vendor", vendorAuto,
		"vendor of the GPUs to offer: "+listVendors()+", or auto for the vendor whose driver is in use",
		append(gpu.Names(), vendorAuto)...)
	f.configFile = "--config-file"
}

// RegisterDriver adds Tandem's flags for a DRA driver to a set, and returns the flags of the vendors' plugins
// for AddStock.
func (f *Flags) RegisterDriver(set *pflag.FlagSet) (stock *pflag.FlagSet) {
	stock = pflag.NewFlagSet("", pflag.ContinueOnError)
	plainflag.Choice(set, &f.Vendor, "vendor", vendorAuto,
		"vendor of the GPUs to publish: "+listVendors()+", auto for the vendor whose driver is in use, or none if "+
			"another DRA driver manages the GPUs", append(gpu.Names(), VendorNone, vendorAuto)...)
	f.registerCommon(set, stock)
	pulse := set.Lookup("pulse")
	pulse.DefValue = driverPulse
	if err := pulse.Value.Set(driverPulse); err != nil {
		panic(err) // it is a constant
	}
	f.configFile = "--gpu-config-file"
	return stock
}

// AddStock adds the flags of the vendors' plugins to the set of a DRA driver. If both have a flag, the set's
// counts.
func AddStock(set, stock *pflag.FlagSet) {
	file := *stock.Lookup("config-file")
	file.Name = "gpu-config-file"
	set.AddFlag(&file)
	set.AddFlagSet(stock)
	for _, name := range pluginFlags {
		set.Lookup(name).Hidden = true
	}
}

func (f *Flags) registerCommon(own, stock *pflag.FlagSet) {
	for _, name := range gpu.Names() {
		f.allVendors()[name].Register(own, stock)
	}
	own.StringVar(&f.CDIRoot, "cdi-root", coordination.CDIDir,
		"folder of the CDI specifications that are written")
	f.Recheck = recheck
	own.Var((*pause)(&f.Recheck), "nvidia-recheck", "interval between checks of a broken NVIDIA GPU, and for "+
		"an absent driver of any vendor; healthy GPUs are not checked")
}

// Offer finds the node's GPUs, waits for an absent driver, and serves the GPUs until ctx is done.
func (f *Flags) Offer(
	ctx context.Context, program string, flags daemon.Flags, serve serve, log *slog.Logger,
) error {
	n, err := f.newNode(flags, log)
	if err != nil {
		return err
	}
	look := func() (vendor, error) { return f.detectVendor(n.sys, program, log) }
	v, err := awaitDriver(ctx, n, "", look)
	if err != nil {
		return err
	}
	heeding := func(ctx context.Context, flags daemon.Flags, found *gpu.GPUs, log *slog.Logger) error {
		found.Heed(health.New(n.DeviceHealth, n.sys))
		return serve(ctx, flags, found, log)
	}
	return v.offerGPUs(ctx, n, heeding)
}

// Find finds the node's GPUs. Their vendor's library is in use until leave is called.
func (f *Flags) Find(
	program string, flags daemon.Flags, log *slog.Logger,
) (found *gpu.GPUs, leave func(), err error) {
	n, err := f.newNode(flags, log)
	if err != nil {
		return nil, nil, err
	}
	v, err := f.detectVendor(n.sys, program, log)
	if err != nil {
		return nil, nil, err
	}
	found, leave, err = v.findGPUs(n)
	if err == nil {
		found.Heed(health.New(n.DeviceHealth, n.sys))
	}
	return found, leave, err
}

func (f *Flags) newNode(flags daemon.Flags, log *slog.Logger) (node, error) {
	sys, err := flags.Sysfs()
	return node{
		Flags: flags, sys: sys, flag: f.Vendor, recheck: f.Recheck, cdiRoot: f.CDIRoot, log: log,
	}, err
}

// detectVendor returns the vendor of the offered GPUs, and checks the flags of the other vendors.
func (f *Flags) detectVendor(sys fs.FS, program string, log *slog.Logger) (vendor, error) {
	name, err := detectName(sys, program, f.Vendor)
	if err != nil {
		return nil, err
	}
	if name != gpu.NVIDIA {
		if err := f.NVIDIA.checkWhileUnused(f.configFile, log); err != nil {
			return nil, err
		}
	}
	return f.allVendors()[name], nil
}

// Values of --vendor other than the vendors' names.
const (
	VendorNone = "none" // another driver has the GPUs; of the DRA driver alone
	vendorAuto = "auto"
)

// errNoDriver means that no vendor's driver has a device.
var errNoDriver = gpu.NoDriver("find GPUs: neither " + strings.ReplaceAll(gpu.Drivers(), " or ", " nor ") +
	" drives a device here: load the driver, or keep this daemon off the node")

// listVendors returns the vendors' names for people.
func listVendors() string { return strings.Join(gpu.Names(), ", ") }

// detectName returns the vendor of the offered GPUs, from the --vendor flag, the program's name, or the
// driver that is bound to devices. Without a driver, the error is errNoDriver.
func detectName(sys fs.FS, program, flag string) (string, error) {
	for _, m := range gpu.Makers {
		if flag == m.Vendor {
			return flag, nil
		}
	}
	var bound []gpu.Maker
	for _, m := range gpu.Makers {
		if program == m.Program {
			return m.Vendor, nil
		}
		if bindsDevice(sys, m.Driver) {
			bound = append(bound, m)
		}
	}
	switch len(bound) {
	case 0:
		return "", errNoDriver
	case 1:
		return bound[0].Vendor, nil
	default:
		return "", ambiguousVendor(bound)
	}
}

// ambiguousVendor returns the error for a node on which the drivers of several vendors are in use.
func ambiguousVendor(bound []gpu.Maker) error {
	var drivers, flags []string
	for _, m := range bound {
		drivers = append(drivers, m.Driver)
		flags = append(flags, "--vendor="+m.Vendor)
	}
	return fmt.Errorf("find GPUs: the drivers %s are in use: say which GPUs to offer with %s",
		strings.Join(drivers, " and "), strings.Join(flags, " or "))
}

// bindsDevice reports whether a PCI driver has bound a device and has finished loading.
func bindsDevice(sys fs.FS, driver string) bool {
	if gpu.Loading(sys, driver) {
		return false
	}
	entries, err := fs.ReadDir(sys, "bus/pci/drivers/"+driver)
	for _, entry := range entries {
		if _, notAddress := topology.ParseAddress(entry.Name()); notAddress == nil && err == nil {
			return true
		}
	}
	return false
}

// recheck is the default interval between two looks for a driver. A container gets no notification of a
// loaded module: sysfs has no inotify, and uevents stay in the node's network namespace.
const recheck = 30 * time.Second

// awaitDriver calls look until it succeeds or fails for another reason than the absent driver of a vendor,
// "" for any vendor's, and logs the absence once. Meanwhile the daemon offers nothing and is not ready,
// unless the machine has no PCI GPU for the driver. Exiting instead would only cause restarts with growing
// delays.
func awaitDriver[T any](ctx context.Context, n node, vendor string, look func() (T, error)) (T, error) {
	found, err := look()
	if !gpu.IsNoDriver(err) {
		return found, err
	}
	n.log.Warn("no GPU driver; offering no device until a driver is present",
		"reason", n.noteAbsence(vendor, err), "look_every", n.recheck)
	ticker := time.NewTicker(n.recheck)
	defer ticker.Stop()
	for gpu.IsNoDriver(err) {
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-ticker.C:
		}
		found, err = look()
		if gpu.IsNoDriver(err) {
			_ = n.noteAbsence(vendor, err) // it is in the log already
		}
	}
	return found, err
}

// noteAbsence makes the daemon ready if the machine has no GPU to wait for, and returns the reason for the
// wait. The daemon stays not ready if the machine cannot be read, or if its GPUs are of another vendor.
func (n node) noteAbsence(vendor string, reason error) error {
	if tree, err := topology.Read(n.sys); err == nil {
		awaited := gpu.AwaitedIn(tree, vendor)
		other := gpu.OtherVendor(tree, n.flag)
		switch {
		case other != nil:
			reason = other
		case len(awaited.Cards) == 0:
			n.Begin()
			return reason
		default:
			reason = fmt.Errorf("%s: %w", awaited, reason)
		}
	}
	n.Monitor().Wait(reason)
	return reason
}
