package doctor

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// allCPUs is every CPU of the node.
func allCPUs(nodes map[int]topology.CPUSet) topology.CPUSet {
	all := topology.CPUSet{}
	for _, set := range nodes {
		maps.Copy(all, set)
	}
	return all
}

// cores reads an amount of CPU as Kubernetes writes it, "500m" or "2", rounded up to whole CPUs; 0 for none.
func cores(amount any) int {
	text := strings.TrimSpace(fmt.Sprint(amount))
	milli := 1.0
	if number, ok := strings.CutSuffix(text, "m"); ok {
		text, milli = number, 1000
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return int(math.Ceil(number / milli))
}
