// SPDX-License-Identifier: Apache-2.0

// Package held reads the devices of prepared claims, for programs that need no other part of DRA: the device
// plugins of a node that has migrated back. It does not depend on Kubernetes' API.
package held

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// FileName is the checkpoint of claims in the DRA driver's directory; package claims writes it.
const FileName = "claims.json"

// version is the version of the format.
const version = 1

// claim contains the required fields of a prepared claim.
type claim struct {
	UID       string
	Namespace string
	Name      string
	Devices   []struct { // none if only the claim's CDI spec is known
		GPUs, VFs []string
		Token     string
		Admin     bool // admin access: it holds nothing
	}
}

// Read returns the holders of devices from the DRA driver's directory, by device ID, for people: "claim
// team/train-0". It returns none if no claim was ever prepared, and an error if the devices of a claim are
// not known.
func Read(dir string) (map[string]string, error) {
	name := filepath.Join(dir, FileName)
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read prepared claims: %w", err)
	}
	var file struct {
		Version  int
		Checksum uint32
		Claims   json.RawMessage
	}
	var claims []claim
	if err = json.Unmarshal(content, &file); err == nil {
		err = json.Unmarshal(file.Claims, &claims)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case file.Version != version:
		return nil, fmt.Errorf("read %s: it has version %d, want %d", name, file.Version, version)
	case crc32.ChecksumIEEE(file.Claims) != file.Checksum:
		return nil, fmt.Errorf("read %s: its checksum is wrong", name)
	}
	holders := map[string]string{}
	for _, c := range claims {
		if len(c.Devices) == 0 {
			return nil, fmt.Errorf("read %s: the devices of the claim with UID %s are not known, because an earlier "+
				"file was damaged or lost", name, c.UID)
		}
		for _, d := range c.Devices {
			if d.Admin {
				continue
			}
			for _, id := range append(append([]string{d.Token}, d.GPUs...), d.VFs...) {
				if id != "" {
					holders[id] = "claim " + c.Namespace + "/" + c.Name
				}
			}
		}
	}
	return holders, nil
}
