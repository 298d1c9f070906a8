// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// filesPause is the interval between two checks of the CDI spec and of the device-info files, which other
// processes may remove.
const filesPause = 5 * time.Second

// Effects of files that cannot be written.
const (
	noSpec    = "CDI spec not written; containers may lack device nodes"
	noDevinfo = "device-info files of running pods not restored; Multus may not find their devices"
)

// keepFiles maintains the CDI spec and the device-info files until ctx is done. Binding a driver renumbers
// device nodes without any other change of a device, so the spec is computed after every scan of the machine.
// A container that starts between the kernel's event and that scan, at most a second, gets the previous
// device nodes. The same applies to every container if device nodes are not passed by CDI, and while no
// plugin runs.
func (p *Plugin) keepFiles(ctx context.Context) {
	ticker := time.NewTicker(filesPause)
	defer ticker.Stop()
	nothing := map[string]*grants.Grant{}
	spec, devinfo := complaint{}, complaint{}
	for given := map[string]*grants.Grant(nil); ; {
		looked := p.vfs.nextLook()
		if err := p.spec.Write(p.host, p.newest, given); spec.isNew(err) {
			p.log.Error(noSpec, "error", err)
		}
		if err := p.host.RestoreDevinfo(p.newest()); devinfo.isNew(err) {
			p.log.Warn(noDevinfo, "error", err)
		}
		select {
		case <-looked:
			given = nil
		case <-ticker.C:
			given = nothing
		case <-ctx.Done():
			return
		}
	}
}

// complaint is the last error of repeated work.
type complaint struct{ text string }

// isNew stores the result of an attempt, and reports whether it is an error other than that of the attempt
// before.
func (c *complaint) isNew(err error) bool {
	before := c.text
	if c.text = ""; err != nil {
		c.text = fmt.Sprint(err)
	}
	return c.text != "" && c.text != before
}

// prepare restores files that running pods refer to and that a boot removed: the kubelet does not call
// Allocate for their devices again.
func (p *Plugin) prepare(pool pools.Pool) {
	if err := p.spec.Write(p.host, p.newest, nil); err != nil {
		p.log.Error(noSpec, "error", err)
	}
	if err := errors.Join(p.host.TidyDevinfo(pool), p.host.RestoreDevinfo(pool)); err != nil {
		p.log.Warn(noDevinfo, "error", err)
	}
}
