// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"maps"
	"slices"
	"sync"
)

// notes are sentences by subject.
type notes struct {
	mu   sync.Mutex
	text map[string]string
}

// put sets the sentence of a subject; "" removes it.
func (n *notes) put(subject, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text == nil {
		n.text = map[string]string{}
	}
	if n.text[subject] = text; text == "" {
		delete(n.text, subject)
	}
}

func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for _, subject := range slices.Sorted(maps.Keys(n.text)) {
		all = append(all, n.text[subject])
	}
	return all
}
