// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination"
)

// check checks the invariants: a device belongs to one claim, the prepared claims are those in alive, and the
// files are theirs.
func (n *node) check(alive ...*resourceapi.ResourceClaim) {
	n.t.Helper()
	known, err := n.Prepared(n.state.Machine)
	if err != nil {
		n.t.Fatal(err)
	}
	var want, got []string
	for _, claim := range alive {
		want = append(want, string(claim.UID))
	}
	holders := map[string]types.UID{}
	for _, c := range known {
		got = append(got, string(c.UID))
		for _, d := range c.Devices {
			for _, id := range d.Holds() {
				if other, twice := holders[id]; twice && other != c.UID { // in exchange with itself
					n.t.Errorf("%s is held by %s and %s", id, other, c.UID)
				}
				holders[id] = c.UID
			}
		}
	}
	n.same("prepared claims", got, want)
	told, err := coordination.ReadClaimHolders(n.Dir, n.CDIDir)
	if err != nil || len(told) != len(holders) {
		n.t.Errorf("held %v, %v; want %v", told, err, holders)
	}
	var specs, groups, files []string
	for _, name := range names(n.CDIDir) {
		uid, _ := coordination.ClaimOfSpec(name)
		specs = append(specs, uid)
	}
	n.same("CDI specs", specs, want)
	for _, c := range known {
		for _, first := range c.firstOfGroups() {
			hasVF := func(d Prepared) bool { return len(d.VFs) > 0 }
			if slices.ContainsFunc(inGroup(known, first.Group), hasVF) && !slices.Contains(groups, first.Group) {
				groups = append(groups, first.Group)
			}
		}
	}
	for _, name := range names(n.Host.PairsDir) {
		files = append(files, strings.TrimSuffix(name, ".json"))
	}
	n.same("pairs files", files, groups)
	for _, dir := range []string{n.Dir, n.CDIDir, n.Host.PairsDir, n.Host.DevinfoDir} {
		if left, _ := filepath.Glob(filepath.Join(dir, ".tandem-*")); len(left) > 0 {
			n.t.Errorf("left: %v", left)
		}
	}
}

func (n *node) same(what string, got, want []string) {
	n.t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		n.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// together counts the pairs of a group of containers, and those that are on one switch.
func (n *node) together(devices []Prepared) (pairs, together int) {
	n.t.Helper()
	choice, err := newDecision(n.state, nil, nil).orderDevices(devices)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, p := range choice.Pairs {
		if p.Distance.Level.Direct() {
			together++
		}
	}
	return len(choice.Pairs), together
}

// aligned is that all of a claim's containers have so many pairs together, all on one switch each, in the
// order of the environment too.
func (n *node) aligned(claim *resourceapi.ResourceClaim, want int) {
	n.t.Helper()
	c, all := n.prepared(claim.UID), 0
	for _, first := range c.firstOfGroups() {
		pairs, together := n.together(inGroup([]Claim{c}, first.Group))
		if pairs != together {
			n.t.Errorf("%s: %d of %d pairs are on one switch: %+v", first.Group, together, pairs, c.Devices)
		}
		all += pairs
	}
	if all != want {
		n.t.Errorf("%s has %d pairs, want %d", claim.Name, all, want)
	}
}

func devicesOf(claim *resourceapi.ResourceClaim) (devices []string) {
	for _, r := range driverResults(claim) {
		devices = append(devices, r.Device)
	}
	return devices
}

// claimOf is short for what every test has.
type claimOf = resourceapi.ResourceClaim

func list(claims ...*claimOf) []*claimOf { return claims }

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
