// SPDX-License-Identifier: Apache-2.0

package model

import "math/rand/v2"

// Roll makes all later choices of the kubelet depend on a number alone, and not on the choices before.
func (k *Kubelet) Roll(dice uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.random = rand.New(rand.NewPCG(dice, 7))
}

// Run starts an admitted pod.
func (k *Kubelet) Run(p *Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p.started = true
}

// Started reports whether a pod has started.
func (p *Pod) Started() bool { return p.started }
