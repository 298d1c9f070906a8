package v1alpha1

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// SetOf is the set of some numbers, which are 0 or more; their order does not matter.
func SetOf(numbers ...int) Set {
	set := topology.CPUSet{}
	for _, n := range numbers {
		set[n] = true
	}
	return Set(set.String())
}

// Numbers are the members, ascending; none of what is not written as a set is. They are below 65,536.
func (s Set) Numbers() []int {
	set, err := topology.ParseCPUSet(string(s))
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(set))
}
