// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// A device of a claim is found by its unit, whatever its ID is now, and by its ID in the file of an earlier
// driver, which has no units. A MIG device excludes its GPU and no other MIG device.
func TestHolderOfRenamedDevice(t *testing.T) {
	dir := t.TempDir()
	const claims = `[{"namespace":"team","name":"new","devices":[{"gpus":["MIG-1"],` +
		`"units":{"MIG-1":"0000:81:00.0/7-0"},"vfs":["0000:0c:00.1"]}]},` +
		`{"namespace":"team","name":"next","devices":[{"gpus":["MIG-2"],"units":{"MIG-2":"0000:81:00.0/9-0"}}]},` +
		`{"namespace":"team","name":"old","devices":[{"gpus":["GPU-2"]}]}]`
	content := fmt.Sprintf(`{"version":1,"checksum":%d,"claims":%s}`, crc32.ChecksumIEEE([]byte(claims)), claims)
	if err := os.WriteFile(filepath.Join(dir, ClaimsFile), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := ReadClaimHolders(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ id, unit, want string }{
		{"MIG-renamed", "0000:81:00.0/7-0", "claim team/new"},
		{"GPU-1", "0000:81:00.0", "claim team/new"},
		{"MIG-1", "0000:81:00.0/8-0", ""}, // the ID is another device's now
		{"rdma.sf.1", "0000:0c:00.1", "claim team/new"},
		{"GPU-2::0", "0000:c1:00.0", "claim team/old"},
		{"GPU-3", "0000:d1:00.0", ""},
	} {
		for range 10 { // always the same of several holders
			if got := held.Of(c.id, topology.Unit{Name: c.unit}); got != c.want {
				t.Errorf("%s, unit %s: held by %q, want %q", c.id, c.unit, got, c.want)
			}
		}
	}
}

func TestReadClaims(t *testing.T) {
	dir := t.TempDir()
	if got, err := ReadClaimHolders(dir, ""); err != nil || len(got) > 0 {
		t.Errorf("no driver was ever there: %v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ClaimsLock), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadClaimHolders(dir, ""); !errors.Is(err, ErrUnknownClaims) {
		t.Errorf("a driver was there, and its file is gone: %v", err)
	}
	const adopted = `[{"uid":"uid-1","namespace":"","name":"","devices":null}]`
	for content, want := range map[string]string{
		`{"version":1,`:                           "unexpected end",
		`{"version":2,"checksum":0,"claims":[]}`:  "newer version",
		`{"version":1,"checksum":99,"claims":[]}`: "checksum",
		// as an earlier version of the DRA driver wrote it in place of a damaged file
		fmt.Sprintf(`{"version":1,"checksum":%d,"claims":%s}`,
			crc32.ChecksumIEEE([]byte(adopted)), adopted): "UID uid-1",
	} {
		if err := os.WriteFile(filepath.Join(dir, ClaimsFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadClaimHolders(dir, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v lacks %q", content, err, want)
		}
	}
}
