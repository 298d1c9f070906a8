// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"strconv"
	"strings"
)

// IgnoredXids are the Xids that do not mark a GPU as broken.
type IgnoredXids struct {
	none      bool // none is ignored
	all       bool // all are ignored
	ignored   map[uint64]bool
	enabled   map[uint64]bool
	malformed []string
}

// applicationXids are an application's fault; the GPU stays healthy (NVIDIA's Xid catalog, and
// internal/rm/health.go in NVIDIA/k8s-device-plugin).
var applicationXids = map[uint64]bool{
	13:  true, // graphics engine exception
	31:  true, // GPU memory page fault
	43:  true, // GPU stopped processing
	45:  true, // preemptive cleanup, due to previous errors
	68:  true, // video processor exception
	109: true, // context switch timeout
}

// readXids reads DP_DISABLE_HEALTHCHECKS, Xids to ignore in addition to those of applications, and
// DP_ENABLE_HEALTHCHECKS, Xids never to ignore. Both are lists of numbers, or "all" or "xids" for every Xid.
func readXids(env func(string) (string, bool)) IgnoredXids {
	var x IgnoredXids
	x.ignored, x.all = x.parse(env, "DP_DISABLE_HEALTHCHECKS")
	x.enabled, x.none = x.parse(env, "DP_ENABLE_HEALTHCHECKS")
	return x
}

func (x *IgnoredXids) parse(
	env func(string) (string, bool), variable string,
) (numbers map[uint64]bool, all bool) {
	value, _ := env(variable)
	numbers = map[uint64]bool{}
	for word := range strings.SplitSeq(strings.ToLower(value), ",") {
		word = strings.TrimSpace(word)
		number, err := strconv.ParseUint(word, 10, 64)
		switch {
		case word == "all" || word == "xids":
			return nil, true
		case word == "":
		case err != nil:
			x.malformed = append(x.malformed, fmt.Sprintf("%s: %q is no Xid and is ignored", variable, word))
		default:
			numbers[number] = true
		}
	}
	return numbers, false
}

// Ignores reports whether an Xid leaves a GPU healthy.
func (x IgnoredXids) Ignores(xid uint64) bool {
	switch {
	case x.none || x.enabled[xid]:
		return false
	case x.all || x.ignored[xid]:
		return true
	default:
		return applicationXids[xid]
	}
}

// Off reports whether all Xids are ignored.
func (x IgnoredXids) Off() bool { return x.all && !x.none && len(x.enabled) == 0 }
