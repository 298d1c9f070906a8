// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unsound is a group of devices that are failed or degraded for one reason.
type unsound struct{ health, reason, resource string }

// Unsound returns a text for each group of failed and degraded devices, failed ones first.
func (s Status) Unsound() (list []string) {
	groups := map[unsound][]string{}
	for _, r := range s.rows() {
		if r.Health != "" {
			of := unsound{r.Health, r.Reason, r.resource}
			groups[of] = append(groups[of], r.ID)
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(groups), func(a, b unsound) int {
		return cmp.Or(cmp.Compare(b.health, a.health), cmp.Compare(a.resource, b.resource),
			cmp.Compare(a.reason, b.reason))
	}) {
		ids := groups[of]
		slices.Sort(ids)
		list = append(list, fmt.Sprintf("%s of %s %s: %s: %s", Several(len(ids), "device"), of.resource, of.health,
			of.reason, shortList(ids)))
	}
	return list
}

// shortList names the first IDs of a list.
func shortList(ids []string) string {
	const few = 4
	text := strings.Join(ids[:min(few, len(ids))], " ")
	if more := len(ids) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
