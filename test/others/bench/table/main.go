// SPDX-License-Identifier: Apache-2.0

// Command table reads the results of the benchmarks in the parent folder and prints what benchstat cannot:
// the ratio of NVIDIA's policy to Tandem, Tandem's times, and their growth with the size of the node.
// node.
//
//	go test -bench . | go run ./table
package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"text/tabwriter"
)

func main() {
	if err := write(os.Stdout, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

// write writes the tables with results.
func write(w io.Writer, in io.Reader) error {
	r, err := read(in)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, table := range []func(io.Writer, results){writeRatios, writeAny, writeGrowth} {
		table(t, r)
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// writeRatios puts the allocators side by side.
func writeRatios(w io.Writer, r results) {
	titled := false
	for _, benchmark := range []string{"Choose", "Holes"} {
		for _, key := range r.names(benchmark, "by", "tandem") {
			tandem, nvidia, pairs := r[key.with("by", "tandem")], r[key.with("by", "nvidia")],
				r[key.with("by", "tandem-pairs")]
			if !titled {
				fmt.Fprint(w, "\nTime and memory of one decision, GPUs alone; pairs: Tandem's, "+
					"with as many VFs. NVIDIA's policy is not run where it takes minutes to years.\n\n")
				fmt.Fprint(w, "benchmark\tGPUs\tlinks\tsize\tNVIDIA\tTandem\tratio\tpairs\tNVIDIA\tTandem\tratio\t\n")
				titled = true
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", benchmark, key.get("gpus"),
				key.get("links"), key.get("size"),
				duration(nvidia["ns/op"]), duration(tandem["ns/op"]), ratio(nvidia["ns/op"], tandem["ns/op"]),
				duration(pairs["ns/op"]),
				size(nvidia["B/op"]), size(tandem["B/op"]), ratio(nvidia["B/op"], tandem["B/op"]))
		}
	}
}

// writeAny lists the latency of Tandem's other decisions.
func writeAny(w io.Writer, r results) {
	titled := false
	for _, benchmark := range []string{"VFs", "Partitions", "Rails", "Infeasible", "Any"} {
		for _, key := range r.names(benchmark, "", "") {
			if !titled {
				fmt.Fprint(w, "\nTandem alone. Slowest: the slowest question when it goes fastest, "+
					"without what else the computer did.\n\n")
				fmt.Fprint(w, "benchmark\tquestion\tmedian\tp99\tlongest\tslowest\tallocations\toptimal\t\n")
				titled = true
			}
			m := r[key]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.0f\t%.1f %%\t\n", benchmark, key.question(),
				duration(m["p50-ns"]), duration(m["p99-ns"]),
				duration(m["max-ns"]), duration(m["worst-ns"]), m["allocs/op"], 100*m["optimal"])
		}
	}
}

// writeGrowth prints times by size of the node, with the exponent of their growth, and a plot.
func writeGrowth(w io.Writer, r results) {
	columns := map[name]map[int]float64{} // time by tree and request, then by GPUs
	sizes := map[int]bool{}
	for _, key := range r.names("Growth", "", "") {
		column := key.without("gpus")
		if columns[column] == nil {
			columns[column] = map[int]float64{}
		}
		gpus := key.number("gpus")
		columns[column][gpus] = r[key]["ns/op"]
		sizes[gpus] = true
	}
	if len(columns) == 0 {
		return
	}
	fmt.Fprint(w, "\nTime of one decision on larger and larger nodes, with eight VFs for each GPU; "+
		"~n^ is the power of the size that it grows by.\n\n\ttree\tGPUs+VFs\t")
	for _, gpus := range slices.Sorted(maps.Keys(sizes)) {
		fmt.Fprintf(w, "%d\t", gpus)
	}
	fmt.Fprint(w, "~n^\t\n")
	var drawn []map[int]float64
	for i, column := range slices.SortedFunc(maps.Keys(columns), name.compare) {
		drawn = append(drawn, columns[column])
		fmt.Fprintf(w, "%c\t%s\t%s\t", 'a'+i, column.get("tree"), column.get("ask"))
		for _, gpus := range slices.Sorted(maps.Keys(sizes)) {
			fmt.Fprintf(w, "%s\t", duration(columns[column][gpus]))
		}
		fmt.Fprintf(w, "%.1f\t\n", power(columns[column]))
	}
	writePlot(w, drawn)
}

// power returns the slope of the line through the logarithms.
func power(times map[int]float64) float64 {
	var n, x, y, xx, xy float64
	for size, t := range times {
		lx, ly := math.Log(float64(size)), math.Log(t)
		n, x, y, xx, xy = n+1, x+lx, y+ly, xx+lx*lx, xy+lx*ly
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return "-"
	}
	digits := 0
	if a < 10*b {
		digits = 2
	}
	return fmt.Sprintf("%.*f", digits, a/b)
}

func duration(ns float64) string {
	return scaled(ns, []unit{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}, {1, "ns"}})
}

func size(bytes float64) string {
	return scaled(bytes, []unit{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}, {1, "B"}})
}

type unit struct {
	size float64
	name string
}

// scaled formats a value in the largest unit in which it is at least 1.
func scaled(x float64, units []unit) string {
	if x == 0 {
		return "-"
	}
	u := units[len(units)-1]
	if i := slices.IndexFunc(units, func(u unit) bool { return x >= u.size }); i >= 0 {
		u = units[i]
	}
	digits := 0
	if x < 100*u.size {
		digits = 1
	}
	return fmt.Sprintf("%.*f %s", digits, x/u.size, u.name)
}
