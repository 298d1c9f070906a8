// SPDX-License-Identifier: Apache-2.0

package health

import (
	"testing"
	"time"
)

// TestQuietAtZero: a counter at zero is not at its maximum: a function whose counter is reset to zero, or
// that has another port without an error, is good again after the quiet time.
func TestQuietAtZero(t *testing.T) {
	const other = "infiniband/mlx5_0/ports/2/hw_counters/local_ack_timeout_err"
	for name, c := range map[string]struct {
		before, burst, after map[string]string
	}{
		"control: a counter that is 1 after the reset": {
			nil, map[string]string{hardware + "local_ack_timeout_err": "100"},
			map[string]string{hardware + "local_ack_timeout_err": "1"},
		},
		"a counter of the port": {
			nil, map[string]string{hardware + "local_ack_timeout_err": "100"},
			map[string]string{hardware + "local_ack_timeout_err": "0"},
		},
		"a counter of the netdev": {
			nil, map[string]string{"net/eth0/carrier_changes": "20"},
			map[string]string{"net/eth0/carrier_changes": "0"},
		},
		"a counter of the PCI function": {
			nil, map[string]string{"aer_dev_correctable": "RxErr 200\nTOTAL_ERR_COR 200"},
			map[string]string{"aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 0"},
		},
		"control: another port at 1": {
			map[string]string{other: "1"}, map[string]string{hardware + "local_ack_timeout_err": "100"}, nil,
		},
		"another port": {
			map[string]string{other: "0"}, map[string]string{hardware + "local_ack_timeout_err": "100"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, pf)
			set := func(files map[string]string) {
				for file, content := range files {
					n.set(file, content)
				}
			}
			set(c.before)
			monitor := newClock(n, Default(), pf)
			monitor.after(t, time.Minute)
			set(c.burst)
			if v := monitor.after(t, monitor.config.Interval); v.State != Degraded {
				t.Fatalf("control: at the burst of errors: %v", v)
			}
			set(c.after)
			if v := monitor.after(t, time.Hour); v != (Verdict{}) {
				t.Errorf("an hour later: %v", v)
			}
		})
	}
}
