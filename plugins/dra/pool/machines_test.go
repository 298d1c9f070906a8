// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/machines"
)

// loaded are the machines that were read, by name and number of VFs. They never change.
var loaded sync.Map

// load reads a recorded machine with this many VFs on each PF.
func load(t testing.TB, name string, vfs int) pool.Machine {
	t.Helper()
	read, _ := loaded.LoadOrStore(fmt.Sprint(name, vfs), sync.OnceValue(func() pool.Machine {
		return readMachine(t, name, vfs)
	}))
	return read.(func() pool.Machine)()
}

func readMachine(t testing.TB, name string, vfs int) pool.Machine {
	t.Helper()
	sys, tree := machines.Read(t, name, vfs)
	machine, err := pool.ReadMachine(sys, tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// forms are the two ways to publish.
var forms = map[string]pool.Options{
	"counters": {Counters: true, Taints: true},
	"plain":    {},
}

// The numbers of VFs that every PF has. Many make tests slow.
var (
	few     = []int{0, 1, 2, 4, 8}
	andMany = []int{0, 1, 2, 4, 8, 64}
)

// everywhere runs a test on every recorded machine, with these numbers of VFs, in both forms.
func everywhere(
	t *testing.T, perPF []int, test func(t *testing.T, machine pool.Machine, options pool.Options),
) {
	t.Helper()
	for _, name := range machines.Names() {
		for _, vfs := range perPF {
			machine := load(t, name, vfs)
			for form, options := range forms {
				t.Run(fmt.Sprintf("%s/%d/%s", name, vfs, form), func(t *testing.T) {
					t.Parallel()
					test(t, machine, options)
				})
			}
		}
	}
}

// byType counts the devices of a pool.
func byType(p pool.Pool) map[pool.Type]int {
	count := map[pool.Type]int{}
	for _, d := range p.Devices {
		count[d.Type]++
	}
	return count
}
