// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// Files in the DRA driver's directory, which package claims writes: the checkpoint of claims, and the lock of
// the directory. A driver has both from its start; drivers before had the checkpoint from the first claim.
const (
	ClaimsFile = "claims.json"
	ClaimsLock = "claims.lock"
)

// A claim with edits for its containers has a CDI specification, whose file name contains the claim's UID.
const (
	claimSpecPrefix = DRADriver + "-claim_"
	claimSpecSuffix = ".json"
)

// CDIDir is the usual folder of CDI specifications.
const CDIDir = "/var/run/cdi"

// ClaimSpecName returns the file name of the specification of the claim with a UID.
func ClaimSpecName(uid string) string { return claimSpecPrefix + uid + claimSpecSuffix }

// ClaimOfSpec returns the UID of the claim of a specification's file name.
func ClaimOfSpec(name string) (uid string, ok bool) {
	uid, ours := strings.CutPrefix(name, claimSpecPrefix)
	uid, json := strings.CutSuffix(uid, claimSpecSuffix)
	return uid, ours && json && uid != ""
}

// ClaimSpecs returns the UIDs of the claims that have a specification in a folder.
func ClaimSpecs(cdiDir string) (uids []string, err error) {
	entries, err := os.ReadDir(cdiDir)
	if err != nil {
		return nil, fmt.Errorf("list CDI specs: %w", err)
	}
	for _, entry := range entries {
		if uid, ok := ClaimOfSpec(entry.Name()); ok {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}

// claimsLayout is the layout of the file. Keys may be added: readers ignore unknown keys.
var claimsLayout = system.Layout{Version: 1, Keys: []string{"checksum", "claims"}}

// claimsCheckpoint is the content of the file.
type claimsCheckpoint struct {
	Version  int             `json:"version"`
	Checksum uint32          `json:"checksum"` // CRC-32 (IEEE) of the encoded claims
	Claims   json.RawMessage `json:"claims"`
}

// ErrUnknownClaims means that the devices of claims are not known: the file is damaged, of another version
// or gone.
var ErrUnknownClaims = errors.New("the devices of claims are not known")

// EncodeClaims returns the content of the file for claims.
func EncodeClaims[Claim any](claims []Claim) ([]byte, error) {
	list, err := json.Marshal(claims)
	if err != nil {
		return nil, fmt.Errorf("encode prepared claims: %w", err)
	}
	content, err := json.Marshal(claimsCheckpoint{claimsLayout.Version, crc32.ChecksumIEEE(list), list})
	if err != nil {
		return nil, fmt.Errorf("encode prepared claims: %w", err)
	}
	return append(content, '\n'), nil
}

// DecodeClaims returns the claims of a file with this name. An error is an ErrUnknownClaims.
func DecodeClaims[Claim any](name string, content []byte) (claims []Claim, err error) {
	read, err := system.Decode[claimsCheckpoint](content, claimsLayout)
	if sum := crc32.ChecksumIEEE(read.Claims); err == nil && sum != read.Checksum {
		err = fmt.Errorf("its checksum is %d and should be %d", read.Checksum, sum)
	}
	if err == nil {
		err = checkDevices(read.Claims)
	}
	if err == nil {
		err = json.Unmarshal(read.Claims, &claims)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", name, ErrUnknownClaims, err)
	}
	return claims, nil
}

// checkDevices returns an error if a claim has no devices. An earlier version wrote such claims in place of a
// damaged file.
func checkDevices(encoded json.RawMessage) error {
	var claims []struct {
		UID     string
		Devices []json.RawMessage
	}
	if err := json.Unmarshal(encoded, &claims); err != nil {
		return err
	}
	for _, c := range claims {
		if len(c.Devices) == 0 {
			return fmt.Errorf("the claim with UID %s has none", c.UID)
		}
	}
	return nil
}

// heldClaim contains the required fields of a prepared claim.
type heldClaim struct {
	Namespace string
	Name      string
	Devices   []struct {
		GPUs, VFs []string
		Token     string
		Units     map[string]string // of devices with an ID that does not name it; an earlier driver wrote none
		Admin     bool              // admin access: it holds nothing
	}
}

// ClaimHolders are the holders of devices for people, "claim team/train-0", by the name of the device's unit
// or, where only the ID is known, by ID.
type ClaimHolders map[string]string

// everyUnit is the unit for all devices in ClaimHolders: who holds which device is unknown, for the reason in
// place of a holder.
const everyUnit = "*"

// Of returns the holder of a device, "" for none. A holder of a unit also holds its replicas. Of several
// holders of a GPU's MIG devices it is the first by name.
func (h ClaimHolders) Of(id string, unit topology.Unit) string {
	original, _ := topology.CutReplica(id)
	if holder := cmp.Or(h[unit.Name], h[original]); holder != "" {
		return holder
	}
	var holders []string
	for name, holder := range h {
		if unit.Overlaps(topology.Unit{Name: name}) {
			holders = append(holders, holder)
		}
	}
	if len(holders) == 0 {
		return ""
	}
	return slices.Min(holders)
}

// Has reports whether a device has a holder, or may have one.
func (h ClaimHolders) Has(id string, unit topology.Unit) bool {
	return h.Of(id, unit) != "" || h[everyUnit] != ""
}

// Why returns a sentence with the reason for withholding all devices, "" if the holders are known.
func (h ClaimHolders) Why() string {
	if h[everyUnit] == "" {
		return ""
	}
	return "all devices are withheld: " + h[everyUnit]
}

// ClaimUnitOf returns the name of the unit of a claim's device, by the recorded units.
func ClaimUnitOf(id string, units map[string]string) string {
	return cmp.Or(units[id], topology.UnitOfID(id).Name)
}

// ClaimsRemedy says how the devices of claims become known, and that the driver was never in its directory.
func ClaimsRemedy(dir string) string {
	return "end the pods with claims of driver " + DRADriver + " on this node; if they stay unknown: rm " +
		filepath.Join(dir, ClaimsFile) + " " + filepath.Join(dir, ClaimsLock)
}

// ReadClaimHolders returns the holders of devices from the DRA driver's directory. It returns none if no
// driver was ever in the directory, or if there are neither the file nor specifications of claims, and an
// error if the devices of a claim are not known.
func ReadClaimHolders(dir, cdiDir string) (ClaimHolders, error) {
	name := filepath.Join(dir, ClaimsFile)
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, neverPrepared(dir, cdiDir)
	}
	if err != nil {
		return nil, fmt.Errorf("read prepared claims: %w", err)
	}
	claims, err := DecodeClaims[heldClaim](name, content)
	if err != nil {
		return nil, err
	}
	holders := ClaimHolders{}
	for _, c := range claims {
		for _, d := range c.Devices {
			if d.Admin {
				continue
			}
			for _, id := range append(append([]string{d.Token}, d.GPUs...), d.VFs...) {
				if id != "" {
					holders[ClaimUnitOf(id, d.Units)] = "claim " + c.Namespace + "/" + c.Name
				}
			}
		}
	}
	return holders, nil
}

// neverPrepared returns an error if a driver that was in a directory without the file may have prepared
// claims.
func neverPrepared(dir, cdiDir string) error {
	_, err := os.Lstat(filepath.Join(dir, ClaimsLock))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("read prepared claims: %w", err)
	}
	uids, err := ClaimSpecs(cdiDir)
	if err == nil && len(uids) > 0 {
		err = fmt.Errorf("%d claims have CDI specs in %s", len(uids), cdiDir)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w: the file is gone, and %s is there: %w",
			filepath.Join(dir, ClaimsFile), ErrUnknownClaims, ClaimsLock, err)
	}
	return nil
}
