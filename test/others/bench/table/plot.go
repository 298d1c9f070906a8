// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// writePlot draws times by GPUs on logarithmic axes, a line for each doubling of the time and a letter for
// each column, in their order. The dots are quadratic growth, from the longest time of the smallest node on.
func writePlot(w io.Writer, columns []map[int]float64) {
	lines, sizes := map[int]map[int]string{}, map[int]bool{}
	at := func(time float64, gpus int, mark string) {
		line := int(math.Floor(math.Log2(time)))
		if lines[line] == nil {
			lines[line] = map[int]string{}
		}
		if mark != "·" || lines[line][gpus] == "" {
			lines[line][gpus] += mark
		}
	}
	first, longest, most := math.MaxInt, 0.0, 0.0
	for i, times := range columns {
		for gpus, time := range times {
			at(time, gpus, string(rune('a'+i)))
			sizes[gpus] = true
			first, most = min(first, gpus), max(most, time)
		}
	}
	for _, times := range columns {
		longest = max(longest, times[first])
	}
	order := slices.Sorted(maps.Keys(sizes))
	for _, gpus := range order {
		if time := longest * math.Pow(float64(gpus)/float64(first), 2); time < 2*most {
			at(time, gpus, "·")
		}
	}
	low, high := slices.Min(slices.Collect(maps.Keys(lines))), slices.Max(slices.Collect(maps.Keys(lines)))
	fmt.Fprint(w, "\nThe same drawn, both axes logarithmic; the dots are quadratic growth.\n\n")
	for line := high; line >= low; line-- {
		fmt.Fprintf(w, "%8s ", duration(math.Exp2(float64(line))))
		writeRow(w, "|", order, func(gpus int) string { return inOrder(lines[line][gpus]) })
	}
	fmt.Fprintf(w, "%8s ", "GPUs")
	writeRow(w, "+", order, func(gpus int) string { return fmt.Sprint(gpus) })
}

func writeRow(w io.Writer, axis string, sizes []int, cell func(gpus int) string) {
	row := []string{axis}
	for _, gpus := range sizes {
		row = append(row, fmt.Sprintf("%9s", cell(gpus)))
	}
	fmt.Fprintln(w, strings.TrimRight(strings.Join(row, " "), " "))
}

// inOrder sorts the marks of a cell.
func inOrder(marks string) string {
	runes := []rune(marks)
	slices.Sort(runes)
	return string(runes)
}
