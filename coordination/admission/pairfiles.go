// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// Pair returns the serving VF for each GPU of the node, and takes charge of a pairs file. Returns false if
// the file is not written, for example because it is outside the folder of pairs files.
func (c *Coordinator) Pair(
	name string, ids []string, file string, vfs []pairs.VF,
) (served []pairs.Served, written bool) {
	tx, err := c.commit(func(tx *transaction) error {
		if tx.open == nil || !device.SameSet(tx.open.devices[name], ids) {
			return nil
		}
		tx.paired = c.pairs.Has(file) && tx.open.keepFile(file, vfs)
		served = serve(tx.books(), name, ids, gpusOf(tx.state, name, ids, tx.now()))
		return nil
	})
	if err != nil {
		return nil, false // the server has ended
	}
	return served, c.publish(tx) && tx.paired
}

// tidyPause is the interval of checks for files of ended containers.
const tidyPause = 10 * time.Minute

// StayTidy removes pairs files of ended containers from time to time until ctx is done. No event reports the
// end of a container to a device plugin.
func (c *Coordinator) StayTidy(ctx context.Context) error {
	ticker := time.NewTicker(tidyPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.tidyPairs()
		case <-ctx.Done():
			return nil
		}
	}
}

// tidyPairs removes the pairs files of ended containers.
func (c *Coordinator) tidyPairs() {
	recorded, err := c.Recorded() // before the containers: theirs is no older checkpoint
	var containers []kubelet.Granted
	if err == nil {
		containers, err = c.Granted()
	}
	if err != nil {
		c.Log.Info("pairs files of ended containers not removed", "error", err)
		return
	}
	s := c.current()
	var open []string
	if s.open != nil {
		open = s.open.files
	}
	c.pairs.Tidy(s.tree, containers, recorded.Identity, open, s.resources.Paired)
}
