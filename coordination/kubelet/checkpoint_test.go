// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// written is a checkpoint as a kubelet 1.36 writes it: an init container, the app container that took its GPU
// over, and a VF without NUMA node.
const written = `{"Data":{"PodDeviceEntries":[
{"PodUID":"u1","ContainerName":"init","ResourceName":"amd.com/gpu","DeviceIDs":{"0":["0000:11:00.0"]},"AllocResp":"EgA="},
{"PodUID":"u1","ContainerName":"app","ResourceName":"amd.com/gpu","DeviceIDs":{"0":["0000:11:00.0"],"1":["0000:8b:00.0"]},"AllocResp":"EgA="},
{"PodUID":"u2","ContainerName":"app","ResourceName":"nvidia.com/vf","DeviceIDs":{"-1":["0000:0c:00.1"]},"AllocResp":""}],
"RegisteredDevices":{"amd.com/gpu":["0000:11:00.0","0000:8b:00.0"],"nvidia.com/vf":["0000:0c:00.1"]}},"Checksum":1234567890}`

func TestReadCheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := ReadCheckpoint(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no checkpoint: %v", err)
	}
	file := filepath.Join(dir, "device-plugins", "kubelet_internal_checkpoint")
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := ReadCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		resource string
		ids      []string
		want     []string
	}{
		{"amd.com/gpu", []string{"0000:11:00.0"}, []string{"u1/app", "u1/init"}},
		{"amd.com/gpu", []string{"0000:8b:00.0", "0000:11:00.0"}, []string{"u1/app", "u1/init"}},
		{"nvidia.com/vf", []string{"0000:0c:00.1"}, []string{"u2/app"}},
		{"nvidia.com/vf", []string{"0000:11:00.0"}, nil},
		{"none", nil, nil},
	} {
		if got := checkpoint.Holders(tc.resource, tc.ids); !slices.Equal(got, tc.want) {
			t.Errorf("holders of %s %v: %v, want %v", tc.resource, tc.ids, got, tc.want)
		}
	}
	if err := os.WriteFile(file, []byte(written[:100]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCheckpoint(dir); err == nil {
		t.Error("half a checkpoint was read without an error")
	}
	for _, unknown := range []string{
		`null`, `{}`, `{"Data":null}`, `{"Data":{"PodDeviceEntries":[]}}`, `{"V3":` + written + `}`,
	} {
		if err := os.WriteFile(file, []byte(unknown), 0o600); err != nil {
			t.Fatal(err)
		}
		if read, err := ReadCheckpoint(dir); err == nil {
			t.Errorf("%s was read as %v", unknown, read)
		}
		if read, err := ReadGranted(dir); err == nil {
			t.Errorf("%s has granted %v", unknown, read)
		}
	}
}

// The answers of plugins are listed by container; an answer that is no protobuf has no mounts.
func TestReadGranted(t *testing.T) {
	t.Parallel()
	const file = "/run/tandem/pairs/x.json"
	mount := base64.StdEncoding.EncodeToString([]byte("\x12\x1a\x12\x18" + file))
	noAnswer := base64.StdEncoding.EncodeToString([]byte("no"))
	got, err := parseGranted([]byte(strings.NewReplacer("EgA=", mount, `"AllocResp":""`,
		`"AllocResp":"`+noAnswer+`"`).Replace(written)))
	want := []Granted{
		{"u1/app", Devices{"amd.com/gpu": {"0000:11:00.0", "0000:8b:00.0"}}, []string{file}},
		{"u1/init", Devices{"amd.com/gpu": {"0000:11:00.0"}}, []string{file}},
		{"u2/app", Devices{"nvidia.com/vf": {"0000:0c:00.1"}}, nil},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(written))
	f.Add([]byte(`{"Data":{"PodDeviceEntries":null}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		checkpoint, err := parseCheckpoint(content)
		if holders := checkpoint.Holders("amd.com/gpu", []string{"0000:11:00.0"}); err != nil && len(holders) > 0 {
			t.Errorf("holders %v beside error %v", holders, err)
		}
	})
}

// What a reader that remembers returns is what the file says at that time.
func TestCheckpointReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reader := NewCheckpointReader(dir)
	if err := os.MkdirAll(filepath.Dir(CheckpointPath(dir)), 0o750); err != nil {
		t.Fatal(err)
	}
	other := strings.ReplaceAll(written, "0000:8b", "0000:9b")
	for i, content := range []string{"", written, written, other, written[:100], other, written} {
		if err := os.WriteFile(CheckpointPath(dir), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		want, wantErr := ReadCheckpoint(dir)
		got, err := reader.Read()
		if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("reading %d: %v, %v, want %v, %v", i, got, err, want, wantErr)
		}
	}
	if err := os.Remove(CheckpointPath(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no checkpoint any more: %v", err)
	}
}
