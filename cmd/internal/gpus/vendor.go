// SPDX-License-Identifier: Apache-2.0

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
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Values of --vendor other than the vendors' names.
const (
	VendorNone = "none" // another driver has the GPUs; of the DRA driver alone
	vendorAuto = "auto"
)

// registerVendor adds --vendor, the vendor of the offered GPUs.
func registerVendor(set *pflag.FlagSet, vendor *string) {
	plainflag.Choice(set, vendor, "vendor", vendorAuto,
		"vendor of the GPUs to offer: "+listed()+", or auto for the vendor whose driver is in use",
		append(gpu.Names(), vendorAuto)...)
}

// registerVendorOrNone adds --vendor for a daemon that also offers VFs and can run without GPUs.
func registerVendorOrNone(set *pflag.FlagSet, vendor *string) {
	plainflag.Choice(set, vendor, "vendor", vendorAuto,
		"vendor of the GPUs to publish: "+listed()+", auto for the vendor whose driver is in use, or none if "+
			"another DRA driver manages the GPUs", append(gpu.Names(), VendorNone, vendorAuto)...)
}

// ErrNoDriver means that no vendor's driver has a device.
var ErrNoDriver = gpu.NoDriver("find GPUs: neither " + strings.ReplaceAll(gpu.Drivers(), " or ", " nor ") +
	" drives a device here: load the driver, or keep this daemon off the node")

// listed returns the vendors' names for people.
func listed() string { return strings.Join(gpu.Names(), ", ") }

// Detect returns the vendor of the offered GPUs, from the --vendor flag, the program's name, or the driver
// that is bound to devices. Without a driver, the error is ErrNoDriver.
func Detect(sys fs.FS, program, flag string) (string, error) {
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
		if binds(sys, m.Driver) {
			bound = append(bound, m)
		}
	}
	switch len(bound) {
	case 0:
		return "", ErrNoDriver
	case 1:
		return bound[0].Vendor, nil
	default:
		return "", ambiguous(bound)
	}
}

// ambiguous returns the error for a node on which the drivers of several vendors are in use.
func ambiguous(bound []gpu.Maker) error {
	var drivers, flags []string
	for _, m := range bound {
		drivers = append(drivers, m.Driver)
		flags = append(flags, "--vendor="+m.Vendor)
	}
	return fmt.Errorf("find GPUs: the drivers %s are in use: say which GPUs to offer with %s",
		strings.Join(drivers, " and "), strings.Join(flags, " or "))
}

// binds reports whether a PCI driver has bound a device and has finished loading.
func binds(sys fs.FS, driver string) bool {
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

// Absence describes an absent driver.
type Absence struct {
	Every  time.Duration // between two looks
	Vendor string        // of the driver; "" for either
	Flag   string        // value of --vendor
}

// awaitDriver calls look until it succeeds or fails for another reason than an absent driver, and logs the
// absence once. Meanwhile the daemon offers nothing and is not ready, unless the machine has no PCI GPU for
// the driver. Exiting instead would only cause restarts with growing delays.
func awaitDriver[T any](
	ctx context.Context, a Absence, flags daemon.Flags, log *slog.Logger, look func() (T, error),
) (T, error) {
	found, err := look()
	if !gpu.IsNoDriver(err) {
		return found, err
	}
	log.Warn("no GPU driver; offering no device until a driver is present", "reason", a.note(flags, err),
		"look_every", a.Every)
	ticker := time.NewTicker(a.Every)
	defer ticker.Stop()
	for gpu.IsNoDriver(err) {
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-ticker.C:
		}
		if found, err = look(); gpu.IsNoDriver(err) {
			_ = a.note(flags, err) // it is in the log already
		}
	}
	return found, err
}

// note makes the daemon ready if the machine has no GPU to wait for, and returns the reason for the wait. The
// daemon stays not ready if the machine cannot be read, or if its GPUs are of another vendor.
func (a Absence) note(flags daemon.Flags, reason error) error {
	sys, err := flags.Sysfs()
	if err == nil {
		var tree *topology.Tree
		if tree, err = topology.Read(sys); err == nil {
			awaited := gpu.AwaitedIn(tree, a.Vendor)
			other := gpu.OtherVendor(tree, a.Flag)
			switch {
			case other != nil:
				reason = other
			case len(awaited.Cards) == 0:
				flags.Begin()
				return reason
			default:
				reason = fmt.Errorf("%s: %w", awaited, reason)
			}
		}
	}
	flags.Wait(reason)
	return reason
}
