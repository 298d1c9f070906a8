// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// claimsPause is the interval between two reads of the devices that claims hold.
const claimsPause = 5 * time.Second

// claimWatch has the devices that pods hold by a claim from an earlier time in DRA mode. The kubelet's device
// manager sees them as unhealthy until the claim is unprepared.
type claimWatch struct {
	dir    string // the DRA driver's
	cdiDir string // with the CDI specifications of claims
	log    *slog.Logger

	known  bool // the file was read once
	unread system.Complaint
	newest system.Newest[ClaimHolders]
}

// newClaimWatch looks for the first time.
func newClaimWatch(kubeletDir, cdiDir string, log *slog.Logger) *claimWatch {
	w := &claimWatch{dir: filepath.Join(kubeletDir, "plugins", DRADriver), cdiDir: cdiDir, log: log}
	w.readClaims()
	return w
}

// run reads the file periodically until ctx is done.
func (w *claimWatch) run(ctx context.Context) {
	tick := time.NewTicker(claimsPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = system.Survive(w.log, func() error { // the last known devices after a panic
				w.readClaims()
				return nil
			})
		}
	}
}

// readClaims reads the file. An unreadable file changes nothing: in the mode of device plugins no claims are
// prepared, so the devices of an earlier read include those of all current claims. Without an earlier read
// all devices are withheld, because any of them may belong to a pod with a claim.
func (w *claimWatch) readClaims() {
	holders, err := ReadClaimHolders(w.dir, w.cdiDir)
	if w.unread.IsNew(err) {
		w.log.Error("devices of claims not read; using the last known devices, withholding all if never read",
			"error", err)
	}
	if err == nil {
		w.known = true
		w.setHolders(holders)
	} else if !w.known {
		w.setHolders(ClaimHolders{everyUnit: fmt.Sprintf("pods may have the devices by "+
			"claims that were prepared while the node was in DRA mode: %v; %s",
			err, ClaimsRemedy(w.dir))})
	}
}

// setHolders changes the holders.
func (w *claimWatch) setHolders(holders ClaimHolders) {
	if maps.Equal(holders, w.newest.Get()) {
		return
	}
	if holders.Why() == "" {
		w.log.Warn("withholding devices of claims that were prepared while the node was in DRA mode",
			"devices", len(holders))
	}
	w.newest.Set(holders)
}
