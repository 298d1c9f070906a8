// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
)

// With excludeTopology auto, every scan decides about the hints, the kubelet and the coordinator learn the
// outcome, and the log has each change once.
func TestAutoIsDecidedAgain(t *testing.T) {
	var log bytes.Buffer
	s := functions.New()
	s.PF(0x81, "ens1", 1, functions.Facts{"numa_node": "1"})
	vfs, err := FindVFs(pools.Finder{Sys: s.FS(), Prefix: "intel.com"},
		config(t, resources(`{"resourceName": "a", "excludeTopology": "auto"}`)),
		Known{File: filepath.Join(t.TempDir(), "vfs.json")}, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		online string
		hints  bool
		told   int
	}{{"0-1", true, 1}, {"0-7", false, 2}, {"0-7", false, 2}, {"0-3", true, 3}} {
		s.Write("devices/system/node/online", step.online)
		before, changed := vfs.latest("intel.com/a")
		if err := vfs.scan(); err != nil {
			t.Fatal(err)
		}
		pool, _ := vfs.latest("intel.com/a")
		announced := present(pool)
		listed := forKubelet(announced)
		_, hints := announced[0].NUMA.Number()
		if hints != step.hints || len(listed[0].Nodes) > 0 != step.hints {
			t.Errorf("NUMA nodes %s: announced %v, listed %v", step.online, announced, listed)
		}
		if told := strings.Count(log.String(), `msg="NUMA hints" resource=intel.com/a`); told != step.told {
			t.Errorf("NUMA nodes %s: told %d times, want %d:\n%s", step.online, told, step.told, log.String())
		}
		select {
		case <-changed:
		default:
			if before.Devices[0].NUMA != pool.Devices[0].NUMA {
				t.Errorf("NUMA nodes %s: the change is not published", step.online)
			}
		}
	}
}
