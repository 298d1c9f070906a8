// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// verified has "tandem verify" look at what a container gets by these edits.
func (n *node) verified(edits specs.ContainerEdits, gpus, vfs int) {
	n.t.Helper()
	root := n.t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "sys"), n.sys); err != nil {
		n.t.Fatal(err)
	}
	check := verify.Check{
		Environment: edits.Env, SysfsRoot: filepath.Join(root, "sys"), DevRoot: filepath.Join(root, "dev"),
		ProcRoot: filepath.Join(root, "proc"),
		GPUs:     gpus, VFs: vfs, Within: topology.PXB, InOrder: true,
	}
	write := func(name, content string) {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			n.t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
	common := false
	for _, node := range edits.DeviceNodes {
		write(node.Path, "")
		common = common || node.Path == "/dev/infiniband/rdma_cm"
	}
	if !common {
		n.t.Errorf("no common device node of RDMA in %v", edits.DeviceNodes)
	}
	visible := strings.Split(variable(edits, "NVIDIA_VISIBLE_DEVICES"), ",")
	for minor, g := range n.state.Machine.GPUs {
		if g.Vendor == "nvidia" {
			write(filepath.Join("proc/driver/nvidia/gpus", g.Card.String(), "information"),
				fmt.Sprintf("GPU UUID: %s\nDevice Minor: %d\n", g.ID, minor))
			if slices.Contains(visible, g.ID) { // NVIDIA's runtime adds the device nodes
				for _, node := range []string{fmt.Sprintf("nvidia%d", minor), "nvidiactl", "nvidia-uvm"} {
					write("dev/"+node, "")
				}
			}
		}
	}
	for _, mount := range edits.Mounts {
		check.PairsFile = mount.HostPath
	}
	result, err := check.Run(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	if len(result.Failures) > 0 || !result.InOrder || result.PairsFile != "agrees" {
		n.t.Errorf("verify: %v\n%s", result.Failures, result.Table())
	}
}

// What containers get passes "tandem verify", of both vendors: pairs, what an unchanged pod asks for,
// bundles.
func TestVerify(t *testing.T) {
	for _, c := range []struct {
		name, machine string
		vfs           int
		claim         func(n *node) *claimOf
		request       string
		want          int
	}{
		{"all pairs", "oci-mi300x-derived", 1, pairsOf(8), "pairs", 8},
		{"an unchanged pod", "oci-mi300x-derived", 4, unchanged, "container-0-request-0", 4},
		{"an unchanged pod of NVIDIA's", "nv-h100-oci", 4, unchanged, "container-0-request-0", 4},
		{"a bundle", "amd-mi300x-smc-thor2-cpx-derived", 16, bundle, "bundle", 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, c.machine, c.vfs, toldVFs, true)
			claim := c.claim(n)
			n.ready(claim)
			n.check(claim)
			n.verified(n.edits(claim, c.request), c.want, c.want)
		})
	}
}

func pairsOf(count int) func(*node) *claimOf {
	return func(n *node) *claimOf { return n.need("train", want{"pairs", pool.TypePair, count}) }
}

func bundle(n *node) *claimOf { return n.need("train", want{"bundle", pool.TypeBundle, 1}) }

func unchanged(n *node) *claimOf {
	n.allocate(pool.TypeVF, 1)
	claim := n.extended("train", [2]int{4, 4})
	if claim == nil {
		n.t.Fatal("the machine has not so many devices")
	}
	return claim
}

// partitioned are NVIDIA's GPUs, the first of which has four MIG devices of another resource.
type partitioned struct{ nvidiaGPUs }

func (p partitioned) Discover() (gpu.Inventory, error) {
	found, err := p.nvidiaGPUs.Discover()
	whole := found.Resources["nvidia.com/gpu"]
	found.Resources["nvidia.com/gpu"] = whole[1:]
	for i := range 4 {
		part := whole[0]
		part.ID, part.Part = fmt.Sprint("MIG-", i), fmt.Sprint(i)
		found.Resources["nvidia.com/mig-1g.10gb"] = append(found.Resources["nvidia.com/mig-1g.10gb"], part)
	}
	return found, err
}

// MIG devices of one GPU are a bundle; of two resources in a container all are in the one variable.
func TestMIG(t *testing.T) {
	sys, tree := machines.Read(t, "nv-h100-oci", 4)
	n := newNodeOf(t, disk.New(1), sys, tree, partitioned{nvidiaGPUs{tree}}, toldVFs, true)
	claim := n.need("train", want{"bundle", pool.TypeBundle, 1}, want{"gpu", pool.TypeGPU, 1})
	n.ready(claim)
	n.check(claim)
	visible := strings.Split(variable(n.edits(claim, "bundle"), "NVIDIA_VISIBLE_DEVICES"), ",")
	slices.Sort(visible)
	if len(visible) != 5 || !strings.HasPrefix(visible[0], "GPU-") || visible[1] != "MIG-0" ||
		visible[4] != "MIG-3" {
		t.Errorf("visible %v", visible)
	}
}

// Each request has all that its containers have together, in one CDI device, and once.
func TestOneEnvironment(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	claim := n.need("train", want{"pairs", pool.TypePair, 2}, want{"more", pool.TypeVF, 2})
	answer := n.ready(claim)
	if len(answer) != 4 || n.asked.Load() != 1 {
		t.Fatalf("answer %v, asked for %d pods", answer, n.asked.Load())
	}
	const name = "tandem.dev/claim=uid-train-pairs"
	for i, want := range []string{name, "", name, ""} {
		if got := strings.Join(answer[i].CDIDeviceIDs, " "); got != want {
			t.Errorf("device %d of request %v: %q, want %q", i, answer[i].Requests, got, want)
		}
	}
	if spec := n.spec(claim); len(spec.Devices) != 1 || spec.Kind != "tandem.dev/claim" {
		t.Errorf("spec %+v", spec)
	}
	vfs := strings.Split(variable(n.edits(claim, "pairs"), "PCIDEVICE_TANDEM_DEV_RDMA_VF"), ",")
	if len(vfs) != 4 {
		t.Errorf("VFs %v", vfs)
	}
}

// What a device plugin is writing beside a driver that takes claims back alone is not taken from it.
func TestRestoreBesidePlugins(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	n.Alone = false
	for _, dir := range []string{n.CDIDir, n.Host.DevinfoDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, ".tandem-123")
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n.restored()
		if !exists(name) {
			t.Errorf("%s is gone", name)
		}
	}
}

func modified(t *testing.T, name string) fs.FileInfo {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// A claim with a GPU that cannot be read now keeps what it has, and is prepared as before. Its spec is left:
// runtimes read all of them again for one that is written.
func TestUnreadWhilePrepared(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	claim := n.need("train", want{"pairs", pool.TypePair, 2})
	first := n.ready(claim)
	before := modified(t, n.specPath(claim.UID))
	n.ready(claim)
	n.restored()
	if !os.SameFile(before, modified(t, n.specPath(claim.UID))) {
		t.Error("the spec was replaced by the same")
	}
	n.state.Machine.Unread = map[topology.Address]bool{n.state.Machine.GPUs[0].Card: true}
	n.state.Machine.GPUs = n.state.Machine.GPUs[1:]
	n.restored()
	again := n.ready(claim)
	if len(again) != len(first) || again[0].CDIDeviceIDs[0] != first[0].CDIDeviceIDs[0] {
		t.Errorf("first %v, then %v", first, again)
	}
	if !os.SameFile(before, modified(t, n.specPath(claim.UID))) {
		t.Error("the spec changed")
	}
	if !strings.Contains(n.log.String(), "keeps its existing CDI spec") {
		t.Errorf("log %s", n.log)
	}
}

// Where all is in CDI devices of others there is no spec of ours: CDI refuses devices without edits.
func TestNothingToEdit(t *testing.T) {
	n := newNode(t, "nv-h100-oci", 4, toldVFs, true)
	c := Claim{UID: "uid", Devices: []Prepared{
		{Request: "gpus", Device: "gpu", Group: "g"}, {Request: "gpus", Group: "g"},
	}}
	edits := container.Edits{Named: container.Named{Devices: []string{"nvidia.com/gpu=0"}}}
	environments := map[string]*environment{"g": {edits: edits}}
	c.setCDINames(environments)
	if diff := cmp.Diff([]string{"nvidia.com/gpu=0"}, c.Devices[0].CDI); diff != "" || c.Devices[1].CDI != nil {
		t.Errorf("%s, %v", diff, c.Devices[1].CDI)
	}
	if err := n.writeSpec(c, environments); err != nil {
		t.Fatal(err)
	}
	if exists(n.specPath("uid")) {
		t.Error("a spec without edits")
	}
}

// The file says whose spec it is.
func TestClaimOfSpec(t *testing.T) {
	for name, want := range map[string]string{
		"tandem.dev-claim_5e0c.json": "5e0c", "tandem.dev-claim_.json": "", "tandem.dev-claim_5e0c.yaml": "",
		"nvidia.com-claim_5e0c.json": "",
	} {
		if uid, ok := coordination.ClaimOfSpec(name); ok != (want != "") || ok && uid != want {
			t.Errorf("%s: %q, %v; want %q", name, uid, ok, want)
		}
	}
}
