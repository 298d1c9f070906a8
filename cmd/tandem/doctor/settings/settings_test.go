// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseFlags(t *testing.T) {
	t.Parallel()
	got := parseFlags([]string{
		"/usr/bin/kubelet", "--config", "/etc/k.yaml", "--fail-swap-on", "--v=2", "--kube_reserved=cpu=1", "word",
		"--kube-reserved", "memory=1Gi, cpu=2", "--", "--config=/other",
	})
	want := Flags{
		"config": {"/etc/k.yaml"}, "fail-swap-on": {""}, "v": {"2"},
		"kube-reserved": {"cpu=1", "memory=1Gi, cpu=2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"cpu": "2", "memory": "1Gi"}, got.pairs("kube-reserved")); diff != "" {
		t.Errorf("pairs (-want +got):\n%s", diff)
	}
	memory := Flags{
		"m": {"0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi", "x", "n:memory=1Gi"},
	}.reservedMemory("m")
	if diff := cmp.Diff([]MemoryReservation{
		{0, map[string]string{"memory": "1Gi", "hugepages-1Gi": "2Gi"}}, {1, map[string]string{"memory": "2Gi"}},
	}, memory); diff != "" {
		t.Errorf("reserved memory (-want +got):\n%s", diff)
	}
}

func TestReservedAmount(t *testing.T) {
	t.Parallel()
	for want, s := range map[int]Settings{
		0: {KubeReserved: map[string]string{"memory": "1Gi"}, SystemReserved: map[string]string{"cpu": "many"}},
		1: {KubeReserved: map[string]string{"cpu": "500m"}, SystemReserved: map[string]string{"cpu": "500m"}},
		2: {KubeReserved: map[string]string{"cpu": "1001m"}}, 3: {SystemReserved: map[string]string{"cpu": "3"}},
	} {
		if got := s.ReservedAmount(); got != want {
			t.Errorf("%v, %v: %d, want %d", s.KubeReserved, s.SystemReserved, got, want)
		}
	}
}

func TestChangedSince(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, long, long); err != nil { // a copy that keeps its times
		t.Fatal(err)
	}
	now := time.Now() // not before the last change: a file that changes later is one of the future
	const minute = time.Minute
	if got := (Process{Age: minute}).ChangedSince(now.Add(-minute), file); len(got) > 0 {
		t.Errorf("a file of the future: %q", got)
	}
	for age, want := range map[time.Duration]int{0: 0, time.Millisecond: 0, minute: 1} {
		if got := (Process{Age: age}).ChangedSince(now, file, file+".none"); len(got) != want {
			t.Errorf("of a process that runs for %v: %q", age, got)
		}
	}
}
