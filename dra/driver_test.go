package dra_test

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/dra/pool"
)

const machine = "oci-mi300x-derived"

// complete reports whether pairs of eight GPUs are published.
func complete(devices map[string]resourceapi.Device, counters int) bool {
	return ofType(pool.Pair)(devices) == 8 && ofType(pool.GPU)(devices) == 8 && counters > 0
}

func TestPrepare(t *testing.T) {
	c, n := newCluster(t, "v1.37.1"), newNode(t, machine, 8)
	config, _ := n.config(c, "")
	stop := n.start(config)
	k := n.register("")
	if got := strings.Join(k.services, " "); !strings.Contains(got, "v1.DRAPlugin") ||
		!strings.Contains(got, "v1.DRAResourceHealth") {
		t.Errorf("services %s", got)
	}
	c.awaitPublished(complete)

	claim := c.allocate("four", "train-0", "pair-11-00-0", "pair-2f-00-0")
	cdi, wrong := k.prepare(t.Context(), claim)
	if wrong != "" || len(cdi) == 0 {
		t.Fatalf("%v, %s", cdi, wrong)
	}
	if again, wrong := k.prepare(t.Context(), claim); wrong != "" || strings.Join(again, " ") != strings.Join(cdi, " ") {
		t.Errorf("asked again it says %v, %s", again, wrong)
	}
	if got := n.specs(); len(got) != 1 || !strings.Contains(got[0], string(claim.UID)) {
		t.Errorf("CDI specs %v", got)
	}
	c.awaitStatus("four", "pair-11-00-0")

	other := c.allocate("other", "train-1", "gpu-11-00-0")
	if _, wrong := k.prepare(t.Context(), other); !strings.Contains(wrong, "team/four") {
		t.Errorf("a GPU of another claim: %q", wrong)
	}
	gone := c.allocate("gone", "train-2", "pair-99-00-0")
	if _, wrong := k.prepare(t.Context(), gone); !strings.Contains(wrong, "pair-99-00-0") {
		t.Errorf("a device that is not there: %q", wrong)
	}
	for range 2 {
		if wrong := k.unprepare(t.Context(), claim); wrong != "" {
			t.Error(wrong)
		}
	}
	if got := n.specs(); len(got) > 0 {
		t.Errorf("CDI specs are left behind: %v", got)
	}
	if _, wrong := k.prepare(t.Context(), other); wrong != "" {
		t.Error(wrong)
	}
	stop()
	if devices, _ := c.published(); len(devices) == 0 {
		t.Error("the slices are deleted at the end, when another pod of the driver follows")
	}
}
