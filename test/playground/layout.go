// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/coordination"
	kubeletdata "github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/test/playground/kubelet"
)

// Layout is the directory of a playground.
type Layout struct{ Dir string }

// SysfsRoot returns the root of sysfs.
func (l Layout) SysfsRoot() string { return l.path("sys") }

// KubeletDir returns the kubelet's directory.
func (l Layout) KubeletDir() string { return l.path("kubelet") }

// RunDir returns the run directory of the plugins.
func (l Layout) RunDir() string { return l.path("run") }

func (l Layout) dev() string    { return l.path("dev") }
func (l Layout) proc() string   { return l.path("proc") }
func (l Layout) config() string { return l.path("config.json") }

func (l Layout) path(elements ...string) string {
	return filepath.Join(append([]string{l.Dir}, elements...)...)
}

// VF is the resource name of the VFs, in a configuration of the playground's own.
const VF = "tandem.dev/rdma_vf"

// vfConfig selects the VFs of all NICs with RDMA, and NICs without VFs as VFs. VFs have no NUMA
// hints, from the first pod on.
const vfConfig = `{
  "resourceList": [
    {
      "resourcePrefix": "tandem.dev",
      "resourceName": "rdma_vf",
      "excludeTopology": true,
      "selectors": {"isRdma": true},
      "tandem": {"pairs": true}
    }
  ]
}
`

// kubeletConfig has the settings of deployments/kubelet/config.yaml that the playground's kubelet follows.
const kubeletConfig = `apiVersion: ` + kubeletdata.ConfigVersion + `
kind: ` + kubeletdata.ConfigKind + `
topologyManagerPolicy: restricted
topologyManagerScope: container
`

// LayOut writes a machine into the directory: its sysfs, files in place of device nodes, and the
// configurations of tandem-rdma and of the kubelet. The directory must be absent or empty. NVIDIA's device
// nodes and files in /proc are those of the stand-in, which may be nil.
func (l Layout) LayOut(sys fs.FS, gpus *standIns) error {
	if err := l.check(); err != nil {
		return err
	}
	if err := os.CopyFS(l.SysfsRoot(), sys); err != nil {
		return fmt.Errorf("lay out the machine: %w", err)
	}
	err := errors.Join(l.makeNodes(sys), os.Mkdir(l.proc(), 0o755), l.makeNVIDIA(gpus),
		os.MkdirAll(filepath.Join(l.KubeletDir(), "device-plugins"), 0o750),
		os.WriteFile(filepath.Join(l.KubeletDir(), kubeletdata.ConfigFile), []byte(kubeletConfig), 0o644),
		os.WriteFile(l.config(), []byte(vfConfig), 0o644))
	if err != nil {
		return fmt.Errorf("lay out the machine: %w", err)
	}
	return nil
}

// longestPath is the longest path of a socket: sun_path in unix(7) has 108 bytes, including the final zero.
const longestPath = 107

// check checks that the directory is empty, and that the paths of sockets in it are short enough, and have no
// character with a meaning in the name of a gRPC server, which is a URL.
func (l Layout) check() error {
	for _, socket := range []string{
		filepath.Join(l.KubeletDir(), kubelet.LongestSocket), coordination.SocketPath(l.RunDir()),
	} {
		if over := len(socket) - longestPath; over > 0 {
			return fmt.Errorf("use folder %s: its path is %d bytes too long for the sockets in it; name a shorter "+
				"one with --directory, or set TMPDIR", l.Dir, over)
		}
		if target, err := url.Parse("unix:" + socket); err != nil || target.Path != socket {
			return fmt.Errorf("use folder %s: no socket below a path with %%, ?, # or control characters can be "+
				"named; use another one with --directory, or set TMPDIR", l.Dir)
		}
	}
	entries, err := os.ReadDir(l.Dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("use folder: %w", err)
	case len(entries) > 0:
		return fmt.Errorf("use folder %s: it is not empty", l.Dir)
	default:
		return nil
	}
}

// deviceNodes are the folders of device nodes in /dev by the class directories that name them.
var deviceNodes = map[string]string{
	"class/drm/card[0-9]*": "dri", "class/drm/renderD*": "dri",
	"class/infiniband_verbs/*": "infiniband", "class/infiniband_mad/*": "infiniband",
}

// makeNodes makes an empty file for each device node: only the presence of a node matters.
func (l Layout) makeNodes(sys fs.FS) error {
	nodes := []string{"infiniband/rdma_cm"}
	if amd.IsLoaded(sys) {
		nodes = append(nodes, strings.TrimPrefix(amd.ComputeNode, "/dev/"))
	}
	for pattern, folder := range deviceNodes {
		names, err := fs.Glob(sys, pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			nodes = append(nodes, path.Join(folder, path.Base(name)))
		}
	}
	return makeFiles(l.dev(), nodes)
}

// makeNVIDIA makes the files of NVIDIA's driver.
func (l Layout) makeNVIDIA(gpus *standIns) error {
	if gpus == nil {
		return nil
	}
	return errors.Join(makeFiles(l.dev(), inDev(gpus.deviceNodes())), gpus.writeProc(l.proc()))
}

// inDev returns the paths of device nodes below /dev.
func inDev(nodes []string) (names []string) {
	for _, node := range nodes {
		names = append(names, strings.TrimPrefix(node, "/dev/"))
	}
	return names
}

// makeFiles makes empty files below a folder.
func makeFiles(folder string, names []string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}
