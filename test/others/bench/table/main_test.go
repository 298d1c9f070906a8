// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

const output = `goos: linux
BenchmarkChoose/8+64/1+1-2                                	10	     10 ns/op
BenchmarkChoose/gpus=16/links=cube/size=3/by=tandem-2     	10	 200000 ns/op	 1024 B/op	 1 allocs/op
BenchmarkChoose/gpus=16/links=cube/size=3/by=tandem-2     	10	 300000 ns/op	 1024 B/op	 1 allocs/op
BenchmarkChoose/gpus=16/links=cube/size=3/by=tandem-2     	10	 900000 ns/op	 1024 B/op	 1 allocs/op
BenchmarkChoose/gpus=16/links=cube/size=3/by=nvidia-2     	 1	15000000000 ns/op	 2048 B/op	 1 allocs/op
BenchmarkChoose/gpus=8/links=cube/size=3/by=tandem-2      	10	  20000 ns/op	 1024 B/op	 1 allocs/op
BenchmarkAny/gpus=8/vfs=64-2	10	 5 ns/op	 1 allocs/op	 9 max-ns	 0.5 optimal	 3 p50-ns	 7 p99-ns	 8 worst-ns
BenchmarkGrowth/tree=uneven/ask=8+8/gpus=16-2 	10	 100 ns/op
BenchmarkGrowth/tree=uneven/ask=8+8/gpus=64-2 	10	 1600 ns/op
BenchmarkBroken-2	FAIL
PASS
`

// The columns are padded with spaces; here one stands between any two words.
func TestTables(t *testing.T) {
	var out strings.Builder
	if err := write(&out, strings.NewReader(output)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"Choose 8 cube 3 - 20.0 µs - - - 1.0 KiB -",
		"Choose 16 cube 3 15.0 s 300 µs 50000 - 2.0 KiB 1.0 KiB 2.00",
		"Any gpus=8 vfs=64 3.0 ns 7.0 ns 9.0 ns 8.0 ns 1 50.0 %",
		"tree GPUs+VFs 16 64 ~n^",
		"a uneven 8+8 100 ns 1.6 µs 2.0",
		"1.0 µs | a\n",
		"64.0 ns | a\nGPUs + 16 64",
	} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
}

func TestNoResultsNoTables(t *testing.T) {
	var out strings.Builder
	if err := write(&out, strings.NewReader("PASS\n")); err != nil || out.Len() > 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}
