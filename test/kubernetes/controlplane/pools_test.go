// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	other "github.com/tandem-k8s/tandem/test/kubernetes/dra/form"
	"github.com/tandem-k8s/tandem/test/machines"
)

// machine is a recorded machine with this many VFs on each PF.
func machine(t testing.TB, name string, vfs int) pool.Machine {
	t.Helper()
	sys, tree := machines.Read(t, name, vfs)
	read, err := pool.ReadMachine(sys, tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// plain is how drivers publish a machine that know no pairs: each GPU and each VF for itself, with its
// switch.
func plain(m pool.Machine) pool.Pool { return pool.Pool{Slices: other.Plain(m)} }

// without is a machine without the VFs of one GPU's switch.
func without(m pool.Machine, at string) pool.Machine {
	m.VFs = slices.DeleteFunc(slices.Clone(m.VFs), func(vf pool.VF) bool { return vf.Switch == at })
	return m
}
