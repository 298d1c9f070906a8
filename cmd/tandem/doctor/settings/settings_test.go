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

// TestOverlay: a file that is laid over the folder is merged where the kubelet would meet it.
func TestOverlay(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	f := Files{Config: filepath.Join(t.TempDir(), "none"), Dir: t.TempDir(), Guessed: true}
	for name, policy := range map[string]string{
		"99/a.conf": "in-folder", "99-zone.conf": "behind", "z.txt": "no",
	} {
		file := filepath.Join(f.Dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(head+"topologyManagerPolicy: "+policy+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(f.Dir, "99-tandem.conf")
	s, err := Read(f, nil, Overlay{
		own: []byte(head + "topologyManagerPolicy: own\ntopologyManagerScope: own\n"),
	})
	if err != nil || s.Policy != "behind" || s.Scope != "own" || s.Origin("topologyManagerScope") != own {
		t.Errorf("%+v, %v", s, err)
	}
	want := []string{filepath.Join(f.Dir, "99/a.conf"), own, filepath.Join(f.Dir, "99-zone.conf")}
	if diff := cmp.Diff(want, s.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	s, err = Read(f, nil, Overlay{filepath.Join(f.Dir, "99-zone.conf"): nil})
	if err != nil || s.Policy != "in-folder" {
		t.Errorf("without the last: %+v, %v", s, err)
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
