// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"strings"
)

// numbers is a flag with comma-separated numbers. Repeated flags add up.
type numbers struct {
	list  *[]float64
	given bool
}

// String implements pflag.Value.
func (n *numbers) String() string {
	texts := make([]string, len(*n.list))
	for i, number := range *n.list {
		texts[i] = strconv.FormatFloat(number, 'g', -1, 64)
	}
	return strings.Join(texts, ",")
}

// Set implements pflag.Value.
func (n *numbers) Set(text string) error {
	var list []float64
	for part := range strings.SplitSeq(text, ",") {
		number, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil {
			return err
		}
		list = append(list, number)
	}
	if n.given {
		list = append(*n.list, list...)
	}
	*n.list, n.given = list, true
	return nil
}

// Type implements pflag.Value.
func (n *numbers) Type() string { return "numbers" }
