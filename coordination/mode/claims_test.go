// SPDX-License-Identifier: Apache-2.0

package mode_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/mode"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	if got, err := mode.ReadHolders(dir, ""); err != nil || len(got) > 0 {
		t.Errorf("no driver was ever there: %v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, mode.ClaimsLock), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := mode.ReadHolders(dir, ""); !errors.Is(err, mode.ErrUnknownClaims) {
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
		if err := os.WriteFile(filepath.Join(dir, mode.ClaimsFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := mode.ReadHolders(dir, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v lacks %q", content, err, want)
		}
	}
}
