// Package held reads which devices prepared claims hold, for programs that know nothing else of DRA: the
// device plugins of a node that has gone back to them. It brings none of Kubernetes' API along.
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

// FileName is the checkpoint of claims in the DRA driver's folder; package claims writes it.
const FileName = "claims.json"

// version is that of the format.
const version = 1

// claim is a prepared claim, as far as it matters here.
type claim struct {
	Namespace string
	Name      string
	Devices   []struct {
		GPUs, VFs []string
		Token     string
		Admin     bool // for looking at: it holds nothing
	}
}

// Read reads from the DRA driver's folder who holds which device, by device ID, for people:
// "claim team/train-0". None where nothing was ever prepared.
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
