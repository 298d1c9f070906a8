// SPDX-License-Identifier: Apache-2.0

package seeds

// Condition is a circumstance that comes about once in a cycle of a simulation, in turn with the others.
type Condition struct {
	Name   string
	Within int // seeds of a run, of which one has it; 0 for two
}

// Deal returns the condition of a cycle of a seed: the one with a name or, without such a condition, each in
// turn.
func Deal[C any](all []C, of func(C) Condition, only string, seed uint64, cycle int) C {
	for _, c := range all {
		if of(c).Name == only {
			return c
		}
	}
	return all[(seed+uint64(cycle))%uint64(len(all))]
}
