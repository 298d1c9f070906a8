// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"os"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/checkpoint"
)

// Lose restarts the kubelet without its records, while its pods run: the kubelet lists them without devices.
func (k *Kubelet) Lose() error {
	k.Restart()
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.held)
	k.released()
	return k.write()
}

// Layout makes the kubelet write its checkpoint with other content, which layout returns for its own; nil for
// its own.
func (k *Kubelet) Layout(layout func([]byte) []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.layout = layout
	return k.write()
}

// put replaces the checkpoint, as a whole also in another layout.
func (k *Kubelet) put(allocations []checkpoint.Allocation) error {
	if k.layout == nil {
		return checkpoint.Write(k.dir, allocations, k.registered)
	}
	aside := k.dir + ".aside"
	if err := checkpoint.Write(aside, allocations, k.registered); err != nil {
		return err
	}
	content, err := os.ReadFile(kubelet.CheckpointPath(aside))
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	if err := os.WriteFile(kubelet.CheckpointPath(aside), k.layout(content), 0o600); err != nil {
		return fmt.Errorf("write the checkpoint: %w", err)
	}
	return os.Rename(kubelet.CheckpointPath(aside), kubelet.CheckpointPath(k.dir))
}
