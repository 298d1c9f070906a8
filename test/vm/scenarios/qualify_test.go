// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/topology/nccl"
)

// TestDump: a GPU and a NIC below one switch, a NIC behind a switch more, a NIC on a root port, and functions
// that are neither GPUs nor NICs.
func TestDump(t *testing.T) {
	t.Parallel()
	const root = "/sys/devices/pci0000:07/0000:07:00.0"
	text := dump(strings.Join([]string{
		root + " 0x060400 0",
		root + "/0000:08:00.0 0x060400 0",
		root + "/0000:08:00.0/0000:09:00.0/0000:0a:00.0 0x030200 0",
		root + "/0000:08:00.0/0000:09:01.0/0000:0b:00.0 0x020000 0",
		root + "/0000:08:00.0/0000:09:02.0/0000:0c:00.0/0000:0d:00.0/0000:0e:00.0 0x020000 0",
		"/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0 0x020000 1",
		"/sys/devices/pci0000:80/0000:80:02.0/0000:82:00.0 0x010802 1",
	}, "\n"))
	f, err := nccl.Read("dump", strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	var got []string
	for _, function := range f.Functions() {
		got = append(got, fmt.Sprint(function.Address, " on ", function.NUMA, " below ", function.Bridges))
	}
	want := []string{
		"0000:0a:00.0 on 0 below [0000:08:00.0]", "0000:0b:00.0 on 0 below [0000:08:00.0]",
		"0000:0e:00.0 on 0 below [0000:08:00.0 0000:0c:00.0]", "0000:81:00.0 on 1 below []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
