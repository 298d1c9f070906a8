// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestNUMANode(t *testing.T) {
	for _, c := range []struct {
		text, json string
		numbers    []int
	}{
		{"0", "0", []int{0}},
		{"7", "7", []int{7}},
		{"-1", "null", nil},
	} {
		node, err := ParseNUMANode(c.text)
		if err != nil || node.String() != c.text || !slices.Equal(node.Numbers(), c.numbers) {
			t.Errorf("%s is node %s, numbers %v, %v", c.text, node, node.Numbers(), err)
		}
		content, err := json.Marshal(node)
		if err != nil || string(content) != c.json {
			t.Errorf("%s is written %s, %v; want %s", c.text, content, err, c.json)
		}
		again := Node(3)
		if err := json.Unmarshal(content, &again); err != nil || again != node {
			t.Errorf("%s is read as %s, %v", content, again, err)
		}
	}
	for _, text := range []string{"", "x", "1.5", "99999999999"} {
		if node, err := ParseNUMANode(text); err == nil || node != (NUMANode{}) {
			t.Errorf("%q is node %s, %v", text, node, err)
		}
	}
	if err := json.Unmarshal([]byte(`"0"`), new(NUMANode)); err == nil {
		t.Error("a string is a node")
	}
}
