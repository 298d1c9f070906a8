// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// unknownCheckpoints are checkpoints that tell nothing about containers; "" for none.
var unknownCheckpoints = []string{
	``, `null`, `{}`,
	`{"V3":{"Allocations":[{"pod":"u","container":"c","devices":["a"]}]},"Checksum":1}`,
}

// TestUnknownCheckpoint: a container holds a GPU and a VF, which vanish while the plugins are updated. The
// checkpoint is missing or has an unknown layout. The kubelet needs both devices in the lists.
func TestUnknownCheckpoint(t *testing.T) {
	s := newScene(t, "oci-mi300x-derived", 1, allVFs+`, "tandem": {"pairs": true}`)
	stop := s.runBoth(t)
	file := s.admitPair(t, "running", 0)
	stop()
	gpu, vf := s.ids[gpus][0], s.ids[vfs][0]
	saved := t.TempDir()
	if err := errors.Join(os.Remove(s.function(vf)), os.Remove(s.path("sys/bus/pci/drivers/amdgpu/"+gpu)),
		os.CopyFS(saved, os.DirFS(s.runDir))); err != nil {
		t.Fatal(err)
	}
	restart := func(checkpoint string) (listedGPU, listedVF, mounted bool) {
		old := time.Now().Add(-time.Hour)
		if err := errors.Join(os.RemoveAll(s.runDir), os.CopyFS(s.runDir, os.DirFS(saved)),
			os.Chtimes(file, old, old)); err != nil {
			t.Fatal(err)
		}
		s.writeCheckpoint(t, checkpoint)
		stop := s.runBoth(t)
		defer stop()
		_, err := os.Stat(file)
		return s.health[gpus][gpu] == v1beta1.Unhealthy, s.health[vfs][vf] == v1beta1.Unhealthy, err == nil
	}
	if a, b, c := restart("not JSON"); !a || !b || !c {
		t.Fatalf("with an unreadable checkpoint: GPU listed %t, VF listed %t, mounted file there %t", a, b, c)
	}
	for _, checkpoint := range unknownCheckpoints {
		listedGPU, listedVF, mounted := restart(checkpoint)
		if !listedGPU {
			t.Errorf("checkpoint %q: a container's gone GPU is not listed", checkpoint)
		}
		if !listedVF {
			t.Errorf("checkpoint %q: a container's gone VF is not listed", checkpoint)
		}
		if !mounted {
			t.Errorf("checkpoint %q: a container's pairs file is removed", checkpoint)
		}
	}
}

// writeCheckpoint replaces the checkpoint by any content, or removes it.
func (s *scene) writeCheckpoint(t *testing.T, content string) {
	t.Helper()
	name := kubelet.CheckpointPath(s.dir)
	err := os.WriteFile(name, []byte(content), 0o600)
	if content == "" {
		err = os.Remove(name)
	}
	if err != nil {
		t.Fatal(err)
	}
}
