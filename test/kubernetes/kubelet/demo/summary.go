// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/tandem-k8s/tandem/test/best"
	"github.com/tandem-k8s/tandem/topology"
)

// request formats the container's request.
func (r result) request() string {
	switch {
	case r.isPaired():
		return fmt.Sprintf("%d+%d", r.size, r.size)
	case r.size == 1:
		return "1 GPU"
	default:
		return fmt.Sprintf("%d GPUs", r.size)
	}
}

func (r result) isPaired() bool { return r.setup.VFsPerPF > 0 }

// summary prints the table and its result, and returns an error unless all placements are optimal.
func (p *printer) summary(results []result) error {
	p.printf("\n== Summary\nThe pairs of all pods of a request, both orders together.\n\n")
	p.table(results)
	var tandem, uncoordinated, most best.Pairs
	placed, worse := 0, 0
	for _, r := range results {
		got, possible := r.tandem.pairs()
		other, _ := r.uncoordinated.pairs()
		tandem, most, uncoordinated = tandem.Add(got), most.Add(possible), uncoordinated.Add(other)
		placed, worse = placed+r.tandem.pods(), worse+r.tandem.worse()
	}
	p.printf("\nOn the same switch (PIX, PXB or C2C), of the pairs of the same pods: "+
		"%s with Tandem, where %d can be, %s uncoordinated.\n", share(tandem), near(most), share(uncoordinated))
	if worse > 0 {
		return fmt.Errorf("%d of %d placements could have been better on the NUMA nodes that the kubelet chose",
			worse, placed)
	}
	if placed == 0 {
		return errors.New("nothing was placed")
	}
	p.printf("All %d placements are the best that exist on the NUMA nodes that the kubelet chose.\n", placed)
	return nil
}

// table prints a line per set-up and request.
func (p *printer) table(results []result) {
	w := tabwriter.NewWriter(p.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "  machine\trequest\tTandem\tuncoordinated\t")
	last := ""
	for _, r := range results {
		name := r.setup.String()
		if name == last {
			name = ""
		} else {
			last = name
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", name, r.request(), r.cells())
	}
	w.Flush()
}

// cells returns the columns for Tandem, for the uncoordinated plugins, and for the remark.
func (r result) cells() string {
	got, most := r.tandem.pairs()
	other, _ := r.uncoordinated.pairs()
	remark := ""
	switch {
	case r.refused:
		return "refused by the kubelet, see above\t\t"
	case !r.isPaired():
		return fmt.Sprintf("on %.1f cards\ton %.1f cards\t", r.tandem.cards(), r.uncoordinated.cards())
	case r.tandem.worse() > 0:
		remark = fmt.Sprintf("NOT the best: %d pods", r.tandem.worse())
	case near(most) == 0:
		remark = "no switch to share"
	}
	return fmt.Sprintf("%v\t%v\t%s", got, other, remark)
}

// share returns text such as "150 of 160 (93.8 %)".
func share(pairs best.Pairs) string {
	all := 0
	for _, count := range pairs {
		all += count
	}
	if all == 0 {
		return "none"
	}
	return fmt.Sprintf("%d of %d (%.1f %%)", near(pairs), all, 100*float64(near(pairs))/float64(all))
}

// near counts the pairs on one switch.
func near(pairs best.Pairs) int {
	near := 0
	for level, count := range pairs {
		if topology.Level(level).Direct() {
			near += count
		}
	}
	return near
}
