// SPDX-License-Identifier: Apache-2.0

// Package node is a node with a recorded machine: its files in a folder, and the built DRA driver.
package node

import (
	"errors"
	"os"

	"github.com/tandem-k8s/tandem/test/kubernetes/machine"
)

// Machine is a recorded machine with the folders of a node.
type Machine struct{ *machine.Machine }

// LayOut writes a recorded machine into a folder: see [machine.LayOut].
func LayOut(dir, name string, vfs int, library string) (*Machine, error) {
	laid, err := machine.LayOut(dir, name, vfs, library)
	if err != nil {
		return nil, err
	}
	return &Machine{laid}, errors.Join(os.Mkdir(laid.Path("run"), 0o755),
		os.WriteFile(laid.Path("config.json"), laid.Config(nil), 0o644))
}
